"""Inference methods as classes: their settings, and their role as stages of a fit.

The fields of a class are its settings, with defaults, constraints and descriptions (see
``bayestree._utils.parameters``), and :meth:`Stage.fit` is what it does. The function of the same
name, and the parameters that an estimator passes on, follow from the class.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import FrozenInstanceError, dataclass
from typing import Annotated, Any, ClassVar, Self

from bayestree._utils.parameters import (
    PLACEHOLDER,
    Count,
    Inference,
    Positive,
    Share,
    check_parameters,
    declare,
    entries,
    parameters_of,
)
from bayestree._utils.state import InUsualState
from bayestree._utils.wording import written
from bayestree.inference.data import Data
from bayestree.inference.posterior import Posterior
from bayestree.inference.training import calibrated
from bayestree.models.soft_tree import SoftTree

HEADER = "Parameters\n----------\n"
FIRST = {  # parameters that most methods share, and that their docstrings need not describe
    "model": "SoftTree\n    Its topology must be the topology of ``init``.",
    "data": "Data\n    n rows.",
    "init": "Posterior\n    Start: the result of another method, with the sites of ``model``.",
}
LAST = {
    "random_state": "int, RandomState or Generator, optional",
    "progress": "bool\n    Show a progress bar.",
}


@dataclass(frozen=True)
class GrowthLimits:
    """Limits of a tree that is grown.

    Parameters
    ----------
    max_depth : int
        Maximum number of splits on a path.
    max_leaves : int, optional
        Maximum number of leaves; the splits of smallest gain are removed first.
    min_rows : float
        Minimum total weight of the rows of a node that is split.
    min_leaf : int
        Minimum number of rows on each side of a split.
    min_gain : float
        Minimum gain of a split in nats (N times the mutual information).
    """

    max_depth: int = 4
    max_leaves: int | None = None
    min_rows: float = 20
    min_leaf: int = 10
    min_gain: float = 2.0


class Settings(InUsualState):
    """Immutable settings that are compared by value; a subclass is decorated by ``declare``."""

    def chosen(self, *names: str) -> dict[str, Any]:
        """Return these settings by name, or all of them."""
        return {name: getattr(self, name) for name in names or parameters_of(type(self))}

    def check(self, model: SoftTree) -> None:
        """Refuse invalid settings, and a model that the method cannot fit, before any work."""
        check_parameters(self)

    def __setattr__(self, name: str, value: object) -> None:
        if name in vars(self) or name not in parameters_of(type(self)):
            raise FrozenInstanceError(
                f"cannot set {name!r} of {self!r}; use dataclasses.replace to change a setting."
            )
        super().__setattr__(name, value)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.chosen() == self.chosen()

    def __hash__(self) -> int:
        return hash((type(self), *self.chosen().items()))

    def __repr__(self) -> str:
        known = parameters_of(type(self))
        changed = [f"{n}={written(v)}" for n, v in self.chosen().items() if v != known[n].default]
        return f"{type(self).__name__}({', '.join(changed)})"


class Stage(Settings):
    """An inference method with its settings: one stage of a fit.

    A subclass states its settings as fields, and overrides :meth:`fit`, or :meth:`run` where it
    needs more than the model and a start.

    Attributes
    ----------
    in_estimators : mapping
        Defaults in estimators, where they differ from the defaults of a call.
    refines : bool
        Whether the method continues from the result of another.
    calibrates : bool
        Whether it centres the prior of the leaves on that result.
    linear_only : bool
        Whether it needs splits with hyperplanes.
    keeps_zeros : bool
        Whether it can keep coefficients at 0.
    keeps_signs : bool
        Whether it can keep the signs of coefficients that monotonicity constraints demand.
    keeps_groups : bool
        Whether it can keep each expert within one group of features.
    samples_topology : bool
        Whether its draws have topologies of their own, whatever tree it starts from.
    several : bool
        Whether the modes of a fit are fitted at once, by :meth:`run_several`.
    """

    in_estimators: ClassVar[Mapping[str, Any]] = {}
    refines: ClassVar[bool] = True
    calibrates: ClassVar[bool] = True
    linear_only: ClassVar[bool] = True
    keeps_zeros: ClassVar[bool] = False
    keeps_signs: ClassVar[bool] = False
    keeps_groups: ClassVar[bool] = False
    samples_topology: ClassVar[bool] = False
    several: ClassVar[bool] = False

    @property
    def default_steepness(self) -> float:
        """Steepness of the splits to which a fit that ends with this method is annealed by default.

        A point estimate may be steep; draws should vary smoothly.
        """
        return 6.0

    def steepness_for(self, n_classes: int) -> float:
        """Return the steepness by default, for classes or for numbers (``n_classes`` 0)."""
        return self.default_steepness

    @property
    def default_modes(self) -> int:
        """Number of trees that an estimator fits by default.

        A single fit by SVI knows one good tree among many; a chain is long.
        """
        return 1

    def default_depth(self, n_classes: int) -> int:
        """Return the maximum depth of the trees that an estimator fits by default.

        With more classes than leaves, the tree is two levels deeper than one with a leaf for each.
        """
        depth = GrowthLimits.max_depth
        return depth if n_classes <= 2**depth else (n_classes - 1).bit_length() + 2

    @property
    def in_chunks(self) -> bool:
        """Whether the method goes through the rows in chunks, so that they may stay in a file."""
        return False

    @property
    def needs_double(self) -> bool:
        """Whether the method needs double precision."""
        return False

    @property
    def draws(self) -> tuple[int, int] | None:
        """Number of chains, and of draws from each; None for a point estimate."""
        return None

    @classmethod
    def from_keywords(cls, keywords: Mapping[str, Any]) -> Self:
        """Create the method from settings that an estimator passes on; None selects defaults."""
        given = {name: value for name, value in keywords.items() if value is not None}
        return cls(**{**cls.in_estimators, **given})

    def check(self, model: SoftTree) -> None:
        super().check(model)
        if any(model.monotone) and not self.keeps_signs:
            raise ValueError(
                f"{self!r} cannot keep predictions monotone in features: use growth, MAP, or SVI "
                "with the package's own guide and covariance='diagonal', each with engine='direct'."
            )
        if model.groups and not self.keeps_groups:
            raise ValueError(
                f"{self!r} cannot keep facets within groups of columns (interaction_constraints): "
                "use inference='vi', 'map', 'grow', or 'svi' with guide='polytope' and "
                "covariance='diagonal', the last and 'map' with engine='direct'."
            )
        prior = model.priors.hyperplane
        if model.groups and not prior.implements("absent_log_prob"):
            raise ValueError(
                "interaction_constraints needs a prior on hyperplanes that can leave out columns, "
                f"got {prior}: use prior='inverse-gamma' or 'laplace'."
            )

    def fit(self, *args: Any, **keywords: Any) -> Posterior:
        """Fit a model to rows: ``fit(model, data, *, init, random_state, progress)``."""
        raise NotImplementedError

    def run(
        self, found: Posterior, data: Data, *, validation: Data | None = None, **common: Any
    ) -> Posterior:
        """Continue from the result of the previous stage.

        ``validation`` are held-out rows, for methods that use them; ``common`` are ``random_state``
        and ``progress``, as for :meth:`fit`.
        """
        model = calibrated(found, data) if self.calibrates else found.model
        start: dict[str, Any] = {} if self.samples_topology else {"init": found}
        return self.fit(model, data, **start, **common)

    def run_several(self, found: Sequence[Posterior], data: Data, **common: Any) -> list[Posterior]:
        """Continue from several results; by default, from one after the other."""
        return [self.run(one, data, **common) for one in found]


@declare
class Minibatches:
    """Settings of methods that take steps of Adam on minibatches."""

    epochs: Annotated[
        Count | None,
        Inference(
            "Passes over the rows in the refinement; by default 60, but at least 1,000 and at most "
            "10,000 steps. Before another method, MAP makes three tenths of these passes."
        ),
    ] = None
    batch_size: Annotated[Count, Inference("Rows in a step of Adam.")] = 500
    learning_rate: Annotated[
        Positive,
        Inference("Maximum learning rate of the refinement, relative to a node's rms coefficient."),
    ] = 0.03
    routing_tolerance: Annotated[
        Share,
        Inference(
            "Maximum share of the likelihood of each row that a step may leave out: nodes that "
            "contribute less are not evaluated if this saves time, which it does on CPUs alone. 0 "
            "evaluates all nodes."
        ),
    ] = 0.001

    def default_epochs(self, n_rows: int) -> int:
        """Return sixty epochs, or as many as give between 1,000 and 10,000 steps."""
        per_epoch = max(1, -(-n_rows // self.batch_size))
        steps = min(max(60 * per_epoch, 1_000), 10_000)
        return max(1, round(steps / per_epoch))


def as_function(stage: type[Stage], name: str) -> Callable[..., Posterior]:
    """Return the function that runs a method with settings given as keywords.

    It has the signature of ``fit`` with the settings added, and its docstring, in which
    ``{parameters}`` is replaced by common parameters and settings.
    """
    known = parameters_of(stage)

    def function(*args: Any, **keywords: Any) -> Posterior:
        try:
            signature.bind(*args, **keywords)
        except TypeError as error:
            raise TypeError(f"{name}() {error}") from None
        settings = {setting: keywords.pop(setting) for setting in known if setting in keywords}
        return stage(**settings).fit(*args, **keywords)

    keyword = inspect.Parameter.KEYWORD_ONLY
    settings = [inspect.Parameter(n, keyword, default=p.default) for n, p in known.items()]
    of_fit = inspect.signature(stage.fit)
    own = list(of_fit.parameters.values())[1:]
    signature = of_fit.replace(parameters=own + settings)
    function.__signature__ = signature  # type: ignore[attr-defined]
    text = inspect.cleandoc(stage.fit.__doc__ or "")

    def common(kinds: Mapping[str, str]) -> str:
        names = [n for n in kinds if n in signature.parameters and f"\n{n} :" not in text]
        return "".join(f"{name} : {kinds[name]}\n" for name in names)

    text = text.replace(HEADER, HEADER + common(FIRST))
    last = common(LAST)
    stage.fit.__doc__ = text.replace(PLACEHOLDER, last.rstrip())
    function.__doc__ = text.replace(PLACEHOLDER, last + entries(stage))
    function.__module__ = stage.__module__
    function.__name__ = function.__qualname__ = name
    return function
