"""Combinations of parameters that are refused: a table for each kind of estimator.

A class lists its rules in ``_rules``, next to the rules of its bases. All are checked before any
work is done. The rules of the trees in ``literature`` are in their classes.
"""

import math
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.base import is_classifier

from bayestree._utils.parameters import ParameterError, parameters_of
from bayestree.fitted.rows import Scaling
from bayestree.inference import Map, Svi, Units, Vi
from bayestree.models.contracts.quick import broken_contract
from bayestree.models.priors import GroupedScale, InverseGammaScale
from bayestree.tables import Encoding, Numbers


class Rule(NamedTuple):
    """A combination of parameters that is refused.

    ``broken`` takes an estimator and its model, and returns a true value if they break the rule.
    ``message`` is a format string that may use ``tree``, ``model``, and ``found``, the true value.
    """

    name: str
    broken: Callable[[Any, Any], object]
    message: str


Rules = tuple[Rule, ...]


def check_combinations(tree: Any, model: Any, *, but: Rules = ()) -> None:
    """Raise ParameterError for the first rule that an estimator with this model breaks."""
    rules = tuple(rule for rule in rules_of(type(tree)) if rule not in but)
    if reason := first_broken(rules, tree, model):
        raise ParameterError(reason)


#: Parameters that name columns, and their values for the two columns below.
OF_TWO_COLUMNS = {"interaction_constraints": ((0,), (1,))}


def check_without_rows(estimator: Any) -> None:
    """Raise ValueError for a combination that is refused whatever the rows are.

    Two columns that vary and two classes stand for the rows; the fit checks the rules about their
    numbers, contracts of the user's own parts, which may need a certain number of columns, and the
    device, which another machine may have.
    """
    tree = copy(estimator._trees()[0] if hasattr(estimator, "_trees") else estimator)
    n_features = math.prod(getattr(tree, "image_shape", None) or (2,))
    number = np.arange(n_features)
    tree.encoding_ = Encoding(tuple(map(Numbers, map(str, number))))
    tree._scaling = Scaling(np.where(number < 2, number, -1), Units(number, number))
    tree.n_features_in_, tree.device = n_features, "cpu"
    if is_classifier(tree):
        tree.classes_ = np.arange(2)
    if (given := tree.monotonic_cst) is not None:
        each = given.values() if isinstance(given, Mapping) else given
        tree.monotonic_cst = {0: max(map(abs, each), default=0)}
    for name, value in OF_TWO_COLUMNS.items():
        if getattr(tree, name, None) is not None:
            setattr(tree, name, value)
    if isinstance(prior := getattr(tree, "prior", None), GroupedScale):
        tree.prior = replace(prior, groups=((0, 1),))
    check_combinations(tree, tree._model(tree._some_family()), but=(CONTRACT,))


def rules_of(kind: type) -> Rules:
    """Return the rules of a class of estimators, after the rules of its bases."""
    own = (vars(base).get("_rules", ()) for base in reversed(kind.__mro__))
    return tuple(chain.from_iterable(own))


def first_broken(rules: Rules, tree: Any, model: Any = None) -> str:
    """Return the message of the first rule that is broken; empty if none is."""
    for rule in rules:
        if found := rule.broken(tree, model):
            return rule.message.format(tree=tree, model=model, found=found)
    return ""


def complaint(check: Callable[..., object], *arguments: Any) -> str:
    """Return the message of the ValueError that a check raises; empty if it raises none."""
    try:
        check(*arguments)
    except ValueError as error:
        return str(error)
    return ""


def differs(tree: Any, name: str) -> bool:
    """Return whether a parameter has another value than its default."""
    return bool(getattr(tree, name) != parameters_of(type(tree))[name].default)


def scores_unseen_rows(tree: Any) -> bool:
    """Return whether the modes of a fit can be scored on rows that they have not seen."""
    return bool(tree.validation_fraction or tree._plan.last.draws not in (None, (1, 1)))


def _why_no_device(tree: Any, _: Any) -> str:
    """Return the reason why the device cannot be used; empty if it can."""
    try:
        torch.zeros(1, device=tree.device).item()  # "meta" makes tensors, but no numbers
    except (RuntimeError, AssertionError) as error:
        return str(error).splitlines()[0]
    return ""


def _has_another_split(tree: Any, model: Any) -> bool:
    if not tree._continues():
        return False
    dropped = tree.posterior_.settings.get("drop_idle", False)  # by the fit itself
    return bool(model.split != tree.posterior_.model.split and not dropped)


def _too_many_features(tree: Any, model: Any) -> int:
    """Return the number of features in use if it is too large for the leaves, otherwise 0."""
    most, n_used = model.leaf.most_features, int(tree._used.sum())
    return n_used if most is not None and n_used > most else 0


def _broken_contract(tree: Any, _: Any) -> str:
    """Return how an object that the user passes as prior or leaf breaks its contract."""
    n_used = int(tree._used.sum())
    for name in ("prior", "leaf"):
        given = getattr(tree, name, "")
        if type(given).__module__.startswith(("builtins", "bayestree.")):
            continue  # a name, or a part with tests of its own
        if reason := broken_contract(given, n_used):
            return f"{name}={given!r} cannot be used for {n_used} features: {reason}"
    return ""


