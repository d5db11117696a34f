"""The plan of a fit, and its task: rows that have been encoded, and what was decided about them.

The plan has the stages with all their settings, the size of the fit, and the reasons. Estimators
check what the user gives and state the task; it passes through the plan, the rules and the recipe
to the engine, and the result keeps what is needed to predict. Nothing is set in between.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

from bayestree._utils.arrays import BoolArray
from bayestree._utils.wording import counted
from bayestree.fitted.training_rows import Scaling, TrainingRows
from bayestree.fitted.tree import Mixture
from bayestree.inference import Growth, GrowthLimits, Stage
from bayestree.inference.stage import Minibatches
from bayestree.models.leaves import Leaf
from bayestree.models.priors import Flat, GammaProcess, HyperplanePrior, WeightPrior
from bayestree.tables import Encoding


class Table(NamedTuple):
    """What a plan depends on of the rows; None is not known yet."""

    n_rows: int | None = None
    n_features: int | None = None
    n_classes: int = 0  # 0 of numbers
    in_parts: bool = False  # whether the rows are copied in parts
    on_disk: bool = False  # whether they stay in a file
    several_outputs: bool = False
    in_batches: bool = False  # whether further rows may follow


@dataclass(frozen=True)
class FitPlan:
    """What a fit does.

    Attributes
    ----------
    method : str
        Its name, such as ``"vi"``, or that of the class of a method of the user.
    stages : tuple of Stage
        The methods that run one after the other, growth first, with all their settings.
    limits : GrowthLimits
        The limits of the tree.
    n_trees : int
        Number of trees, the modes of the posterior.
    n_linear : int
        How many of the trees, the last ones, have linear leaves in the place of constant ones.
    mode_weights : str
        How several trees are weighted.
    n_jobs : int, optional
        Processes for several trees.
    n_experts : int
        Maximum number of facets of a split.
    dtype : str
        The precision of the fit.
    prior, weight_prior : HyperplanePrior, WeightPrior
        The priors on the splits, before what they name of the columns is known.
    table : Table
        What was known of the rows.
    steeper : bool
        Whether the last stage is repeated with steeper splits, if its mean fits the rows worse than
        the deterministic tree.
    sparse : bool
        Whether the deterministic tree gets sparse facets.
    max_columns : int
        The maximum number of columns of these.
    predicts : str
        How the fitted estimator predicts.
    in_chunks : bool
        Whether the rows may stay in a file.
    seconds : float, optional
        CPU seconds that the fit takes, within a factor of 3 on a server of 2024; None where this
        has not been measured.
    reasons : mapping
        Why, by the name of what was decided.
    """

    method: str
    stages: tuple[Stage, ...]
    limits: GrowthLimits
    n_trees: int = 1
    n_linear: int = 0
    mode_weights: str = "equal"
    n_jobs: int | None = None
    n_experts: int = 1
    dtype: str = "float64"
    prior: HyperplanePrior = field(default_factory=Flat)
    weight_prior: WeightPrior = field(default_factory=GammaProcess)
    table: Table = field(default_factory=Table)
    steeper: bool = False
    sparse: bool = False
    max_columns: int = 0
    predicts: str = ""
    in_chunks: bool = False
    seconds: float | None = None
    reasons: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def last(self) -> Any:
        """The stage whose result is the fit."""
        return self.stages[-1]

    @property
    def samples_topology(self) -> bool:
        """Whether the draws have topologies of their own."""
        return self.last.samples_topology

    @property
    def _n_facets(self) -> int:
        return min(self.n_experts, getattr(self.last, "max_experts", None) or self.n_experts)

    @property
    def batch_size(self) -> int:
        """Rows of a step, by which threads are chosen."""
        sizes = (stage.batch_size for stage in self.stages if isinstance(stage, Minibatches))
        return max(sizes, default=Minibatches.batch_size)

    def of_one_tree(self) -> "FitPlan":
        """Return the plan of one of the trees."""
        several = ("trees", "averaged", "processes")
        reasons = {name: reason for name, reason in self.reasons.items() if name not in several}
        alone: dict[str, Any] = {"n_trees": 1, "n_linear": 0, "mode_weights": "equal"}
        return replace(self, **alone, n_jobs=None, seconds=None, reasons=reasons)

    def work(self, n_rows: int) -> int:
        """Number of values that a step processes, which determines the threads."""
        limits = self.limits
        depth = min(limits.max_depth, 60)  # larger powers could have millions of digits
        n_leaves = min(2**depth, limits.max_leaves or n_rows, n_rows // limits.min_leaf + 1)
        return min(n_rows, self.batch_size) * self.n_experts * n_leaves

    def memory(self, n_features: int) -> dict[str, int]:
        """Return lower bounds of the bytes that a new fit needs, by the setting that they follow.

        They are of the starts of the first stump, with its scores of the rows that are drawn for
        it, and of the draws of trees with a single split: ``n_features`` coefficients, an intercept
        and a weight for each expert, and 1,000 bytes for a tree itself.
        """
        found, each = {}, 4 if self.dtype == "float32" else 8
        growth, last = self.stages[0], self.last
        if isinstance(growth, Growth):
            rows = min(self.table.n_rows or 0, growth.rows_per_node) // 2  # some may be held out
            starts = growth.n_restarts * self.n_experts
            found[f"n_experts={self.n_experts}"] = each * starts * (n_features + rows)
        n_experts = self._n_facets
        chains, draws = last.draws or (1, 0)
        counts = {"n_modes": self.n_trees, "n_chains": chains}
        particles = getattr(last, "n_particles", draws)
        counts["n_particles" if particles > draws else "n_draws"] = particles
        most = max(counts, key=lambda name: counts[name])
        of_draws = math.prod(counts.values()) * each * n_experts * (n_features + 2)
        return found | {f"{most}={counts[most]}": of_draws + 1000 * self.n_trees}

    def __str__(self) -> str:
        each = {name: f"  {name:<10}{value}" for name, value in self._decisions().items()}
        lines = {"rows": self._of_rows()} | each
        why = {name: f" ({reason})" for name, reason in self.reasons.items()}
        return "\n".join(f"{line}{why.get(name, '')}" for name, line in lines.items())

    def to_json(self) -> dict[str, Any]:
        """Return the plan as values of JSON, with the stages as Python writes them."""
        return {
            "rows": self.table._asdict(),
            "method": self.method,
            "stages": [*map(repr, self.stages)],
            "trees": self.n_trees,
            "n_linear": self.n_linear,
            "mode_weights": self.mode_weights,
            "n_jobs": self.n_jobs,
            "limits": asdict(self.limits),
            "experts": self.n_experts,
            "dtype": self.dtype,
            "prior": str(self.prior),
            "weight_prior": str(self.weight_prior),
            "sparse": self.sparse,
            "predicts": self.predicts,
            "seconds": self.seconds,
            "reasons": dict(self.reasons),
        }

    def _of_rows(self) -> str:
        known = self.table
        parts = [
            counted(number, noun)
            for number, noun in ((known.n_rows, "row"), (known.n_features, "feature"))
            if number is not None
        ]
        parts += [f"{known.n_classes} classes"] * bool(known.n_classes)
        return f"Plan of a fit to {', '.join(parts)}" if parts else "Plan of a fit"

    def _decisions(self) -> dict[str, str]:
        limits = self.limits
        constant = counted(self.n_trees - self.n_linear, "tree")
        linear = counted(self.n_linear, "tree")
        kind = "logistic" if self.table.n_classes else "linear"
        found = {
            "method": self.method,
            "stages": f"\n{'':<12}".join(map(repr, self.stages)),
            "trees": str(self.n_trees),
            "averaged": f"by {self.mode_weights} weights" if self.n_trees > 1 else "",
            "processes": str(self.n_jobs or ""),
            "leaf": f"constant in {constant}, {kind} in {linear}" if self.n_linear else "",
            "depth": f"at most {limits.max_depth}",
            "leaves": "" if limits.max_leaves is None else f"at most {limits.max_leaves}",
            "facets": f"at most {self._n_facets} of a split",
            "prior": str(self.prior),
            "weights": str(self.weight_prior) if self._n_facets > 1 else "",
            "precision": self.dtype,
            "again": "with steeper splits, if these suit the rows better" if self.steeper else "",
            "tree_": f"with facets of at most {self.max_columns} columns" * self.sparse,
            "predicts": self.predicts,
            "time": "" if self.seconds is None else f"about {self.seconds:.2g} s of one core",
        }
        return {name: value for name, value in found.items() if value}


@dataclass(frozen=True, eq=False)
class Task:
    """What a fit is given."""

    #: Those of positive weight; None where rules and priors are looked at without rows.
    rows: TrainingRows | Any
    leaf: Leaf  # the family of the leaves, before its prior is calibrated
    #: The columns in use, the units of y and the classes; the units of the features too, if the fit
    #: continues another one.
    scaling: Scaling
    encoding: Encoding  # how the columns of X became features
    feature_names: tuple[str, ...] = ()  # empty for features without names
    start: Mixture | None = None  # the fit that is continued
    plan: FitPlan | Any = None  # for fits in stages
    #: Features of which values far from all others were moved near them, (d,).
    detached: BoolArray | None = None

    @property
    def used(self) -> BoolArray:
        """Features that the fit may use, shape (d,)."""
        return self.scaling.used

    @property
    def n_used(self) -> int:
        """Number of these features."""
        return int(self.used.sum())
