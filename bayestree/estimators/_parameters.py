"""Parameters that several estimators share, and the families of leaves by name."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from numbers import Integral
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, InstanceOf

from bayestree import models
from bayestree._utils.parameters import (
    ClassWeights,
    Count,
    Inference,
    Model,
    NonNegative,
    ParameterError,
    Run,
    Seed,
    Shape,
    Size,
    declare,
)
from bayestree._utils.progress import Verbose
from bayestree._utils.user_classes import Own
from bayestree.fitted import tree
from bayestree.fitting.defaults import Dtype, PriorName
from bayestree.fitting.plan import Task
from bayestree.inference import GrowthLimits
from bayestree.models.leaves import Leaf, NumericLeaf
from bayestree.models.leaves.slopes import NO_SLOPE
from bayestree.models.priors import (
    GroupedScale,
    HyperplanePrior,
    InverseGammaScale,
    WeightPrior,
    width_scale,
)
from bayestree.tables import Encoding
from bayestree.tables.column_types import Numbers, Ordered

MaxFeatures = Literal["sqrt"] | Count | Annotated[float, Field(gt=0, le=1)] | None


@declare
class ShownRun:
    """What every fit takes: codes in X, and how it reports its progress."""

    missing_values: Annotated[
        int | float | str | list | tuple | dict | None,  # type: ignore[type-arg]
        Run(
            "Values of X that stand for missing ones, such as -999 or '?': one, several, or a "
            "dict by column."
        ),
    ] = None

    verbose: Annotated[
        Verbose,
        Run(
            "Show progress: always, never, or ('auto') on a terminal or in a notebook after a "
            "second."
        ),
    ] = "auto"


@declare
class RandomRun(ShownRun):
    """A fit that depends on random numbers."""

    random_state: Annotated[Seed, Run("Seed of the random numbers.")] = None


@declare
class WarmStart:
    """Whether a second fit continues from the first."""

    warm_start: Annotated[
        bool,
        Run(
            "Start a second fit from the tree of the first; features, classes and splits must be "
            "the same."
        ),
    ] = False


@declare
class Depth:
    """The depth of a tree."""

    max_depth: Annotated[
        Size, Model("Maximum number of splits on a path from the root to a leaf.")
    ] = GrowthLimits.max_depth


@declare
class MethodDepth:
    """The depth of a tree, whose default depends on the method of the fit."""

    max_depth: Annotated[
        Size | None,
        Model(
            "Maximum number of splits on a path; by default 4, with more than 16 classes log2 of "
            "their number, rounded up, plus 2 (not with 'nuts'), and 2 with 'smc', which takes at "
            "most 3."
        ),
    ] = None


@declare
class Limits:
    """When a node is not split further (see ``GrowthLimits``)."""

    max_leaves: Annotated[
        Count | None,
        Model("Maximum number of leaves; splits with the smallest gain are removed to meet it."),
    ] = GrowthLimits.max_leaves
    min_rows: Annotated[
        NonNegative, Model("Minimum total weight of the rows in a node that is split.")
    ] = GrowthLimits.min_rows
    min_leaf: Annotated[Count, Model("Minimum number of rows on each side of a split.")] = (
        GrowthLimits.min_leaf
    )
    min_gain: Annotated[
        NonNegative, Model("Minimum gain of a split in nats of log-likelihood.")
    ] = GrowthLimits.min_gain


@declare
class Classes:
    """How classes are weighted and predicted."""

    smoothing: Annotated[
        NonNegative,
        Model(
            "Weight, in rows, of the prior of each leaf of tree_, which has the class shares of "
            "all rows."
        ),
    ] = 1.0
    class_weight: Annotated[
        ClassWeights | Literal["balanced"] | None, Model("Factors of the row weights by class.")
    ] = None


@declare
class Precision:
    """The precision of a fit."""

    dtype: Annotated[
        Dtype,
        Inference(
            "Precision: 'auto' is float32 from 10,000 rows on, unless the method needs double "
            "precision."
        ),
    ] = "auto"


@declare
class Hardware(Precision):
    """The device and the precision of a fit."""

    device: Annotated[
        str, Inference("Torch device of the fit. Predictions run on torch's default device.")
    ] = "cpu"


@declare
class ImageShape:
    """Features that are the pixels of an image."""

    image_shape: Annotated[
        Shape | None, Model("Height and width of the image whose pixels, row by row, are features.")
    ] = None


@declare
class Subsets(ImageShape):
    """The features that each split may use."""

    max_features: Annotated[
        MaxFeatures,
        Model(
            "Features that each split may use, drawn at random: the square root of their number, "
            "a number, a share of them, or all."
        ),
    ] = None
    patch_size: Annotated[
        Shape | None,
        Model(
            "Each split uses a patch of the image of this height and width, at a random position, "
            "instead of max_features."
        ),
    ] = None


@declare
class Prediction:
    """How a fitted tree predicts."""

    prediction: Annotated[
        tree.Prediction,
        Inference(
            "Predict by the deterministic tree, or by the mean over the draws (by default, if "
            "several)."
        ),
    ] = "auto"


@declare
class SplitPriors(ImageShape):
    """The priors on polytope splits."""

    prior: Annotated[
        PriorName | Annotated[InstanceOf[HyperplanePrior], Own],
        Model(
            "Prior on the hyperplanes: 'inverse-gamma', as in the paper, learns the scale of each "
            "facet; 'laplace' is an l1 penalty of rate 1, 'spatial' prefers smooth images, and "
            "'flat' is none. Or an object, such as bayestree.models.Laplace(3.0, 10.0), or your "
            "own (docs/concepts/priors.md)."
        ),
    ] = "inverse-gamma"
    weight_prior: Annotated[
        Literal["gamma-process", "literal-gamma-process"] | Annotated[InstanceOf[WeightPrior], Own],
        Model(
            "Prior on the weights of experts: the gamma process, or its penalty as the paper "
            "prints it (eq. 15), for MAP alone. Or an object, such as "
            "bayestree.models.GammaProcess(concentration=0.3)."
        ),
    ] = "gamma-process"


#: The names that ``leaf`` of a regressor accepts; a new family is a name here and a line below.
NumericName = Literal["constant", "linear", "poisson", "student"]
FAMILIES = (
    "Distribution of y in a leaf: normal with a constant mean; normal with a mean that is a linear "
    "function of the features, with a shrinkage of each that is learned, which suits smooth "
    "responses; a Poisson distribution of counts; or a Student-t distribution, for responses with "
    "outliers. Or a family of your own (see docs/develop/own-leaves.md)."
)
NumericFamily = Annotated[NumericName | Annotated[InstanceOf[NumericLeaf], Own], Model(FAMILIES)]
MixedFamily = Annotated[
    Literal["auto", NumericName] | Annotated[InstanceOf[NumericLeaf], Own],
    Model(
        f"{FAMILIES} 'auto' is constant, as in the paper, but linear in half of several trees by "
        "VI (see ``plan``)."
    ),
]
MeanName = Literal["constant", "linear"]
MeanFamily = Annotated[
    MeanName,
    Model(
        "Mean of y in a leaf: a constant, or a linear function of the features with slopes "
        "shrunk towards 0, which suits smooth responses."
    ),
]
NUMERIC: Mapping[str, Callable[[], Leaf]] = {
    "auto": models.Gaussian,  # of the trees that are not linear
    "constant": models.Gaussian,
    "linear": models.LinearGaussian,
    "poisson": models.Poisson,
    "student": models.Student,
}

ShareFamily = Annotated[
    Literal["constant", "logistic"],
    Model(
        "Class probabilities in a leaf: constant, or by a multinomial logistic regression on the "
        "features, with a shrinkage of each that is learned, which suits probabilities that change "
        "smoothly."
    ),
]

#: The same for classifiers, with families of a number of classes.
ClassName = Literal["auto", "constant", "logistic", "ordinal"]
CLASSES: dict[str, Callable[[int], Leaf]] = {
    "auto": models.Categorical,  # of the trees that are not logistic
    "constant": models.Categorical,
    "logistic": models.Logistic,
    "ordinal": models.Ordinal,
}


def family_of(leaf: Any, families: Mapping[Any, Callable[..., Leaf]], *n_classes: int) -> Leaf:
    """Return the family of a name, or an object as it is."""
    if isinstance(leaf, str):
        return families[leaf](*n_classes)
    if (leaf.n_classes,) != (n_classes or (0,)):
        raise ParameterError(
            f"leaf={leaf!r} is for {leaf.n_classes} classes, and y has {n_classes[0]}."
        )
    return leaf


def sloping_leaves(task: Task) -> Leaf:
    """Return linear or logistic leaves, without slopes of features with moved detached values."""
    classes = task.leaf.n_classes
    found = models.Logistic(classes) if classes else models.LinearGaussian()
    if task.detached is None:
        return found
    return found.having(np.where(task.detached[task.used], NO_SLOPE, 1.0))


def check_image(
    image_shape: Sequence[int] | None, n_features: int, setting: str
) -> tuple[int, int]:
    """Return the height and width of the image of ``n_features`` pixels that a setting needs."""
    if image_shape is None:
        raise ValueError(
            f"{setting} needs image_shape, the height and width of the image in each row."
        )
    height, width = checked_pair("image_shape", image_shape)
    if height * width != n_features:
        raise ValueError(
            f"image_shape {(height, width)} has {height * width} pixels, and X has {n_features} "
            "features."
        )
    return height, width


def checked_pair(name: str, value: Sequence[Any]) -> tuple[int, int]:
    """Return height and width as two integers; ValueError for anything else."""
    if len(value) != 2 or not all(isinstance(v, Integral) and int(v) >= 1 for v in value):
        raise ValueError(f"{name} must be two integers of 1 or more, got {value!r}.")
    return int(value[0]), int(value[1])


@declare
class FacetColumns:
    """The columns that may share a facet."""

    interaction_constraints: Annotated[
        Literal["no_interactions", "pairwise"]
        | tuple[tuple[str, ...], ...]
        | tuple[tuple[Size, ...], ...]
        | None,
        Model(
            "Columns that may share a facet, as in scikit-learn: groups by name or number, "
            "'no_interactions' or 'pairwise', which takes much longer. With inference='vi', 'svi', "
            "'map' or 'grow'."
        ),
    ] = None


#: Numbers of columns in a group of ``interaction_constraints``.
SIZES = {"no_interactions": 1, "pairwise": 2}


def facet_groups(given: Any, encoding: Encoding) -> tuple[tuple[int, ...], ...]:
    """Return the groups of features that may share a facet; () if all may."""
    if given is None:
        return ()
    every = range(len(encoding.columns))
    if isinstance(given, str):
        groups = [*combinations(every, min(SIZES[given], len(every)))]
    else:
        groups = [_numbers(group, encoding, "interaction_constraints") for group in given]
        rest = tuple(number for number in every if not any(number in own for own in groups))
        groups += [rest] * bool(rest)
    found = (np.concatenate([encoding.places[number] for number in own]) for own in groups)
    return tuple(tuple(sorted(own.tolist())) for own in found if len(own))


def in_columns(prior: HyperplanePrior, encoding: Encoding, n_used: int) -> HyperplanePrior:
    """Return the prior on the features of these columns, of which ``n_used`` vary."""
    if isinstance(prior, GroupedScale):
        every: Any = [[number] for number in range(len(encoding.columns))]
        given = every if prior.groups == "columns" else prior.groups
        numbers = [_numbers(group, encoding, "groups") for group in given]
        places = (np.concatenate([encoding.places[number] for number in own]) for own in numbers)
        groups = tuple(tuple(own.tolist()) for own in places if len(own) > 1)
        scales = {name: value for name, value in vars(prior).items() if name != "groups"}
        prior = replace(prior, groups=groups) if groups else InverseGammaScale(**scales)
    if isinstance(prior, InverseGammaScale) and prior.width is not None:
        scale = prior.coefficient_scale * width_scale(n_used, prior.width, prior.shape)
        prior = replace(prior, coefficient_scale=scale, width=None)
    return prior


def _numbers(group: Collection[Any], encoding: Encoding, parameter: str) -> tuple[int, ...]:
    """Return the numbers of the columns of a group."""
    if len(group) == 0:
        raise ParameterError(
            f"{parameter} has a group without columns: leave it out, or set {parameter}=None."
        )
    try:
        found = tuple(encoding.number(key) for key in group)
    except ValueError as error:
        raise ParameterError(f"{parameter}: {error}") from None
    if len(set(found)) < len(found):
        raise ParameterError(
            f"{parameter} names a column twice in the group {[*group]}: name it once."
        )
    return found


Direction = Literal[-1, 0, 1]


@declare
class MonotoneColumns:
    """The columns in which predictions are monotone."""

    monotonic_cst: Annotated[
        tuple[Direction, ...] | dict[str, Direction] | None,
        Model(
            "Whether predictions rise (1) or fall (-1) with columns, as in scikit-learn: a list, "
            "or a dict by name. With inference='grow', 'map' or 'svi', two classes or constant or "
            "Poisson leaves."
        ),
    ] = None


def directions(given: Any, encoding: Encoding) -> tuple[int, ...]:
    """Return the direction of predictions in each feature; () if all are free."""
    if given is None:
        return ()
    if not isinstance(given, Mapping) and len(given) != len(encoding.columns):
        raise ParameterError(
            "monotonic_cst must have a number for each column of X, "
            f"{len(encoding.columns)}, got {len(given)}."
        )
    pairs: Iterable[Any] = given.items() if isinstance(given, Mapping) else enumerate(given)
    found = [0] * len(encoding.feature_names)
    for key, direction in pairs:
        try:
            column, features = encoding.part(key)
        except ValueError as error:
            raise ParameterError(f"monotonic_cst: {error}") from None
        if direction and not isinstance(column, Numbers | Ordered):
            raise ParameterError(
                "monotonic_cst needs columns of numbers or ordered categories, but "
                f"{column.name!r} contains {column.kind}: set it to 0."
            )
        for feature in features[: len(column.labels)]:
            found[feature] = int(direction)
    return tuple(found) if any(found) else ()


@declare
class Sparse:
    """How sparse the facets of the tree are that is shown."""

    sparsity: Annotated[
        Literal["auto"] | NonNegative | None,
        Inference(
            "Nats a row that the deterministic tree may lose to longer ones; None keeps full "
            "facets. 'auto' shows at most 25 numbers, the fewest that lose one standard error, "
            "with draws, up to 500 features and 32 leaves."
        ),
    ] = "auto"
    max_columns: Annotated[
        Count | None,
        Inference(
            "Maximum number of columns of a facet of the deterministic tree, by default 3, or 12 "
            "if sparsity is a number; a category is one column."
        ),
    ] = None
    points: Annotated[
        Count | None,
        Inference(
            "Maximum number of points for each unit of a column: facets of the deterministic "
            "tree become scores, such as 2 per 10 years of age + 3 per 20 mg/dl of cholesterol "
            "<= 31."
        ),
    ] = None


@declare
class Modes:
    """How many trees are fitted, and how they are weighted."""

    n_modes: Annotated[
        Count | None,
        Inference(
            "Number of trees that are averaged; by default 4 with 'vi', 3 with 'svi', and 1 "
            "otherwise. tree_ is the medoid, which predicts most like the "
            "others; modes_ has all."
        ),
    ] = None
    mode_weights: Annotated[
        Literal["auto", "stacking", "equal", "elbo"],
        Inference(
            "Weights of the trees: 'stacking' maximises the log score of left-out rows, and 'elbo' "
            "exp(ELBO) often leaves a single tree. 'auto': stacking with draws or "
            "validation_fraction, else equal."
        ),
    ] = "auto"