CONTRACT = Rule("prior or leaf of the user", _broken_contract, "{found}")

BASE: Rules = (
    CONTRACT,
    Rule("device", _why_no_device, "device {tree.device!r} cannot be used here: {found}"),
    Rule(
        "warm_start and splits",
        _has_another_split,
        "warm_start=True continues from {tree.posterior_.model.split!r} splits, but the parameters "
        "ask for {model.split!r}: change n_experts or split back, or set warm_start=False to fit a "
        "new tree.",
    ),
    Rule(
        "leaf and features",
        _too_many_features,
        "leaf={tree.leaf!r} is for at most {model.leaf.most_features} features that vary, got "
        "{found}: its cost grows with the square of their number. Select features, or set "
        "leaf='constant'.",
    ),
    Rule(
        "leaf and dtype",
        lambda tree, model: model.leaf.needs_double and tree.dtype == "float32",
        "leaf={tree.leaf!r} needs double precision, because its sums of squares cancel; set "
        "dtype='auto' or 'float64', got 'float32'.",
    ),
)


def _refused_by_a_stage(tree: Any, model: Any) -> str:
    return next(filter(None, (complaint(stage.check, model) for stage in tree._plan.stages)), "")


STAGED: Rules = (Rule("model and method", _refused_by_a_stage, "{found}"),)


def _other_number_of_modes(tree: Any, _: Any) -> int:
    """Return the number of fitted modes if a warm start asks for another, otherwise 0."""
    if tree.n_modes is None or not tree._continues():
        return 0
    n_fitted = len(tree.fitted_.trees)
    return 0 if n_fitted == tree.n_modes else n_fitted


MODES: Rules = (
    Rule(
        "warm_start and n_modes",
        _other_number_of_modes,
        "warm_start=True continues from {found} fitted modes: set n_modes={found}, or "
        "warm_start=False to fit new trees.",
    ),
    Rule(
        "mode_weights and inference",
        lambda tree, _: (
            tree.mode_weights == "elbo"
            and tree._plan.n_trees > 1
            and not isinstance(tree._plan.last, Svi | Vi)
        ),
        "mode_weights='elbo' needs inference='vi' or 'svi', got {tree.inference!r}; use "
        "mode_weights='equal' or 'stacking'.",
    ),
    Rule(
        "mode_weights and draws",
        lambda tree, _: (
            tree.mode_weights == "stacking"
            and tree._plan.n_trees > 1
            and not scores_unseen_rows(tree)
        ),
        "mode_weights='stacking' needs several draws or held-out rows, and "
        "inference={tree.inference!r} is a point estimate: use mode_weights='equal', or hold rows "
        "out by validation_fraction.",
    ),
)

MONOTONE: Rules = (
    Rule(
        "warm_start and monotonic_cst",
        lambda tree, model: tree._continues() and model.monotone != tree.posterior_.model.monotone,
        "warm_start=True continues a tree that was fitted with another monotonic_cst: restore it, "
        "or set warm_start=False to fit a new tree.",
    ),
    Rule(
        "monotonic_cst and leaf",
        lambda _, model: model.monotone and model.leaf.level_site is None,
        "monotonic_cst needs two classes, or one output and leaf='constant' or 'poisson', got "
        "leaves {model.leaf!r}; leave it at None.",
    ),
)

FACET_COLUMNS: Rules = (
    Rule(
        "warm_start and interaction_constraints",
        lambda tree, model: tree._continues() and model.groups != tree.posterior_.model.groups,
        "warm_start=True continues a tree that was fitted with other interaction_constraints: "
        "restore them, or set warm_start=False to fit a new tree.",
    ),
)


def asks_for_sparsity(tree: Any) -> str:
    """Return the parameters that ask for sparse facets; empty if none does."""
    asked = ((name, getattr(tree, name)) for name in ("sparsity", "max_columns", "points"))
    return " and ".join(f"{name}={one!r}" for name, one in asked if one not in ("auto", None))


def _searches_another_prior(tree: Any, _: Any) -> bool:
    searches = any(isinstance(stage, Svi) and stage.search_facets for stage in tree._plan.stages)
    known = isinstance(tree._plan.prior, InverseGammaScale)
    paths = [stage.steepness or (1, 1) for stage in tree._plan.stages if isinstance(stage, Map)]
    return searches and not (known and paths[0][1] == 1 and tree._plan.n_experts > 1)


ONLY_DEPTH = "only max_depth limits the trees that it samples"
# What has no meaning, or no effect, where the draws have topologies of their own: several modes
# would be copies of one posterior, and limits would bind the grown tree alone.
WITHOUT_EFFECT = {
    "warm_start": "every run starts from the prior",
    "validation_fraction": "it does not use held-out rows; to judge the fit, split the rows before "
    "it",
    "max_leaves": ONLY_DEPTH,
    "min_rows": ONLY_DEPTH,
    "min_leaf": ONLY_DEPTH,
    "min_gain": ONLY_DEPTH,
}


