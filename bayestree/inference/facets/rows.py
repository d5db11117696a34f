"""Rows of one node, and their likelihood as a function of the node's score."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, softplus

from bayestree import routing

#: Added to scores, so that the logarithm of an underflowed score is finite.
SCORE_FLOOR = routing.FLOOR * torch.finfo(torch.float64).tiny
#: Above this value softplus(z) = z in double precision.
SOFTPLUS_LINEAR = 35.0


class Rows(NamedTuple):
    """Rows that reach one node.

    Row n's likelihood is ``else + P(left) left + P(right) right``. The likelihoods on the two sides
    (times the probability of reaching the node) are kept separately, because they may be updated.
    """

    design: Tensor  # (row, feature + 1), ends with a column of ones
    weights: Tensor  # (row,)
    log_else: Tensor | None = None  # (row,): log-likelihood by the leaves not below the node
    steepness: float = 1.0  # multiplies the log-odds of the split

    @property
    def x(self) -> Tensor:
        """The features, shape (row, feature)."""
        return self.design[:, :-1]

    def take(self, index: Tensor | slice) -> "Rows":
        """Some of the rows."""
        other = None if self.log_else is None else self.log_else[index]
        return Rows(self.design[index], self.weights[index], other, self.steepness)

    def split(self, score: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probabilities of going left and right at scores (..., row)."""
        return routing.branch_log_probs(score + SCORE_FLOOR, self.steepness)

    def log_likelihood(self, score: Tensor, log_left: Tensor, log_right: Tensor) -> Tensor:
        """Log-likelihood of each row, shape (..., row)."""
        left, right = self.split(score)
        value = torch.logaddexp(log_left + left, log_right + right)
        return value if self.log_else is None else torch.logaddexp(self.log_else, value)

    def log_likelihood_and_slope(
        self, score: Tensor, log_left: Tensor, log_right: Tensor
    ) -> tuple[Tensor, Tensor]:
        """:meth:`log_likelihood` and its derivative in the score, in few passes over memory."""
        rise = -torch.expm1(-(score + SCORE_FLOOR))  # 1 / the slope of the log-odds in the score
        odds = score + rise.log()
        if self.steepness == 1:
            to_left, to_right, stays, goes = -score, rise.log(), 1 / rise - 1, None
        else:
            odds = self.steepness * odds
            to_left, to_right = logsigmoid(-odds), logsigmoid(odds)
            per_score = self.steepness / rise
            stays, goes = torch.sigmoid(-odds) * per_score, torch.sigmoid(odds) * per_score
        sent = log_right + to_right
        lead = log_left + to_left - sent
        value = sent + softplus(lead, threshold=SOFTPLUS_LINEAR)
        kept = torch.sigmoid(lead)
        slope = torch.sigmoid(-lead) * stays - (kept if goes is None else kept * goes)
        if self.log_else is None:
            return value, slope
        whole = torch.logaddexp(self.log_else, value)
        return whole, slope * torch.exp(value - whole)


def votes(coefficient: Tensor, log_weight: Tensor, design: Tensor) -> Tensor:
    """Scores (..., row) of experts (..., slot, feature + 1) of log-weights (..., slot)."""
    activation = coefficient @ design.T
    weight = log_weight.exp().unsqueeze(-2)
    return (weight @ softplus(activation, threshold=SOFTPLUS_LINEAR)).squeeze(-2)
