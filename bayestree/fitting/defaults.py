"""Defaults that depend on the rows or on the method, and the plan of a convex polytope tree.

They are decided by :func:`polytope_plan`, by its arguments alone and, for the processes, the
threads. Depth and trees of a method by default are its ``default_depth`` and ``default_modes``.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, get_args

from bayestree._utils.parallel import processes_for
from bayestree._utils.parameters import ParameterError, check_parameters, parameters_of
from bayestree._utils.progress import watched
from bayestree.fitted.tree import Mixture
from bayestree.fitting.plan import FitPlan, Table
from bayestree.inference import Growth, GrowthLimits, Map, Mcmc, Nuts, Smc, Stage, Svi, Vi
from bayestree.inference.memory_mapped import HELD
from bayestree.inference.samplers.mcmc.method import SWEPT_CHAINS
from bayestree.inference.stage import Minibatches
from bayestree.models.leaves import Leaf
from bayestree.models.priors import (
    Flat,
    GammaProcess,
    HyperplanePrior,
    InverseGammaScale,
    Laplace,
    LiteralGammaProcess,
    Spatial,
    WeightPrior,
)

#: The names that ``inference`` accepts beside "auto", and the stages that they select.
MethodName = Literal["vi", "svi", "nuts", "mcmc", "smc", "map", "grow"]
PIPELINES: Mapping[str, tuple[type[Stage], ...]] = {
    "vi": (Growth, Vi),
    "svi": (Growth, Map, Svi),
    "nuts": (Growth, Map, Svi, Nuts),
    "mcmc": (Growth, Vi, Mcmc),
    "smc": (Growth, Smc),
    "map": (Growth, Map),
    "grow": (Growth,),
}
METHODS: Mapping[str, type[Stage]] = {name: kinds[-1] for name, kinds in PIPELINES.items()}

#: "auto" selects "vi" up to MANY_ROWS rows or MOST_FEATURES features, if X has at most MOST_NUMBERS
#: numbers; beyond MANY_ROWS, a step of VI takes LARGE_BATCH rows.
MANY_ROWS, LARGE_BATCH, MOST_FEATURES, MOST_NUMBERS = 10_000, 5_000, 100, 10_000_000
SINGLE_ROWS = 10_000  # from which dtype="auto" is single precision, and trees have a process each
#: Experts of a node in fits by VI, or that start with one, up to MANY_ROWS and beyond; in other
#: fits, for classes and for numbers.
FEW_EXPERTS, MORE_EXPERTS, OF_CLASSES, OF_NUMBERS = 4, 8, 20, 8
KINDS = ("numbers", "classes")
# Slow growth leaves more to the refinement by Adam, which then generalises better.
SLOW_GROWTH = 0.015
MAP_SHARE = 0.3  # of its epochs, where another method continues
INTERCEPT_SCALE = 10.0  # of Laplace: wide on standardised features, and a proper posterior
COLUMNS, MORE_COLUMNS = 3, 12  # of its facets, and where the loss is limited instead
MOST_SPARSE_FEATURES, MOST_SPARSE_LEAVES = 500, 32  # of a tree that is made sparse by default

#: CPU seconds of a default fit: a factor, and powers of the rows, features and half the classes,
#: up to MANY_ROWS rows and MOST_FEATURES features; see benchmarks/results/speed.md.
SECONDS_OF_CLASSES, SECONDS_OF_NUMBERS = (0.0088, 0.82, 0.17, 0.49), (0.0156, 0.60, 0.88, 0.0)
#: CPU seconds of a sweep for each row and expert, and for each pair of its coefficients.
SECONDS_OF_ROW, SECONDS_OF_PAIR, USUAL_NODES = 60e-9, 0.3e-9, 3
#: Steps before sweeps; CPU time of the sweeps of a tree, of that of the fit of four without them.
STEPS_BEFORE, SWEPT_TIME = 60, 0.4
FEWEST_SWEEPS, MOST_SWEEPS = 10, 30  # of each chain; with either fewer or more, little changes
TIMED_LEAVES = ("auto", "constant", "linear")

Dtype = Literal["auto", "float64", "float32"]
Given = Mapping[str, Any]  # parameters of an estimator by name
Reasons = dict[str, str]
#: The names that ``prior``, that on hyperplanes, accepts; a new one has a case in ``named_prior``.
PriorName = Literal["inverse-gamma", "laplace", "flat", "spatial"]


def precision_of(dtype: str, n_rows: int | None, needs_double: bool) -> str:
    """Return the name of the precision of a fit to so many rows."""
    if dtype != "auto":
        return dtype
    many = n_rows is not None and n_rows >= SINGLE_ROWS
    return "float32" if many and not needs_double else "float64"


#: Priors on weights by name; a new one is a name of ``weight_prior`` of the estimators, too.
WEIGHT_PRIORS: Mapping[str, Callable[..., WeightPrior]] = {
    "gamma-process": GammaProcess,
    "literal-gamma-process": LiteralGammaProcess,
}


def named_prior(name: str, n_classes: int, image_shape: Any = None) -> HyperplanePrior:
    """Return the prior on hyperplanes of a name, for classes or for numbers (0)."""
    match name:
        case "inverse-gamma":
            return InverseGammaScale(0.5, 0.1, 0.1) if n_classes else InverseGammaScale(2.0)
        case "laplace":
            return Laplace(1.0, INTERCEPT_SCALE)
        case "spatial" if image_shape is None:
            raise ParameterError(
                "prior='spatial' needs image_shape, the height and width of the image in each row."
            )
        case "spatial":
            return Spatial(1.0, image_shape)
        case "flat":
            return Flat()
    raise ParameterError(f"prior must be one of {list(get_args(PriorName))}, got {name!r}.")


def prior_of(given: Given, table: Table, reasons: Reasons) -> HyperplanePrior:
    """Return the prior on hyperplanes of a fit; refuse one for images of another size."""
    prior = given["prior"]
    if prior == "inverse-gamma":
        reasons["prior"] = f"by default for {KINDS[table.n_classes > 0]}"
    if isinstance(prior, str):
        prior = named_prior(prior, table.n_classes, given["image_shape"])
    if isinstance(prior, Spatial) and table.n_features is not None:
        prior.check_width(table.n_features)
    found: HyperplanePrior = prior
    return found


def polytope_plan(given: Given, leaf: Leaf, table: Table, start: Mixture | None = None) -> FitPlan:
    """Plan the fit of a convex polytope tree with a family of leaves, for any number of classes.

    A ParameterError says that ``inference`` is no method for these trees, or states other values
    than a parameter.
    """
    reasons: Reasons = {}
    prior, weight = prior_of(given, table, reasons), given["weight_prior"]
    weight = WEIGHT_PRIORS[weight]() if isinstance(weight, str) else weight
    given = {**given, "prior": prior, "weight_prior": weight}
    inference = given["inference"]
    if isinstance(inference, str) and inference == "auto":
        inference, reasons["method"] = selected(given, table, start)
    method, kinds, objects = pipeline(inference)
    if start is not None:
        reasons["stages"] = "from the tree of the fit before, in the place of growth"
    natural = Vi in kinds
    stages = _stages(given, kinds, objects, table)
    n_trees = _n_trees(given, stages[-1], start, reasons)
    n_linear = _n_linear(given, stages[-1], n_trees, table, start, reasons)
    if n_trees == 1:
        stages[-1] = agreed(stages[-1], "n_jobs", given["n_jobs"])
    asked = _asked_steepness(objects)
    stages = _annealed(stages, objects, asked, table, start)
    stages = sized(stages, table, given["validation_fraction"])
    if len(stages) > 2 and isinstance(stages[1], Map):
        reasons.setdefault("stages", "Map makes three tenths of its epochs before another method")
    needs_double = leaf.needs_double or any(stage.needs_double for stage in stages)
    last = stages[-1]
    plan = FitPlan(
        method,
        tuple(stages),
        _limits(given, last, table, reasons),
        n_trees,
        n_linear,
        _mode_weights(given, last, n_trees, reasons),
        _n_jobs(given, last, n_trees, table, reasons),
        _n_experts(given, natural, table, start, reasons),
        precision_of(given["dtype"], table.n_rows, needs_double),
        prior,
        weight,
        table,
        steeper=(
            asked is None and isinstance(last, Svi) and last.own_guide and not table.n_classes
        ),
        sparse=_is_sparse(given, last, table, reasons),
        max_columns=facet_columns(given),
        predicts=predicts(given["prediction"], last, n_trees, reasons),
        in_chunks=not leaf.regresses and all(stage.in_chunks for stage in stages),
        reasons=reasons,
    )
    timed = start is None and given["leaf"] in TIMED_LEAVES
    return replace(plan, seconds=_seconds(plan)) if timed else plan


def selected(given: Given, table: Table, start: Mixture | None) -> tuple[str, str]:
    """Return the method that ``inference="auto"`` selects, and why."""
    if asked := asks_for_svi(given):
        return "svi", f"{asked} needs it"
    if start is not None and not table.in_batches:
        by_svi = any(one.posterior.inference == "svi" for one in start.trees)
        return "svi" if by_svi else "vi", "it continues the fit before"
    if table.in_parts or table.in_batches:
        return "svi", "the rows do not stay in memory"
    n_rows, n_features = table.n_rows or 0, table.n_features or 0
    if n_rows > MANY_ROWS and n_features > MOST_FEATURES:
        return "svi", f"more than {MANY_ROWS:,} rows of more than {MOST_FEATURES} features"
    if n_rows * n_features > MOST_NUMBERS:
        return "svi", f"more than {MOST_NUMBERS:,} numbers in X"
    return "vi", f"up to {MANY_ROWS:,} rows or {MOST_FEATURES} features in memory"


def asks_for_svi(given: Given) -> str:
    """Return the parameter that only SVI can follow; empty if there is none."""
    if not isinstance(given["prior"], InverseGammaScale):
        return "prior"
    if not given["weight_prior"].implements("law"):
        return "weight_prior"
    usual = {"monotonic_cst": None, "image_shape": None, "device": "cpu"}
    for name, value in usual.items():
        found = given.get(name, value)
        if not (isinstance(found, type(value)) and found == value):
            return name
    return "dtype='float32'" if given["dtype"] == "float32" else ""


def pipeline(inference: Any) -> tuple[str, tuple[type[Stage], ...], tuple[Stage, ...]]:
    """Return the name of a method, the classes of its stages, and the stages that are given."""
    if isinstance(inference, str):
        return inference, PIPELINES[inference], ()
    objects = tuple(inference) if isinstance(inference, Sequence) else (inference,)
    if not objects or len(set(map(type, objects))) < len(objects):
        raise ParameterError(
            f"inference must have each stage once, the method of the fit last, got {inference!r}."
        )
    last = objects[-1]
    name = next((name for name, kind in METHODS.items() if isinstance(last, kind)), "")
    kinds = PIPELINES[name] if name else (*PIPELINES["svi"][:-1], type(last))
    if not name:
        check_refines(last, PIPELINES)
    places = [place for one in objects for place, kind in enumerate(kinds) if isinstance(one, kind)]
    if places != sorted(places):
        order = ", ".join(kind.__name__ for kind in kinds)
        raise ParameterError(f"inference must have its stages in the order {order}.")
    for one in objects:
        if sum(isinstance(one, kind) for kind in kinds) != 1:
            raise ParameterError(
                f"inference has {one!r}, but a fit that ends with {type(last).__name__} has the "
                f"stages {', '.join(kind.__name__ for kind in kinds)}: leave it out."
            )
    return name or type(last).__name__, kinds, objects


def check_refines(stage: Stage, names: Iterable[str]) -> None:
    """Raise ParameterError for a method that does not continue from a grown tree."""
    if not stage.refines:
        raise ParameterError(
            f"inference must be one of {[*names]} or a method that continues from a grown soft "
            f"tree, got {stage!r}."
        )


def _stages(
    given: Given, kinds: tuple[type[Stage], ...], objects: tuple[Stage, ...], table: Table
) -> list[Stage]:
    """Return the stages before their steepness is known: as given, or with the defaults here."""
    found: list[Stage] = []
    for kind in reversed(kinds):
        stage = next((one for one in objects if isinstance(one, kind)), None)
        after = found[0] if found else None
        if stage is None:
            stage = kind.from_keywords(_defaults(kind, given, kinds, after, table))
        found.insert(0, stage)
    return [*found[:-1], agreed(found[-1], "max_depth", given["max_depth"])]


def _defaults(
    kind: type[Stage],
    given: Given,
    kinds: tuple[type[Stage], ...],
    after: Stage | None,
    table: Table,
) -> dict[str, Any]:
    """Return the settings of a stage that is not given, where they are not its own defaults."""
    if kind is Growth and Vi not in kinds and table.n_classes:
        return {"learning_rate": SLOW_GROWTH}
    if kind is Map and isinstance(after, Svi):
        return after.chosen(*parameters_of(Minibatches))
    automatic = isinstance(given["inference"], str) and given["inference"] == "auto"
    if kind is Vi:
        n_sweeps = _n_sweeps(given, table) if automatic else 0
        # the sweeps go on from where fewer steps have come
        swept = {"n_steps": STEPS_BEFORE, "n_sweeps": n_sweeps} if n_sweeps else {}
        return swept | ({"batch_size": LARGE_BATCH} if (table.n_rows or 0) > MANY_ROWS else {})
    expects = given["prior"].expects and given["weight_prior"].implements("law")
    if kind is Svi and automatic and not expects:
        return {"guide": "AutoNormal"}  # which needs the density alone
    return {}


def _n_sweeps(given: Given, table: Table) -> int:
    """Return how many sweeps of each chain take, for a tree, SWEPT_TIME of a fit; 0 if few."""
    n_rows, n_features, *_ = table
    if not (n_rows and n_features) or given.get("interaction_constraints") is not None:
        return 0
    if n_rows > MANY_ROWS or n_features > MOST_FEATURES:
        return 0
    n_experts = given["n_experts"] or FEW_EXPERTS
    each = SECONDS_OF_ROW + SECONDS_OF_PAIR * (n_features + 1) ** 2
    sweep = SWEPT_CHAINS * USUAL_NODES * n_experts * n_rows * each  # of one tree
    allowed = int(SWEPT_TIME * _seconds_of(table) / sweep)
    return 0 if allowed < FEWEST_SWEEPS else min(allowed, MOST_SWEEPS)


def agreed(stage: Any, name: str, value: Any) -> Stage:
    """Return a stage with a parameter of the estimator as its setting, if it has such a one."""
    known = parameters_of(type(stage))
    if value is None or name not in known:
        return stage
    own = getattr(stage, name)
    usual = [None, value, known[name].default, stage.in_estimators.get(name)]
    if own not in usual:
        raise ParameterError(
            f"{name}={value!r} contradicts {stage!r} in inference: set {name} in one of them."
        )
    found: Stage = replace(stage, **{name: value})
    return found


def _asked_steepness(objects: Sequence[Stage]) -> float | None:
    """Return the steepness at the end that a stage states; pairs are of MAP alone."""
    values = {getattr(one, "steepness", None) for one in objects}
    stated = sorted(float(one) for one in values if isinstance(one, int | float))
    if len(stated) > 1:
        raise ParameterError(f"inference has stages of different steepness, {stated}: state one.")
    return stated[0] if stated else None


def _annealed(
    stages: Sequence[Stage],
    objects: Sequence[Stage],
    asked: float | None,
    table: Table,
    start: Mixture | None,
) -> list[Stage]:
    """Return the stages with the steepness of the splits at their start and their end.

    SVI keeps that which MAP before it has reached.
    """
    deciding = stages[-1:] if stages[-1].samples_topology else stages  # whatever it starts from
    final = asked or min(stage.steepness_for(table.n_classes) for stage in deciding)
    posterior = None if start is None else start.shown.posterior
    first = 1.0 if posterior is None else posterior.model.steepness
    path: tuple[float, float] | None = (first, final)
    if asked is None and isinstance(stages[-1], Map):
        # chosen once: a refined tree that is continued has seen the rows to be left out
        refined = posterior is not None and posterior.inference != "grow"
        path = (first, first) if refined else None
    reached: dict[type[Stage], Any] = {Map: path, Svi: None, Vi: final, Smc: final}
    kinds = tuple(map(type, objects))  # of those whose settings are given

    def with_steepness(stage: Any) -> Any:
        kind = next((kind for kind in reached if isinstance(stage, kind)), None)
        if kind is None:
            return stage
        own = stage.steepness
        follows = stage is not stages[-1] and own == parameters_of(kind)["steepness"].default
        if isinstance(stage, kinds) and isinstance(own, tuple) and not follows:
            return stage
        return replace(stage, steepness=reached[kind])

    return [*map(with_steepness, stages)]


def sized(stages: Sequence[Any], table: Table, validation_fraction: float = 0.0) -> list[Any]:
    """Return stages with their epochs, by the rows that are not held out, or particles."""

    def of(stage: Any) -> Any:
        if isinstance(stage, Minibatches | Smc):
            check_parameters(stage)
        if isinstance(stage, Smc):
            return stage.sized()
        if not (isinstance(stage, Minibatches) and (stage.epochs or table.n_rows)):
            return stage
        n_rows = table.n_rows or 0
        kept = n_rows - math.ceil(validation_fraction * n_rows)
        epochs = stage.epochs or stage.default_epochs(kept)
        if isinstance(stage, Map) and stage is not stages[-1]:
            epochs = max(1, round(MAP_SHARE * epochs))
        return replace(stage, epochs=epochs)

    return [*map(of, stages)]


def _n_trees(given: Given, last: Stage, start: Mixture | None, reasons: Reasons) -> int:
    if given["n_modes"] is not None:
        return int(given["n_modes"])
    if start is not None:
        reasons["trees"] = "as in the fit before"
        return len(start.trees)
    reasons["trees"] = f"by default with {type(last).__name__}"
    return last.default_modes


def scores_unseen_rows(last: Stage, validation_fraction: float = 0.0) -> bool:
    """Return whether trees can be scored on rows that they have not seen, as with several draws."""
    return bool(validation_fraction or last.draws not in (None, (1, 1)))


def predicts(prediction: str, last: Stage, n_trees: int, reasons: Reasons) -> str:
    """Say how the fitted estimator predicts, as ``Mixture.predicting`` carries out."""
    if prediction == "auto":
        several = scores_unseen_rows(last)
        reasons["predicts"] = f"by default {'with' if several else 'without'} several draws"
        prediction = "posterior" if several else "trees" if n_trees > 1 else "tree"
    of_all = "draws of all trees" if n_trees > 1 else "draws"
    means = {"posterior": f"by the mean over the {of_all}", "trees": "by the mean over the trees"}
    return means.get(prediction, "by the deterministic tree")


def _mode_weights(given: Given, last: Stage, n_trees: int, reasons: Reasons) -> str:
    if given["mode_weights"] != "auto":
        return str(given["mode_weights"])
    if n_trees == 1 or not scores_unseen_rows(last, given["validation_fraction"]):
        return "equal"
    reasons["averaged"] = "by default where rows can be left out"
    return "stacking"


def _n_jobs(given: Given, last: Stage, n_trees: int, table: Table, reasons: Reasons) -> int | None:
    """Return the processes for trees that are not fitted at once.

    Processes share rows in memory, but would each copy those of a file; they cannot be watched.
    """
    if n_trees == 1 or last.several:
        return None
    found: int | None = given["n_jobs"]
    takes_long = (table.n_rows or 0) >= SINGLE_ROWS and given["device"].startswith("cpu")
    if found is None and takes_long and not (table.on_disk or watched()):
        reasons["processes"] = f"by default from {SINGLE_ROWS:,} rows on"
        return processes_for(n_trees)
    return found


def _n_linear(
    given: Given, last: Stage, n_trees: int, table: Table, start: Mixture | None, reasons: Reasons
) -> int:
    """Return the number of trees with linear leaves, where ``leaf`` leaves it open."""
    alone = not isinstance(last, Vi) or table.several_outputs
    if given["leaf"] != "auto" or alone or given["interaction_constraints"] is not None:
        return 0
    if start is not None:
        return sum(one.posterior.model.leaf.regresses for one in start.trees)
    if n_trees > 1:
        reasons["leaf"] = "the rows decide between them"
    return n_trees // 2


def _n_experts(
    given: Given, natural: bool, table: Table, start: Mixture | None, reasons: Reasons
) -> int:
    if given["n_experts"] is not None:
        return int(given["n_experts"])
    if start is not None:
        reasons["facets"] = "as in the fit before"
        split: Any = start.shown.posterior.model.split
        return int(split.n_experts)
    if natural:
        many = (table.n_rows or 0) > MANY_ROWS
        number = f" for more than {MANY_ROWS:,} rows" if many else ""
        reasons["facets"] = f"by default with Vi{number}"
        return MORE_EXPERTS if many else FEW_EXPERTS
    reasons["facets"] = f"by default for {KINDS[table.n_classes > 0]} without Vi"
    return OF_CLASSES if table.n_classes else OF_NUMBERS


def _limits(given: Given, last: Stage, table: Table, reasons: Reasons) -> GrowthLimits:
    if given["max_depth"] is None:
        many = table.n_classes > 2**GrowthLimits.max_depth
        number = f" for {table.n_classes} classes" if many else ""
        reasons["depth"] = f"by default with {type(last).__name__}{number}"
    depth = given["max_depth"]
    return GrowthLimits(
        last.default_depth(table.n_classes) if depth is None else int(depth),
        *(given[name] for name in ("max_leaves", "min_rows", "min_leaf", "min_gain")),
    )


def asks_for_sparsity(given: Given) -> str:
    """Return the parameters that ask for sparse facets; empty if none does."""
    asked = ((name, given[name]) for name in ("sparsity", "max_columns", "points"))
    return " and ".join(f"{name}={one!r}" for name, one in asked if one not in ("auto", None))


def _is_sparse(given: Given, last: Stage, table: Table, reasons: Reasons) -> bool:
    if asks_for_sparsity(given):
        return True
    several = scores_unseen_rows(last)
    narrow = (table.n_features or 0) <= MOST_SPARSE_FEATURES
    asked = given["sparsity"] == "auto" and not (given.get("image_shape") or table.in_batches)
    if not (several and narrow and asked):
        return False
    reasons["tree_"] = f"if it has at most {MOST_SPARSE_LEAVES} leaves, and the rows are in memory"
    return True


def facet_columns(given: Given) -> int:
    """Return the maximum number of columns of a facet of a sparse tree."""
    limited = given["sparsity"] not in ("auto", None)
    return given["max_columns"] or (MORE_COLUMNS if limited else COLUMNS)


def sample_size(asked: int | None, n_features: int) -> int:
    """Return how many rows of a data set a tree is fitted to: what 256 MiB hold, if not stated."""
    return asked or max(1, HELD // n_features)


def _seconds(plan: FitPlan) -> float | None:
    """Estimate the CPU seconds of a fit by VI with the default settings and size."""
    n_rows, n_features, _, *elsewhere = plan.table
    if not (isinstance(plan.last, Vi) and n_rows and n_features) or any(elsewhere):
        return None
    size = (plan.n_trees, plan.n_experts, plan.limits.max_depth)
    usual = size == (Vi.default_modes, FEW_EXPERTS, GrowthLimits.max_depth)
    own = Vi(steepness=plan.last.steepness)
    if plan.last.n_sweeps:
        own = replace(own, n_steps=STEPS_BEFORE, n_sweeps=plan.last.n_sweeps)
    usual = usual and plan.stages == (Growth(), own)
    if not usual or n_rows > MANY_ROWS or n_features > MOST_FEATURES:
        return None
    return _seconds_of(plan.table) * (1 + SWEPT_TIME * (plan.last.n_sweeps > 0))


def _seconds_of(table: Table) -> float:
    """Estimate the CPU seconds of a default fit to so many rows without sweeps."""
    factor, *powers = SECONDS_OF_CLASSES if table.n_classes else SECONDS_OF_NUMBERS
    of_table = (table.n_rows or 1, table.n_features or 1, max(table.n_classes, 2) / 2)
    return factor * math.prod(one**power for one, power in zip(of_table, powers, strict=True))