def _without_effect(name: str, reason: str) -> Rule:
    """Return the rule for a parameter that a sampler of topologies does not use."""
    return Rule(
        f"{name} and sampled topologies",
        lambda tree, _: tree._plan.samples_topology and differs(tree, name),
        f"inference={{tree.inference!r}} cannot use {name}={{tree.{name}!r}}: {reason}.",
    )


POLYTOPE: Rules = (
    *MODES,
    *MONOTONE,
    *FACET_COLUMNS,
    Rule(
        "sparsity and image_shape",
        lambda tree, _: tree.image_shape is not None and asks_for_sparsity(tree),
        "{found} cannot be combined with image_shape={tree.image_shape!r}, which gives the "
        "deterministic tree facets of its own; leave one of them at its default.",
    ),
    Rule(
        "search_facets and the model",
        _searches_another_prior,
        "search_facets needs prior='inverse-gamma', steepness 1, and n_experts of 2 or more, got "
        "{tree._plan.prior}, {tree.inference} and {tree._plan.n_experts}.",
    ),
    Rule(
        "n_modes and sampled topologies",
        lambda tree, _: tree._plan.samples_topology and tree._plan.n_trees > 1,
        "inference={tree.inference!r} cannot use n_modes above 1: n_chains sets the number of its "
        "runs.",
    ),
    *(_without_effect(name, reason) for name, reason in WITHOUT_EFFECT.items()),
)


OUTPUTS: Rules = (
    Rule(
        "several outputs",
        lambda tree, model: model.leaf.n_outputs > 1 and tree._plan.samples_topology,
        "y with several columns cannot be combined with inference={tree.inference!r}, which is for "
        "one output; fit a regressor for each column, or leave inference at its default.",
    ),
)


def _last_is(kind: Any, tree: Any) -> Any:
    """Return the last stage of a fit to batches if it is of this kind, otherwise None."""
    last = tree._before_rows(in_parts=True).last
    return last if isinstance(last, kind) else None


#: What batches of ``partial_fit`` cannot be combined with.
STREAMING: Rules = (
    Rule(
        "class_weight in batches",
        lambda tree, _: getattr(tree, "class_weight", None) == "balanced",
        "needs the same weights in all batches, got class_weight='balanced': give a dict",
    ),
    Rule(
        "inference in batches",
        lambda tree, _: not _last_is(Map | Svi, tree),
        "needs inference='map' or 'svi', got {tree.inference!r}",
    ),
    Rule(
        "n_modes in batches",
        lambda tree, _: tree._plan.n_trees > 1,
        "updates a single tree, got n_modes={tree.n_modes}: set n_modes=1",
    ),
    Rule(
        "guide in batches",
        lambda tree, _: (svi := _last_is(Svi, tree)) and not (svi.own_guide and svi.kl_weight == 1),
        "needs the package's own guide and kl_weight=1",
    ),
    Rule(
        "search in batches",
        lambda tree, _: (svi := _last_is(Svi, tree)) and svi.search_facets,
        "cannot use search_facets, which needs all rows at once: leave it at False",
    ),
    Rule(
        "sparsity in batches",
        lambda tree, _: asks_for_sparsity(tree),
        "cannot use {found}, because sparse facets need all rows at once: leave it at its default",
    ),
    Rule(
        "monotonic_cst in batches",
        lambda tree, _: tree.monotonic_cst is not None,
        "cannot keep predictions monotone: set monotonic_cst=None, or use fit",
    ),
    Rule(
        "interaction_constraints in batches",
        lambda tree, _: tree.interaction_constraints is not None,
        "cannot keep facets within groups of columns: set interaction_constraints=None, or use fit",
    ),
)


def _differs_from(tree: Any, _: Any, *, name: str, usual: Any) -> bool:
    """Return whether a parameter of the estimator, if it has it, has another value."""
    return bool(getattr(tree, name, usual) != usual)


def _takes_partitions(tree: Any) -> bool:
    """Return whether the rows of a fit may be spread over several processes."""
    if not tree._in_parts():
        return False
    stages = tree._before_rows(in_parts=True).stages
    return all(stage.in_partitions for stage in stages)


#: What rows in several processes (``fit_files``) cannot be combined with.
PARTITIONED: Rules = (
    Rule(
        "method for partitions",
        lambda tree, _: not _takes_partitions(tree),
        "needs a fit that takes its steps on minibatches: a convex polytope tree by "
        "inference='map', 'svi' or 'grow', with optimiser 'adam' and one of the package's own "
        "guides, or an end-to-end tree; without search_facets and leaves that regress",
    ),
    *(
        Rule(f"{name} for partitions", partial(_differs_from, name=name, usual=usual), message)
        for name, usual, message in (
            ("class_weight", None, "cannot use class_weight: name a column of weights instead"),
            ("validation_fraction", 0.0, "cannot hold out rows: leave validation_fraction at 0"),
            ("warm_start", False, "starts a new tree: leave warm_start at False"),
            ("n_jobs", None, "has all workers fit one tree after another: leave n_jobs at None"),
            ("device", "cpu", "runs on CPUs, got device={tree.device!r}: leave it at 'cpu'"),
        )
    ),
)
