"""End-to-end trees (E2EDT; Hehn, Kooij and Hamprecht, 2020): greedy growth and training by EM.

All stumps of a level are fitted in one batch (section 2.5). Each has two leaves with equal initial
values. The E-step is eq. 10 with two leaves, the M-step eq. 13 and 14. Each node has its own
minibatches and Adam state, because nodes with several minibatches take more steps per epoch than
others. A stump that sends all rows one way has failed and is refitted from another start. Splits
are accessed through :class:`~bayestree.models.splits.StumpSplit` only, so networks and hyperplanes
share the code. The whole tree is then trained by :class:`bayestree.inference.Em`.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import torch
from pydantic import InstanceOf
from torch import Tensor

from bayestree._utils.parameters import (
    ByName,
    Count,
    Inference,
    Model,
    NonNegative,
    ParameterError,
    Positive,
    Size,
    declare,
)
from bayestree.diagnostics.polytopes import Reach
from bayestree.estimators._base import BaseTree
from bayestree.estimators._classifier import TreeClassifier
from bayestree.estimators._images import check_image
from bayestree.estimators._leaf_families import NumericFamily, ShareFamily
from bayestree.estimators._numeric import NumericRegressor
from bayestree.estimators._parameters import (
    INTERCEPT_SCALE,
    Depth,
    Hardware,
    Limits,
    Precision,
    Prediction,
    RandomRun,
    Subsets,
    WarmStart,
)
from bayestree.estimators._stages import StagedTree
from bayestree.fitted.rows import TrainingRows
from bayestree.fitted.scaling import UnitRule
from bayestree.inference import Data, Em, Growth, Posterior, Stage, Svi
from bayestree.inference.splitters.protocol import FittedSplit, padded
from bayestree.inference.training import at_prior_mean, check_counts
from bayestree.literature._feature_subsets import RandomFeatures, RandomPatch, subset_rule
from bayestree.models import Laplace, Network, Oblique, SoftTree, Spatial, named
from bayestree.models.leaves import Leaf
from bayestree.models.priors import Flat, HyperplanePrior, Priors
from bayestree.models.sites import Sites
from bayestree.models.splits import StumpSplit
from bayestree.routing import right_given_y

DECAY, SQUARE_DECAY, EPSILON = 0.9, 0.999, 1e-8  # Adam's settings in the paper

#: Features that each node may use: (n_nodes, n_features, generator) -> bool (V, d).
FeatureMask = Callable[[int, int, torch.Generator], Tensor]


@dataclass(frozen=True)
class EndToEndSplitter:
    """Fits stumps to the log-likelihood, for ``grow(splitter=...)``."""

    split: StumpSplit
    leaf: Leaf
    #: The log-density of the hyperplanes is added to Q.
    priors: Priors = field(default_factory=lambda: Priors(hyperplane=Flat()))
    epochs: int = 20  # E-steps per stump
    steepness: float = 1.0  # gamma of the first epoch
    steepness_step: float = 0.1  # increment of gamma per epoch
    batch_size: int = 1000  # rows of a node per Adam step
    learning_rate: float = 1e-3
    attempts: int = 5  # starts before a node becomes a leaf
    min_leaf: int = 1  # a stump with fewer rows on a side has failed
    features: FeatureMask | None = None  # coefficients of other features stay at 0

    def __post_init__(self) -> None:
        check_counts(
            epochs=self.epochs,
            batch_size=self.batch_size,
            attempts=self.attempts,
            min_leaf=self.min_leaf,
        )

    @property
    def rows_per_node(self) -> int:
        return self.batch_size

    def numbers_per_row(self, n_features: int) -> int:
        return n_features

    def __call__(self, data: Data, rows: list[Tensor]) -> list[FittedSplit | None]:
        """Fit the stump of each node; None if every attempt failed."""
        found: list[FittedSplit | None] = [None] * len(rows)
        for _ in range(self.attempts):
            # Largest nodes first, as EmStumps requires.
            waiting = [i for i, split in enumerate(found) if split is None]
            waiting.sort(key=lambda i: -len(rows[i]))
            if not waiting:
                break
            stumps = self._fitted(data, [rows[i] for i in waiting])
            for node, i in enumerate(waiting):
                found[i] = self._finished(data, rows[i], stumps.node_sites(node))
        return found

    def _fitted(self, data: Data, rows: list[Tensor]) -> "EmStumps":
        absent = None
        if self.features is not None:
            seed = int(torch.randint(2**62, ()))  # from the global stream, seeded by the caller
            generator = torch.Generator().manual_seed(seed)
            absent = ~self.features(len(rows), data.X.shape[1], generator).to(data.X.device)
        stumps = EmStumps(self, data, rows, absent)
        for epoch in range(self.epochs):
            stumps.epoch(self.steepness + epoch * self.steepness_step)
        return stumps

    @torch.no_grad()
    def _finished(self, data: Data, rows: Tensor, sites: dict[str, Tensor]) -> FittedSplit | None:
        """Return the hard split of a node, or None if it has failed."""
        right = self.split.log_odds(sites, data.X[rows])[:, 0] > 0
        n_right = int(right.sum())
        if min(n_right, len(rows) - n_right) < self.min_leaf:
            return None
        statistics = self.leaf.statistics(data.y[rows], data.weights[rows]).double()
        gain = self.leaf.criterion.hard_gain(statistics, right)
        return FittedSplit({name: site[0] for name, site in sites.items()}, right, gain)


class _StumpBatch(NamedTuple):
    """m rows of each of V nodes; smaller nodes are padded with rows of weight 0."""

    X: Tensor  # (V, m, d)
    y: Tensor  # (V, m), or more dimensions for leaves that regress on the features
    weights: Tensor  # (V, m)
    statistics: Tensor  # (V, m, c): weighted sufficient statistics of the leaves
    share: Tensor  # (V, 1): share of each node's rows in this batch


class EmStumps:
    """Parameters of V stumps during EM.

    ``rows`` are the row numbers of each node, the largest nodes first; ``absent`` (V, d) marks
    coefficients of linear splits that are fixed at 0.
    """

    def __init__(
        self,
        settings: EndToEndSplitter,
        data: Data,
        rows: list[Tensor],
        absent: Tensor | None = None,
    ) -> None:
        self.split, self.leaf, self.priors = settings.split, settings.leaf, settings.priors
        self.data, self.rows, self.batch_size = data, rows, settings.batch_size
        self.sites = self.split.start(len(rows), data.X.shape[1], data.X)
        self.absent = absent
        if absent is not None:
            self._mask_start(absent)
        self.adam = NodeAdam(self.sites, settings.learning_rate)
        empty = self.leaf.statistics(data.y[:0], data.weights[:0])
        self.leaves = self._estimate(empty.new_zeros(len(rows), 2, empty.shape[1]))
        self.whole = self._gather(rows) if len(rows[0]) <= self.batch_size else None

    def node_sites(self, node: int) -> dict[str, Tensor]:
        """Return sites of one node, in the shape of a tree with one split."""
        return {name: value[node : node + 1] for name, value in self.sites.items()}

    def epoch(self, steepness: float) -> None:
        """Take one E-step on all rows of every node, and one M-step on their minibatches."""
        e_step = {name: value.clone() for name, value in self.sites.items()}
        batches = self._batches() if self.whole is None else iter([self.whole])
        sums = self._step(next(batches), None, steepness)  # the first contains all nodes
        for batch in batches:
            part = self._step(batch, e_step, steepness)
            sums[: len(part)] += part
        self.leaves = self._estimate(sums)

    def _step(self, batch: _StumpBatch, e_step: Sites | None, steepness: float) -> Tensor:
        """Take a gradient step on Q for the first nodes; their leaf statistics (V, 2, c).

        ``e_step`` are the parameters of the E-step, None if they have not changed since.
        """
        n_active = len(batch.X)
        active = {name: v[:n_active].requires_grad_() for name, v in self.sites.items()}
        odds = self.split.node_log_odds(active, batch.X)
        with torch.no_grad():
            before = odds
            if e_step is not None:
                before = self.split.node_log_odds(_first(e_step, n_active), batch.X)
            leaves = _first(self.leaves, n_active)
            # With h = P(right | x, y) of the E-step, Q = sum w [h log q + (1 - h) log(1 - q)] for
            # q = sigmoid(gamma odds), so dQ/d odds = w gamma (h - q).
            left, right = self.leaf.node_log_density(leaves, batch.y).unbind(1)
            went_right = right_given_y(steepness * before, left, right)[0].sigmoid_()
            slope = steepness * (went_right - (steepness * odds).sigmoid_())
        odds.backward(-slope * batch.weights / batch.share)
        prior = self._log_prior(active)
        if prior.requires_grad:
            (-prior).backward()
        self.adam.step(active)
        if self.absent is not None:
            self.sites["hyperplane"].masked_fill_(self.absent.unsqueeze(1), 0.0)
        to_right = torch.bmm(went_right.unsqueeze(1), batch.statistics).squeeze(1)
        return torch.stack((batch.statistics.sum(1) - to_right, to_right), 1)

    def _log_prior(self, sites: Sites) -> Tensor:
        complete = {**sites, **at_prior_mean(self.priors.hyperplane, sites)}
        first, *others = self.split.log_priors(self.priors, complete).values()
        return sum(others, start=first)

    def _mask_start(self, absent: Tensor) -> None:
        """Set absent coefficients to 0 and project the start back onto the unit sphere."""
        if "hyperplane" not in self.sites:
            raise ValueError("features needs a linear split, such as Oblique().")
        self.sites["hyperplane"].masked_fill_(absent.unsqueeze(1), 0.0)
        square = self.sites["hyperplane"].square().sum(-1) + self.sites["intercept"].square()
        self.sites["hyperplane"] /= square.sqrt().unsqueeze(-1)
        self.sites["intercept"] /= square.sqrt()

    def _estimate(self, sums: Tensor) -> dict[str, Tensor]:
        """Estimate sites (V, 2, ...) of the leaves from sums (V, 2, c) of statistics (eq. 13)."""
        flat = self.leaf.estimate(sums.flatten(0, 1))
        return {name: value.unflatten(0, sums.shape[:2]) for name, value in flat.items()}

    def _batches(self) -> Iterator[_StumpBatch]:
        """Yield an epoch of shuffled minibatches; later ones contain only the first nodes."""
        parts = []
        for rows in self.rows:
            order = rows[torch.randperm(len(rows), device=rows.device)]
            parts.append(order.tensor_split(-(-len(rows) // self.batch_size)))
        for step in range(len(parts[0])):
            yield self._gather([part[step] for part in parts if step < len(part)])

    def _gather(self, parts: list[Tensor]) -> _StumpBatch:
        index, present = padded(parts)
        flat = self.data.take(index.flatten())
        weights = flat.weights.view(index.shape) * present
        total = weights.new_tensor([len(rows) for rows in self.rows[: len(parts)]])
        return _StumpBatch(
            flat.X.view(*index.shape, -1),
            flat.y.unflatten(0, index.shape),
            weights,
            self.leaf.statistics(flat.y, weights.flatten()).view(*index.shape, -1),
            present.sum(1, keepdim=True) / total.unsqueeze(1),
        )


class NodeAdam:
    """Adam with a separate step count per node; changes ``sites`` (nodes first) in place."""

    def __init__(self, sites: Sites, learning_rate: float) -> None:
        self.sites = sites
        self.rate = learning_rate
        self.mean = {name: torch.zeros_like(value) for name, value in sites.items()}
        self.square = {name: torch.zeros_like(value) for name, value in sites.items()}
        first = next(iter(sites.values()))
        self.steps = first.new_zeros(len(first))

    @torch.no_grad()
    def step(self, active: Sites) -> None:
        """Update the first nodes by the gradients of ``active``."""
        n_active = len(next(iter(active.values())))
        self.steps[:n_active] += 1
        steps = self.steps[:n_active]
        for name, moving in active.items():
            if moving.grad is None:
                continue
            mean, square = self.mean[name][:n_active], self.square[name][:n_active]
            mean.lerp_(moving.grad, 1 - DECAY)
            square.mul_(SQUARE_DECAY).addcmul_(moving.grad, moving.grad, value=1 - SQUARE_DECAY)
            shape = (-1,) + (1,) * (mean.ndim - 1)
            first = (1 - DECAY**steps).view(shape)
            second = (1 - SQUARE_DECAY**steps).view(shape)
            change = (mean / first) / ((square / second).sqrt_() + EPSILON)
            self.sites[name][:n_active].sub_(change, alpha=self.rate)


def _first(sites: Sites, count: int) -> dict[str, Tensor]:
    return {name: value[:count] for name, value in sites.items()}


@declare
class EndToEndTraining(RandomRun, Precision, Subsets, Limits, Depth):
    """Parameters that end-to-end trees share with forests of them."""

    max_depth = 8
    min_rows = 2.0
    min_leaf = 1
    min_gain = 3.0

    epochs: Annotated[
        Count,
        Inference(
            "E-steps of each stump. With few rows, each includes one step of Adam. For many "
            "features, few epochs here and more refine_epochs generalise better. The paper uses "
            "20 or more, with a learning_rate of 0.001 and a steepness_step of 0.1."
        ),
    ] = 60
    refine_epochs: Annotated[
        Size | None,
        Inference(
            "E-steps of the whole tree, by default as many as epochs (in a forest, three times as "
            "many); 0 keeps the grown tree."
        ),
    ] = None
    steepness: Annotated[Positive, Inference("Steepness gamma in the first epoch.")] = 1.0
    steepness_step: Annotated[
        NonNegative,
        Inference(
            "Increase of gamma after each epoch; the whole tree continues from the gamma that its "
            "stumps reached."
        ),
    ] = 0.03
    batch_size: Annotated[Count, Inference("_StumpBatch in a step of Adam.")] = 1000
    learning_rate: Annotated[
        Positive,
        Inference(
            "Learning rate of Adam. The initial hyperplanes have norm 1. Lower it for many rows, "
            "because an epoch then has many steps."
        ),
    ] = 0.01
    attempts: Annotated[
        Count,
        Inference(
            "Maximum number of starts of a stump that sends all rows to one side, before its node "
            "becomes a leaf."
        ),
    ] = 5
    scaling: Annotated[
        Literal["variance", "standard", "common"],
        Model(
            "Units of the features in the fit: mean 0 and variance 1, as in the paper; the same, "
            "but units of at least a sixth of the range; or one unit for all."
        ),
    ] = "variance"


@declare
class BaseEndToEndTree(WarmStart, EndToEndTraining, Hardware, Prediction, StagedTree):
    """Grow and train an end-to-end tree; classifier and regressor add y."""

    order: Annotated[
        Literal["level", "best"],
        Inference(
            "Grow level by level, and remove the splits with the smallest gain until max_leaves "
            "leaves remain; or always split the leaf with the largest gain."
        ),
    ] = "level"
    leaf: Any
    split: Annotated[
        Literal["oblique"] | InstanceOf[Network],
        Model("f(x): linear, or a torch module for each node."),
    ] = "oblique"
    l1: Annotated[
        NonNegative,
        Model(
            "Rate of a Laplace prior on the coefficients, in nats: sparser splits, which "
            "generalise better with few rows or many features. The paper has no such prior."
        ),
    ] = 0.0
    spatial: Annotated[
        NonNegative,
        Model(
            "Strength lambda of the smoothness of each split's coefficients as an image (eq. 15)."
        ),
    ] = 0.0
    inference: Annotated[
        Literal["em", "svi"] | Annotated[InstanceOf[Stage], ByName({"em": Em, "svi": Svi})],
        Inference(
            "'svi' gives a variational posterior of splits and leaves at the final steepness, "
            "starting from the tree of EM: a Bayesian oblique tree. Or a method with its own "
            "settings and defaults, used as it is, such as bayestree.inference.Svi(epochs=20)."
        ),
    ] = "em"
    n_draws: Annotated[Count, Inference("Posterior draws of 'svi'.")] = Svi.n_draws

    validation_fraction = 0.0
    pipelines: ClassVar[Mapping[str, tuple[type[Stage], ...]]] = {
        "em": (Growth, Em),
        "svi": (Growth, Em, Svi),
    }
    passed_on: ClassVar[Mapping[type[Stage], Mapping[str, str]]] = {
        Growth: {"order": "order"},
        Em: {name: name for name in ("steepness_step", "batch_size", "learning_rate")},
        Svi: {},
    }

    derived: ClassVar[Mapping[type[Stage], tuple[str, ...]]] = {
        Growth: ("steepness_step", "batch_size", "learning_rate"),  # of the stumps
        Em: ("refine_epochs",),
    }

    def _stages(self) -> list[Stage]:
        """Return the stages; EM continues from the steepness that was reached."""
        epochs = self.epochs if self.refine_epochs is None else self.refine_epochs
        subsets = (self.max_features, self.patch_size) != (None, None)
        first = self._first_steepness(self._steepness_of_stumps())
        reached = {"epochs": epochs, "steepness": first}
        settings: dict[str, Any] = {} if isinstance(self.inference, Em) else reached
        return [
            replace(stage, keep_zeros=stage.keep_zeros or subsets, **settings)
            if isinstance(stage, Em)
            else stage
            for stage in super()._stages()
            if not isinstance(stage, Em) or settings.get("epochs", stage.epochs)
        ]

    def _steepness_of_stumps(self) -> float:
        return self.steepness + self.epochs * self.steepness_step

    def _weights_are_counts(self) -> bool:
        return self._stages()[-1].draws is not None

    def _check_combination(self, model: SoftTree) -> None:
        linear = {"l1": 0.0, "spatial": 0.0, "max_features": None, "patch_size": None}
        given = {name: getattr(self, name) for name in linear}
        stages = self._stages()
        only = any(stage.linear_only for stage in stages)
        if self.split != "oblique" and (only or given != linear):
            raise ValueError(
                "l1, spatial, max_features, patch_size and inference='svi' need split='oblique', "
                "because a network has no coefficients for features; got "
                f"{given | {'inference': self.inference}} with {self.split!r}."
            )
        if self._subsets() is not None and not all(stage.keeps_zeros for stage in stages[1:]):
            raise ValueError(
                "max_features and patch_size fix coefficients at 0, but posterior draws are never "
                "exactly 0; use inference='em', or all features."
            )
        if self.l1 and self.spatial:
            raise ValueError(
                f"l1 and spatial are two priors of the same coefficients, got {self.l1} and "
                f"{self.spatial}: leave one at 0."
            )
        if self.spatial or self.image_shape is not None:
            check_image(self.image_shape, self.n_features_in_, f"spatial={self.spatial}")
        if model.leaf.regresses and self.split != "oblique":
            raise ParameterError(
                f"leaf={self.leaf!r} needs split='oblique'; use leaf='constant' with the network "
                f"{self.split!r}."
            )
        super()._check_combination(model)

    def _subsets(self) -> RandomFeatures | RandomPatch | None:
        """Return the rule for the features that each split may use; None for all of them."""
        n_features = len(self._used) if self._in_place() else int(self._used.sum())
        return subset_rule(n_features, self.max_features, self.image_shape, self.patch_size)

    def _model(self, leaf: Leaf) -> SoftTree:
        prior: HyperplanePrior | None = None
        if self.l1:
            prior = Laplace(self.l1, INTERCEPT_SCALE)
        elif self.spatial and self.image_shape is not None:
            height, width = self.image_shape
            prior = Spatial(self.spatial, (height, width))
        return named.end_to_end(leaf, prior=prior, split=self._split())

    def _split(self) -> StumpSplit:
        return Oblique() if isinstance(self.split, str) else self.split

    def _in_place(self) -> bool:
        return self.image_shape is not None or isinstance(self.split, Network)

    def _unit_rule(self) -> UnitRule:
        return self.scaling

    def _work(self, n_rows: int, n_features: int) -> int:
        return min(n_rows, self.batch_size) * n_features

    def _grow(self, growth: Stage, model: SoftTree, data: Data, **common: Any) -> Posterior:
        splitter = EndToEndSplitter(
            self._split(),
            model.leaf,
            model.priors,
            epochs=self.epochs,
            steepness=self.steepness,
            steepness_step=self.steepness_step,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            attempts=self.attempts,
            min_leaf=self.min_leaf,
            features=self._subsets(),
        )
        found = super()._grow(growth, model, data, splitter=splitter, **common)
        return replace(found, model=found.model.with_(steepness=self._steepness_of_stumps()))

    def _hardened(
        self, posterior: Posterior, rows: TrainingRows, data: Data
    ) -> tuple[Any, Reach | None]:
        # Only linear splits have polytopes and diagnostics.
        base = StagedTree if self.split == "oblique" else BaseTree
        return base._hardened(self, posterior, rows, data)


@declare
class EndToEndTreeClassifier(TreeClassifier, BaseEndToEndTree):
    """Oblique decision tree, grown and then trained as a whole by EM.

    Hehn, Kooij and Hamprecht, "End-to-End Learning of Decision Trees and Forests" (IJCV, 2020).
    Splits are soft during the fit: a row goes right with probability sigmoid(gamma f(x)). EM
    maximises the log-likelihood (eq. 4) of each stump and then of the whole tree, while the
    steepness gamma rises until the tree is nearly deterministic. Without posterior draws, the
    deterministic tree predicts.

    {parameters}

    {attributes}
    tree_ : Tree
        The deterministic tree, in the units of the data.
    posterior_ : Posterior
        Its soft form, on the standardised features; ``stats["log_likelihood"]`` by epoch of the
        whole tree.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bayestree import EndToEndTreeClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = EndToEndTreeClassifier(max_depth=3, learning_rate=0.05, random_state=0).fit(X, y)
    >>> bool(clf.score(X, y) > 0.9)
    True
    """

    leaf: ShareFamily = "constant"


@declare
class EndToEndTreeRegressor(NumericRegressor, BaseEndToEndTree):
    """Oblique regression tree, grown and then trained as a whole by EM.

    Like :class:`EndToEndTreeClassifier`, with leaves of numbers: EM maximises the likelihood of y
    as a mixture of the leaves, weighted by the probabilities of the paths.

    {parameters}

    {attributes}
    tree_ : Tree
        The deterministic tree, in the units of the data; with linear leaves its ``slope`` is set.
    posterior_ : Posterior
        Its soft form, on standardised features and standardised y;
        ``stats["log_likelihood"]`` by epoch of the whole tree.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from bayestree import EndToEndTreeRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> reg = EndToEndTreeRegressor(max_depth=2, epochs=30, random_state=0).fit(X, y)
    >>> low, high = reg.predict_interval(X, 0.9)
    """

    learning_rate = 0.05
    min_leaf = 10

    leaf: NumericFamily = "constant"
