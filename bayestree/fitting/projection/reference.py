"""What the posterior predicts at the training rows, and what leaves of these rows predict."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from bayestree._utils.arrays import FloatArray, IntArray
from bayestree.inference.data import Data
from bayestree.inference.pointwise import sample_y
from bayestree.inference.posterior import Posterior
from bayestree.models.leaves import Leaf

MOST_DRAWS = 50  # of all posteriors together
N_VALUES = 10  # of y that stand for the distribution of a number


@dataclass(frozen=True, eq=False)
class Reference:
    """The posterior predictive distribution of y at n rows, as A values with probabilities.

    Attributes
    ----------
    leaf : Leaf
    data : Data
        The rows, with y as responses.
    values : Tensor
        Responses, (A n, ...): the first value of each row, then the second one, ...
    share : array, shape (A, n)
        Their probabilities.
    """

    leaf: Leaf
    data: Data
    values: Tensor
    share: FloatArray

    @classmethod
    def of(cls, mixture: Sequence[tuple[Posterior, float]], data: Data) -> "Reference":
        """Predict y by a mixture of posteriors: each class, or quantiles of draws."""
        leaf = mixture[0][0].model.leaf
        data = data.for_leaf(leaf)
        most = -(-MOST_DRAWS // len(mixture))
        used = [(one, weight) for one, weight in mixture if weight > 0]
        few = [(one.thinned(max(1, most // one.n_chains)), weight) for one, weight in used]
        if leaf.n_classes:
            values, share = _classes(few, data)
        else:
            values, share = _quantiles(few, data)
        known = leaf.known(data.y)
        if known is not None:
            values = torch.column_stack((values, known.repeat(len(share))))
        return cls(leaf, data, leaf.response(data.X.repeat(len(share), 1), values), share)

    def take(self, rows: IntArray) -> "Reference":
        """Return the predictions of some rows."""
        n_rows, n_values = len(self.data.X), len(self.share)
        each = (np.arange(n_values)[:, None] * n_rows + rows).ravel()
        data = self.data.take(torch.as_tensor(rows))
        return Reference(self.leaf, data, self.values[torch.as_tensor(each)], self.share[:, rows])

    def expected_log_density(self, place: IntArray, n_leaves: int) -> FloatArray:
        """Expect log p(y | leaf), (n, L), of leaves that hold the rows of ``place`` (n,)."""
        found = self.leaf.log_density(self.estimate(place, n_leaves), self.values)
        each = found.double().numpy(force=True).reshape(*self.share.shape, n_leaves)
        return np.einsum("an,anl->nl", self.share, each)

    def log_density(self, place: IntArray, n_leaves: int) -> FloatArray:
        """Compute log p(y_n | leaf) of the rows in their leaves, which are estimated without them.

        Families whose posterior needs an iteration are estimated from all rows. Shape (n,).
        """
        if not self.leaf.exact:
            return self.log_density_given(self.estimate(place, n_leaves), place)
        sums, where = self._sums(place, n_leaves), torch.as_tensor(place)
        others = sums[where] - self.leaf.statistics(self.data.y, self.data.weights)
        sites = {name: one.unsqueeze(1) for name, one in self.leaf.estimate(others).items()}
        found = self.leaf.node_log_density(sites, self.data.y.unsqueeze(1))
        return found[:, 0, 0].double().numpy(force=True)

    def log_density_given(self, sites: Mapping[str, Tensor], place: IntArray) -> FloatArray:
        """Compute log p(y_n | leaf) of the rows in leaves with known parameters, (n,)."""
        found = self.leaf.log_density(sites, self.data.y)
        each = found.gather(1, torch.as_tensor(place).unsqueeze(1))[:, 0]
        return each.double().numpy(force=True)

    def estimate(self, place: IntArray, n_leaves: int) -> Mapping[str, Tensor]:
        """Estimate the parameters of the leaves from the rows that they hold."""
        return self.leaf.estimate(self._sums(place, n_leaves))

    def _sums(self, place: IntArray, n_leaves: int) -> Tensor:
        each = self.leaf.statistics(self.data.y, self.data.weights)
        return each.new_zeros(n_leaves, each.shape[1]).index_add_(0, torch.as_tensor(place), each)


def _classes(few: Sequence[tuple[Posterior, float]], data: Data) -> tuple[Tensor, FloatArray]:
    rows = data.X.numpy(force=True)
    mean = sum(weight * one.predictive(rows)[0] for one, weight in few)
    probs = np.asarray(mean, dtype=np.float64)
    return torch.arange(probs.shape[1]).repeat_interleave(len(rows)), probs.T


def _quantiles(few: Sequence[tuple[Posterior, float]], data: Data) -> tuple[Tensor, FloatArray]:
    """Draw y and keep ``N_VALUES`` quantiles of each row, with the outputs in equal ranks."""
    rows, known = data.X.numpy(force=True), few[0][0].model.leaf.known(data.y)
    drawn, weight = [], []
    for number, (one, share) in enumerate(few):
        y = np.asarray(sample_y(one.model, one.each(), rows, number, known), dtype=np.float64)
        drawn.append(y)
        weight.append(np.full(len(y), share / len(y)))
    every, of_draw = np.concatenate(drawn), np.concatenate(weight)
    order = every.argsort(axis=0, kind="stable")
    ends = of_draw[order].cumsum(axis=0)
    levels = (np.arange(N_VALUES) + 0.5) / N_VALUES
    place = (ends[None] < levels.reshape(-1, *([1] * ends.ndim))).sum(axis=1)
    chosen = np.take_along_axis(order, np.minimum(place, len(every) - 1), axis=0)
    values = np.take_along_axis(every, chosen, axis=0)
    flat = torch.as_tensor(values.reshape(-1, *values.shape[2:])).to(data.X)
    return flat, np.full(values.shape[:2], 1 / N_VALUES)
