"""Combinations of parameters that are refused: a table for each kind of estimator.

A rule judges what a fit is asked for: the parameters, the plan, the model, and the fit that it
continues. A class of estimators lists its rules in ``_rules``, next to those of its bases; those of
the trees in ``literature`` are in their modules. All are checked before any work is done.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch

from bayestree._utils.arrays import BoolArray
from bayestree.fitted.tree import Mixture
from bayestree.fitting.defaults import asks_for_sparsity, scores_unseen_rows
from bayestree.fitting.plan import FitPlan
from bayestree.inference import Map, Posterior, Svi, Vi
from bayestree.models.contracts import broken_contract


@dataclass(frozen=True, eq=False)
class Case:
    """What a fit is asked for."""

    given: Any  # the parameters of the estimator, as attributes
    defaults: Mapping[str, Any] = field(default_factory=dict)
    model: Any = None  # None before the rows are known
    plan: FitPlan | Any = None  # None for a fit without stages
    used: BoolArray | Any = None  # the features that the fit may use, (d,)
    start: Mixture | None = None  # the trees of the fit that is continued

    @property
    def before(self) -> Posterior | Any:
        """The posterior of the fit that is continued; None for a new one."""
        return None if self.start is None else self.start.shown.posterior

    def differs(self, name: str) -> bool:
        """Return whether a parameter has another value than its default."""
        return bool(getattr(self.given, name) != self.defaults[name])

    @property
    def n_used(self) -> int:
        """Number of features that the fit may use."""
        return int(np.count_nonzero(self.used))


class Rule(NamedTuple):
    """A combination that is refused.

    ``broken`` takes a case, and returns a true value if it breaks the rule. ``message`` is a format
    string that may use the attributes of the case, and ``found``, the true value.
    """

    name: str
    broken: Callable[[Case], object]
    message: str


Rules = tuple[Rule, ...]


def rules_of(kind: type) -> Rules:
    """Return the rules of a class of estimators, after the rules of its bases."""
    own = (vars(base).get("_rules", ()) for base in reversed(kind.__mro__))
    return tuple(chain.from_iterable(own))


def first_broken(rules: Iterable[Rule], case: Case) -> str:
    """Return the message of the first rule that is broken; empty if none is."""
    for rule in rules:
        if found := rule.broken(case):
            parts = {name: getattr(case, name) for name in ("given", "model", "plan", "before")}
            return rule.message.format(**parts, found=found)
    return ""


def complaint(check: Callable[..., object], *arguments: Any) -> str:
    """Return the message of the ValueError that a check raises; empty if it raises none."""
    try:
        check(*arguments)
    except ValueError as error:
        return str(error)
    return ""


def _why_no_device(case: Case) -> str:
    """Return the reason why the device cannot be used; empty if it can."""
    try:
        torch.zeros(1, device=case.given.device).item()  # "meta" makes tensors, but no numbers
    except (RuntimeError, AssertionError) as error:
        return str(error).splitlines()[0]
    return ""


def _has_another_split(case: Case) -> bool:
    if case.before is None:
        return False
    dropped = case.before.settings.get("drop_idle", False)  # by the fit itself
    return bool(case.model.split != case.before.model.split and not dropped)


def _broken_contract(case: Case) -> str:
    """Return how an object that the user passes as prior or leaf breaks its contract."""
    for name in ("prior", "weight_prior", "leaf"):
        given: Any = getattr(case.given, name, "")
        if type(given).__module__.startswith(("builtins", "bayestree.")):
            continue  # a name, or a part with tests of its own
        if reason := broken_contract(given, case.n_used):
            return f"{name}={given!r} cannot be used for {case.n_used} features: {reason}"
    return ""


CONTRACT = Rule("prior or leaf of the user", _broken_contract, "{found}")

BASE: Rules = (
    CONTRACT,
    Rule("device", _why_no_device, "device {given.device!r} cannot be used here: {found}"),
    Rule(
        "warm_start and splits",
        _has_another_split,
        "warm_start=True continues from {before.model.split!r} splits, but the parameters "
        "ask for {model.split!r}: change n_experts or split back, or set warm_start=False to fit a "
        "new tree.",
    ),
    Rule(
        "leaf and dtype",
        lambda case: case.model.leaf.needs_double and case.given.dtype == "float32",
        "leaf={given.leaf!r} needs double precision, because its sums of squares cancel; set "
        "dtype='auto' or 'float64', got 'float32'.",
    ),
)


def _refused_by_a_stage(case: Case) -> str:
    reasons = (complaint(stage.check, case.model) for stage in case.plan.stages)
    return next(filter(None, reasons), "")


STAGED: Rules = (Rule("model and method", _refused_by_a_stage, "{found}"),)


def _other_number_of_modes(case: Case) -> int:
    """Return the number of fitted modes if a warm start asks for another, otherwise 0."""
    if case.given.n_modes is None or case.start is None:
        return 0
    n_fitted = len(case.start.trees)
    return 0 if n_fitted == case.given.n_modes else n_fitted


MODES: Rules = (
    Rule(
        "warm_start and n_modes",
        _other_number_of_modes,
        "warm_start=True continues from {found} fitted modes: set n_modes={found}, or "
        "warm_start=False to fit new trees.",
    ),
    Rule(
        "mode_weights and inference",
        lambda case: (
            case.given.mode_weights == "elbo"
            and case.plan.n_trees > 1
            and not isinstance(case.plan.last, Svi | Vi)
        ),
        "mode_weights='elbo' needs inference='vi' or 'svi', got {given.inference!r}; use "
        "mode_weights='equal' or 'stacking'.",
    ),
    Rule(
        "mode_weights and draws",
        lambda case: (
            case.given.mode_weights == "stacking"
            and case.plan.n_trees > 1
            and not scores_unseen_rows(case.plan.last, case.given.validation_fraction)
        ),
        "mode_weights='stacking' needs several draws or held-out rows, and "
        "inference={given.inference!r} is a point estimate: use mode_weights='equal', or hold rows "
        "out by validation_fraction.",
    ),
)

MONOTONE: Rules = (
    Rule(
        "warm_start and monotonic_cst",
        lambda case: case.before is not None and case.model.monotone != case.before.model.monotone,
        "warm_start=True continues a tree that was fitted with another monotonic_cst: restore it, "
        "or set warm_start=False to fit a new tree.",
    ),
    Rule(
        "monotonic_cst and leaf",
        lambda case: case.model.monotone and case.model.leaf.level_site is None,
        "monotonic_cst needs two classes, or one output and leaf='constant' or 'poisson', got "
        "leaves {model.leaf!r}; leave it at None.",
    ),
)

FACET_COLUMNS: Rules = (
    Rule(
        "warm_start and interaction_constraints",
        lambda case: case.before is not None and case.model.groups != case.before.model.groups,
        "warm_start=True continues a tree that was fitted with other interaction_constraints: "
        "restore them, or set warm_start=False to fit a new tree.",
    ),
)


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
        lambda case: case.plan.samples_topology and case.differs(name),
        f"inference={{given.inference!r}} cannot use {name}={{given.{name}!r}}: {reason}.",
    )


POLYTOPE: Rules = (
    *MODES,
    *MONOTONE,
    *FACET_COLUMNS,
    Rule(
        "sparsity and image_shape",
        lambda case: case.given.image_shape is not None and asks_for_sparsity(vars(case.given)),
        "{found} cannot be combined with image_shape={given.image_shape!r}, which gives the "
        "deterministic tree facets of its own; leave one of them at its default.",
    ),
    Rule(
        "sparsity of rows in a file",
        lambda case: case.plan.table.on_disk and asks_for_sparsity(vars(case.given)),
        "{found} cannot be used, because sparse facets need the rows in memory, but these stay in "
        "a file: leave it at its default.",
    ),
    Rule(
        "n_modes and sampled topologies",
        lambda case: case.plan.samples_topology and case.plan.n_trees > 1,
        "inference={given.inference!r} cannot use n_modes above 1: n_chains sets the number of its "
        "runs.",
    ),
    *(_without_effect(name, reason) for name, reason in WITHOUT_EFFECT.items()),
)


OUTPUTS: Rules = (
    Rule(
        "several outputs",
        lambda case: case.model.leaf.n_outputs > 1 and case.plan.samples_topology,
        "y with several columns cannot be combined with inference={given.inference!r}, which is "
        "for one output; fit a regressor for each column, or leave inference at its default.",
    ),
)


def _last_is(kind: Any, case: Case) -> Any:
    """Return the last stage of a fit if it is of this kind, otherwise None."""
    return case.plan.last if isinstance(case.plan.last, kind) else None


#: What batches of ``partial_fit`` cannot be combined with.
STREAMING: Rules = (
    Rule(
        "class_weight in batches",
        lambda case: getattr(case.given, "class_weight", None) == "balanced",
        "needs the same weights in all batches, got class_weight='balanced': give a dict",
    ),
    Rule(
        "inference in batches",
        lambda case: not _last_is(Map | Svi, case),
        "needs inference='map' or 'svi', got {given.inference!r}",
    ),
    Rule(
        "n_modes in batches",
        lambda case: case.plan.n_trees > 1,
        "updates a single tree, got n_modes={given.n_modes}: set n_modes=1",
    ),
    Rule(
        "guide in batches",
        lambda case: (svi := _last_is(Svi, case)) and not (svi.own_guide and svi.kl_weight == 1),
        "needs the package's own guide and kl_weight=1",
    ),
    Rule(
        "engine in batches",
        lambda case: (last := _last_is(Map | Svi, case)) and not last.adds_rows,
        "needs engine='direct' and, with MAP, objective='likelihood'",
    ),
    Rule(
        "sparsity in batches",
        lambda case: asks_for_sparsity(vars(case.given)),
        "cannot use {found}, because sparse facets need all rows at once: leave it at its default",
    ),
    Rule(
        "monotonic_cst in batches",
        lambda case: case.given.monotonic_cst is not None,
        "cannot keep predictions monotone: set monotonic_cst=None, or use fit",
    ),
    Rule(
        "interaction_constraints in batches",
        lambda case: case.given.interaction_constraints is not None,
        "cannot keep facets within groups of columns: set interaction_constraints=None, or use fit",
    ),
)


#: What a fit to a sample of rows on workers (``fit_files``) cannot be combined with.
PARTITIONED: Rules = (
    Rule(
        "class_weight in files",
        lambda case: getattr(case.given, "class_weight", None) is not None,
        "cannot use class_weight: name a column of weights instead",
    ),
    Rule(
        "warm_start in files",
        lambda case: case.given.warm_start,
        "starts a new tree: leave warm_start at False",
    ),
)
