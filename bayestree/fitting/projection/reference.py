"""The predictions of a posterior at training rows, which shorter trees are to follow."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from bayestree._utils.arrays import FloatArray, IntArray
from bayestree.inference.data import Data
from bayestree.inference.pointwise import sample_y
from bayestree.inference.posterior import Posterior
from bayestree.models.leaves import Leaf
from bayestree.routed_tree import RowSource

MOST_DRAWS = 50  # of all posteriors together
N_VALUES = 10  # of y that stand for the distribution of a number
TINY = float(np.finfo(np.float64).tiny)
MOST_ROWS = 2_000  # on which splits are projected and trees compared


def some_rows(rows: RowSource, data: Data) -> tuple[Data, FloatArray]:
    """Select rows on the CPU, evenly if they are many, on the scale of the draws and in units."""
    some = np.arange(0, len(rows), -(-len(rows) // MOST_ROWS))
    return data.take(torch.as_tensor(some)).to(torch.empty(0, dtype=data.X.dtype)), rows[some]


@dataclass(frozen=True, eq=False)
class Reference:
    """The posterior predictive distribution of y at n rows, as A values with probabilities.

    Leaves of numbers share a ``scale``: the printed tree predicts means, and with a scale for each
    leaf, a few rows would decide alone where a leaf of a small scale begins.
    """

    leaf: Leaf
    data: Data  # the rows, with y as responses
    values: Tensor  # responses, (A n, ...): the first value of each row, then the second one, ...
    share: FloatArray  # their probabilities, (A, n)
    mean: FloatArray  # expected y, or probabilities of the classes, (n,), (n, q) or (n, C)
    scale: Tensor  # root of the mean predictive variance, of each output
    sums: Tensor  # expected statistics of the leaf, times the weights of the rows, (n, S)

    @classmethod
    def of(cls, mixture: Sequence[tuple[Posterior, float]], leaf: Leaf, data: Data) -> "Reference":
        """Predict y by a mixture of posteriors: each class, or quantiles of draws."""
        data = data.for_leaf(leaf)
        most = -(-MOST_DRAWS // len(mixture))
        used = [(one, weight) for one, weight in mixture if weight > 0]
        few = [(one.thinned(max(1, most // one.n_chains)), weight) for one, weight in used]
        known = leaf.known(data.y)
        if leaf.n_classes:
            values, share = _classes(few, data)
            mean, scale = share.T, data.X.new_ones(())
        else:
            values, share = _quantiles(few, data, known)
            each = values.double().reshape(*share.shape, *values.shape[1:])
            mean, weights = each.mean(dim=0).numpy(), data.weights.double().numpy()
            variance = np.average(each.var(dim=0).numpy(), axis=0, weights=weights)
            scale = torch.as_tensor(np.sqrt(variance)).to(data.X)
        if known is not None:
            values = torch.column_stack((values, known.repeat(len(share))))
        values = leaf.response(data.X.repeat(len(share), 1), values)
        parts = zip(values.split(len(data.X)), torch.as_tensor(share).to(data.weights), strict=True)
        sums = sum(leaf.statistics(one, data.weights * part) for one, part in parts)
        return cls(leaf, data, values, share, mean, scale, torch.as_tensor(sums))

    def take(self, rows: IntArray) -> "Reference":
        """Return the predictions of some rows."""
        n_rows, n_values = len(self.data.X), len(self.share)
        each = torch.as_tensor((np.arange(n_values)[:, None] * n_rows + rows).ravel())
        own = torch.as_tensor(rows)
        return replace(
            self,
            data=self.data.take(own),
            values=self.values[each],
            share=self.share[:, rows],
            mean=self.mean[rows],
            sums=self.sums[own],
        )

    def following(self, place: IntArray, n_leaves: int) -> "Reference":
        """Move the predictions towards y to the extent that the rows of the leaves contradict them.

        The mean differences of the leaves are shrunk as by James and Stein (1961): to a share of
        1 - df / chi^2, or 0. Soft splits understate a clean step, whereas the predictions for noisy
        rows are better than their y. Other families keep the statistics of y itself, since y may
        be something else than what is predicted, such as a censored time.
        """
        leaf = self.leaf
        counted = leaf.statistics(self.data.y, self.data.weights)
        if not (leaf.averages or leaf.regresses):
            return replace(self, sums=counted)
        y, weights = leaf.target(self.data.y).numpy(), self.data.weights.double().numpy()
        seen = np.eye(leaf.n_classes)[y] if leaf.n_classes else y.reshape(self.mean.shape)
        gap = (seen - self.mean).reshape(len(y), -1)
        expected = self.mean if leaf.n_classes else gap**2  # the first as in Pearson's statistic
        chi_square, df = 0.0, 0
        for one in range(n_leaves):
            own = weights[place == one]
            if not own.sum():
                continue
            mean = own @ gap[place == one] / own.sum()
            variance = own @ expected[place == one] / own.sum()
            n_rows = own.sum() ** 2 / (own**2).sum()
            # A single row of a class that was not expected says little about other leaves.
            least = 1 / n_rows if leaf.n_classes else TINY
            chi_square += n_rows * float((mean**2 / np.maximum(variance, least)).sum())
            df += len(mean) - bool(leaf.n_classes)
        share = max(0.0, 1.0 - df / max(chi_square, TINY))
        return replace(
            self,
            mean=self.mean + share * (seen - self.mean),
            sums=torch.lerp(self.sums, counted, share),
        )

    def of_leaves(self, place: IntArray, n_leaves: int) -> Tensor:
        """Add the statistics of the rows in each leaf, (L, S)."""
        found = self.sums.new_zeros(n_leaves, self.sums.shape[1])
        return found.index_add_(0, torch.as_tensor(place), self.sums)

    def estimate(self, sums: Tensor) -> Mapping[str, Tensor]:
        """Estimate the parameters of leaves from their sums, with the common scale."""
        sites = self.leaf.estimate(sums)
        if "leaf_scale" in sites:
            sites = {**sites, "leaf_scale": self.scale.expand_as(sites["leaf_scale"])}
        return sites

    def expected_log_density(self, sums: Tensor) -> FloatArray:
        """Expect log p(y | leaf), (n, L), of leaves with these sums."""
        found = self.leaf.log_density(self.estimate(sums), self.values)
        each = found.double().numpy(force=True).reshape(*self.share.shape, len(sums))
        return np.einsum("an,anl->nl", self.share, each)

    def log_density(self, sums: Tensor, place: IntArray, most: float) -> FloatArray:
        """Compute log p(y_n | leaf) of the rows, (n,), in leaves of at most so many slopes."""
        sites = dict(self.estimate(sums))
        values = self.leaf.sparse_values(sums, most)
        if "slope" in values:
            name = "leaf_logit" if self.leaf.n_classes else "leaf_mean"
            level = np.log(values["value"]) if self.leaf.n_classes else values["value"]
            like = sites[name]
            sites[name] = torch.as_tensor(level).to(like)
            sites["leaf_slope"] = torch.as_tensor(values["slope"]).to(like)
        found = self.leaf.log_density(sites, self.data.y)
        each = found.gather(1, torch.as_tensor(place).unsqueeze(1))[:, 0]
        return each.double().numpy(force=True)


def _classes(few: Sequence[tuple[Posterior, float]], data: Data) -> tuple[Tensor, FloatArray]:
    rows = data.X.numpy(force=True)
    mean = sum(weight * one.predictive(rows)[0] for one, weight in few)
    probs = np.asarray(mean, dtype=np.float64)
    return torch.arange(probs.shape[1]).repeat_interleave(len(rows)), probs.T


def _quantiles(
    few: Sequence[tuple[Posterior, float]], data: Data, known: Tensor | None
) -> tuple[Tensor, FloatArray]:
    """Draw y and keep ``N_VALUES`` quantiles of each row, with the outputs in equal ranks.

    Of few draws of the parameters, such as a point estimate, each draws y several times.
    """
    rows = data.X.numpy(force=True)
    each = [[*one.each()] for one, _ in few]
    repeats = max(1, MOST_DRAWS // sum(map(len, each)))
    drawn, weight = [], []
    for number, (one, share) in enumerate(few):
        draws = each[number] * repeats
        y = np.asarray(sample_y(one.model, draws, rows, number, known), dtype=np.float64)
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
