"""End-to-end trees and forests (E2EDT, E2EDF; Hehn, Kooij and Hamprecht, 2020)."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

from pydantic import InstanceOf
from sklearn.utils.validation import check_is_fitted

from bayestree._utils.arrays import BoolArray
from bayestree._utils.parameters import (
    ByName,
    Count,
    Inference,
    Model,
    NonNegative,
    Parameter,
    ParameterError,
    Positive,
    Size,
    declare,
    takes,
)
from bayestree._utils.user_classes import Own
from bayestree.estimators._classifier import TreeClassifier
from bayestree.estimators._data_sets import fit_files, sample_check
from bayestree.estimators._forests import ForestClassifier, ForestRegressor, IndependentForest
from bayestree.estimators._parameters import (
    Depth,
    Hardware,
    Limits,
    MeanFamily,
    NumericFamily,
    Precision,
    Prediction,
    RandomRun,
    ShareFamily,
    Subsets,
    WarmStart,
    check_image,
    in_columns,
)
from bayestree.estimators._regressor import NumericRegressor
from bayestree.estimators._tree import StagedTree
from bayestree.fitting import defaults
from bayestree.fitting.engine import HardForm, Recipe
from bayestree.fitting.plan import FitPlan, Table, Task
from bayestree.fitting.rules import Case, Rule, Rules, complaint
from bayestree.fitting.settings import prior_settings
from bayestree.inference import Data, Em, Growth, Posterior, Stage, Svi
from bayestree.literature._em_stumps import EndToEndSplitter, FeatureMask, subset_rule
from bayestree.models import Network, Oblique, SoftTree, named
from bayestree.models.priors import HyperplanePrior
from bayestree.models.splits import StumpSplit

OF_STUMPS = (
    "epochs",
    "steepness",
    "steepness_step",
    "batch_size",
    "learning_rate",
    "attempts",
    "min_leaf",
)
PENALTIES = {"l1": "laplace", "spatial": "spatial"}  # settings of files, and the priors
FINE_TUNING = 3  # times the epochs of a stump (E2EDT, section 3.5)


@declare
@takes(RandomRun, Precision, Subsets, Limits, Depth)
class EndToEndTraining:
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
    batch_size: Annotated[Count, Inference("Rows in a step of Adam.")] = 1000
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


def _needs_coefficients(case: Case) -> dict[str, Any] | None:
    """Return the parameters for hyperplanes if the splits are networks, otherwise None."""
    if case.given.split == "oblique":
        return None
    linear = {"prior": "flat", "max_features": None, "patch_size": None}
    given = {name: getattr(case.given, name) for name in linear}
    needed = given != linear or any(stage.linear_only for stage in case.plan.stages)
    return given | {"inference": case.given.inference} if needed else None


def _wrong_image(case: Case) -> str:
    """Return why the rows are no images of the given shape; empty if they are, or need not be."""
    if case.given.image_shape is None:
        return ""
    return complaint(check_image, case.given.image_shape, len(case.used), "image_shape")


def _in_place(given: Any) -> bool:
    """Return whether features keep their positions, by the parameters of a tree."""
    whole = getattr(given.prior, "couples_features", False) or isinstance(given.split, Network)
    return whole or given.image_shape is not None


def _subsets(given: Any, used: BoolArray) -> FeatureMask | None:
    """Return the rule for the features that each split may use; None for all of them."""
    n_features = len(used) if _in_place(given) else int(used.sum())
    return subset_rule(n_features, given.max_features, given.image_shape, given.patch_size)


@declare
@takes(WarmStart, EndToEndTraining, Hardware, Subsets, Limits, Depth, Prediction)
class BaseEndToEndTree(StagedTree):
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
    prior: Annotated[
        Literal["flat", "laplace", "spatial"] | Annotated[InstanceOf[HyperplanePrior], Own],
        Model(
            "Prior on the coefficients: none, as in the paper; 'laplace' for sparser splits, which "
            "generalise better with few rows or many features; 'spatial' for coefficients that are "
            "smooth as an image (eq. 15). Or a prior with its own settings, such as "
            "bayestree.models.Laplace(3.0, 10.0)."
        ),
    ] = "flat"
    inference: Annotated[
        Literal["em", "svi"] | Annotated[InstanceOf[Stage], ByName({"em": Em, "svi": Svi})],
        Inference(
            "'svi' gives a variational posterior of splits and leaves at the final steepness, "
            "starting from the tree of EM: a Bayesian oblique tree. Or a method with its own "
            "settings, such as bayestree.inference.Svi(epochs=20)."
        ),
    ] = "em"
    n_draws: Annotated[Count, Inference("Posterior draws of 'svi'.")] = Svi.n_draws

    validation_fraction = 0.0
    _rules: ClassVar[Rules] = (
        Rule(
            "split and what needs coefficients",
            _needs_coefficients,
            "prior, max_features, patch_size and inference='svi' need split='oblique', "
            "because a network has no coefficients for features; got {found} with {given.split!r}.",
        ),
        Rule(
            "features of a split",
            lambda case: complaint(_subsets, case.given, case.used),
            "{found}",
        ),
        Rule(
            "features of a split and inference",
            lambda case: (
                _subsets(case.given, case.used) is not None
                and not all(stage.keeps_zeros for stage in case.plan.stages[1:])
            ),
            "max_features and patch_size fix coefficients at 0, but posterior draws are never "
            "exactly 0; use inference='em', or all features.",
        ),
        Rule(
            "refine_epochs and Em",
            lambda case: (
                isinstance(case.given.inference, Em) and case.given.refine_epochs is not None
            ),
            "refine_epochs={given.refine_epochs} would be ignored: "
            "inference={given.inference!r} has its own epochs; set them there.",
        ),
        Rule("image_shape", _wrong_image, "{found}"),
        Rule(
            "split and leaf",
            lambda case: case.model.leaf.regresses and case.given.split != "oblique",
            "leaf={given.leaf!r} needs split='oblique'; use leaf='constant' with the network "
            "{given.split!r}.",
        ),
    )

    @classmethod
    def file_settings(cls) -> Mapping[str, Parameter]:
        """Return the settings of priors that files have beside the parameters."""
        both = prior_settings(classes=True)
        return {n: replace(both[n], default=0.0, annotation=NonNegative) for n in PENALTIES}

    @classmethod
    def with_objects(cls, given: Mapping[str, Any], _fitted: str = "", /) -> dict[str, Any]:
        """Return the parameters of a file with settings of priors in their object."""
        found = dict(given)
        asked = {PENALTIES[n]: value for n in PENALTIES if (value := found.pop(n, 0.0))}
        if len(asked) > 1:
            raise ParameterError("l1 and spatial are two priors of the same coefficients: set one.")
        for name, value in asked.items():
            usual: Any = defaults.named_prior(name, 0, found.get("image_shape"))
            found["prior"] = replace(usual, **{next(iter(vars(usual))): value})
        return found

    def _planned(self, table: Table) -> FitPlan:
        """Plan growth and EM, and then the method that is given, if it is another one."""
        given = self.inference
        epochs = self.epochs if self.refine_epochs is None else self.refine_epochs
        first = self._steepness_of_stumps()  # from which EM continues
        if self._continues():
            first = self.posterior_.model.steepness
        settings = {n: getattr(self, n) for n in ("steepness_step", "batch_size", "learning_rate")}
        refined: Any = given if isinstance(given, Em) else None
        if refined is None and epochs:
            refined = Em(epochs=epochs, steepness=first, **settings)
        stages: list[Any] = [Growth(order=self.order)]
        if refined is not None:
            subsets = (self.max_features, self.patch_size) != (None, None)
            stages.append(replace(refined, keep_zeros=refined.keep_zeros or subsets))
        if given == "svi":
            stages.append(Svi(n_draws=self.n_draws))
        elif isinstance(given, Stage) and refined is not given:
            defaults.check_refines(given, ("em", "svi"))
            asked = self.n_draws if self.n_draws != Svi.n_draws else None
            stages.append(defaults.agreed(given, "n_draws", asked))
        stages = defaults.sized(stages, table)
        leaf = self._leaf_family()
        needs_double = leaf.needs_double or any(one.needs_double for one in stages)
        dtype = defaults.precision_of(self.dtype, table.n_rows, needs_double)
        method = given if isinstance(given, str) else type(given).__name__.lower()
        reasons = {"stages": "growth by stumps of EM, with the parameters of the estimator"}
        prior = defaults.prior_of(self.get_params(deep=False), table, reasons)
        known: dict[str, Any] = {"dtype": dtype, "prior": prior, "table": table}
        known["predicts"] = defaults.predicts(self.prediction, stages[-1], 1, reasons)
        known["in_chunks"] = not leaf.regresses and all(one.in_chunks for one in stages)
        return FitPlan(method, tuple(stages), self._limits(), **known, reasons=reasons)

    def _steepness_of_stumps(self) -> float:
        return self.steepness + self.epochs * self.steepness_step

    def _model(self, task: Task) -> SoftTree:
        prior = in_columns(task.plan.prior, task.encoding, task.n_used)
        return named.end_to_end(task.leaf, prior=prior, split=self._split())

    def _split(self) -> StumpSplit:
        return Oblique() if isinstance(self.split, str) else self.split

    def _in_place(self) -> bool:
        return _in_place(self)

    def _grow(
        self,
        growth: Growth,
        model: SoftTree,
        data: Data,
        n_trees: int,
        *,
        used: BoolArray,
        **common: Any,
    ) -> list[Posterior]:
        splitter = EndToEndSplitter(
            self._split(),
            model.leaf,
            model.priors,
            features=_subsets(self, used),
            **{name: getattr(self, name) for name in OF_STUMPS},
        )
        found = growth.fit_several(model, data, n_trees, splitter=splitter, **common)
        reached = self._steepness_of_stumps()
        return [replace(one, model=one.model.with_(steepness=reached)) for one in found]

    def _recipe(self, task: Task) -> Recipe:
        found, (n_rows, n_features) = super()._recipe(task), task.rows.X.shape
        return replace(
            found,
            method=replace(found.method, grow=partial(self._grow, used=task.used)),
            counts=task.plan.last.draws is not None,
            work=min(n_rows, self.batch_size) * n_features,
        )

    def _form(self, task: Task) -> HardForm:
        # Only linear splits have polytopes and diagnostics.
        return replace(super()._form(task), polytopes=self.split == "oblique")


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

    fit_files = fit_files
    sample_check_ = property(sample_check)


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

    fit_files = fit_files
    sample_check_ = property(sample_check)


@declare
@takes(EndToEndTraining)
class BaseEndToEndForest(IndependentForest):
    """Fit the trees of a forest; classifier and regressor add y.

    Attributes
    ----------
    estimators_ : list of EndToEndTreeClassifier or EndToEndTreeRegressor
        The trees; ``estimators_[t].tree_`` is the deterministic one.
    feature_subsets_ : list of bool arrays, shape (nodes of tree t, d)
        Features that each split of each tree uses.
    """

    _tree: ClassVar[type[BaseEndToEndTree]]

    max_features = "sqrt"
    max_depth = 10
    epochs = 20
    steepness_step = 0.1
    min_gain = 0.0

    def _in_place(self) -> bool:
        return self.image_shape is not None

    def _shared(self) -> dict[str, Any]:
        max_features = None if self.patch_size is not None else self.max_features
        epochs = FINE_TUNING * self.epochs if self.refine_epochs is None else self.refine_epochs
        return super()._shared() | {"max_features": max_features, "refine_epochs": epochs}

    @property
    def feature_subsets_(self) -> list[BoolArray]:
        """Features that each split of each tree uses, by tree of shape (nodes, d)."""
        check_is_fitted(self)
        return [tree.tree_.arrays()["hyperplane"] != 0 for tree in self.estimators_]


@declare
class EndToEndForestClassifier(ForestClassifier, BaseEndToEndForest):
    """Forest of oblique trees, each trained as a whole by EM on all rows.

    Hehn, Kooij and Hamprecht, "End-to-End Learning of Decision Trees and Forests" (IJCV, 2020),
    section 2.7: every split uses a random subset of the features, or a patch of an image, so that
    the trees differ; the forest predicts the mean of its deterministic trees (eq. 20).

    {parameters}

    {attributes}

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bayestree import EndToEndForestClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = EndToEndForestClassifier(
    ...     n_estimators=3, max_depth=3, epochs=10, learning_rate=0.05, random_state=0
    ... ).fit(X, y)
    >>> clf.apply(X).shape
    (150, 3)
    >>> bool(clf.score(X, y) > 0.9)
    True
    """

    leaf: ShareFamily = "constant"

    _tree = EndToEndTreeClassifier


@declare
class EndToEndForestRegressor(ForestRegressor, BaseEndToEndForest):
    """Forest of oblique regression trees, each trained as a whole by EM on all rows.

    Like :class:`EndToEndForestClassifier`; the forest predicts the mean of its deterministic
    trees, and intervals of y from the mixture of its soft trees.

    {parameters}

    {attributes}

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from bayestree import EndToEndForestRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> reg = EndToEndForestRegressor(n_estimators=3, max_depth=3, epochs=20, random_state=0)
    >>> reg.fit(X, y).apply(X).shape
    (442, 3)
    >>> low, high = reg.predict_interval(X, 0.9)
    """

    learning_rate = 0.05

    leaf: MeanFamily = "constant"

    _tree = EndToEndTreeRegressor
