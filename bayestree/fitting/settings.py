"""Settings of methods and priors beside the parameters of the estimator, as in run files and cards.

In Python they belong to the object of the method or prior, such as ``inference=Svi(epochs=30)`` and
``prior=Laplace(3.0)``; in a run file they stand next to its name, as ``inference = "svi"`` and
``epochs = 30``.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Annotated, Any, Literal

from bayestree._utils.parameters import (
    NONE,
    Count,
    Inference,
    Model,
    Parameter,
    ParameterError,
    Positive,
    Size,
    declare,
    parameters_of,
    takes,
)
from bayestree._utils.wording import written
from bayestree.fitted.serialization import REMOVED
from bayestree.fitting.defaults import PIPELINES, WEIGHT_PRIORS, agreed, named_prior, pipeline
from bayestree.inference import Growth, Map, Mcmc, Nuts, Smc, Stage, Svi, Vi
from bayestree.inference.samplers.nuts import Chains
from bayestree.inference.stage import Minibatches
from bayestree.inference.training import Engine
from bayestree.inference.variational.svi import Variational
from bayestree.models.priors import GroupedScale


@declare
@takes(Chains, Variational)
class OfMethods:
    """The settings of all methods, by the names that files use."""

    steepness: Annotated[
        Positive | None,
        Inference(
            "Final factor of the log-odds of every split; 1 is the paper's model. By default 6 for "
            "SVI and NUTS, 1 for VI, MCMC and SMC (6 for numbers), and for MAP 1, 6 or 20, by "
            "left-out rows."
        ),
    ] = None
    objective: Annotated[
        Literal["likelihood", "impurity"],
        Inference(
            "What MAP maximises: the likelihood of the mixture of all leaves, or the mutual "
            "information of classes and leaves (of numbers the variance within leaves)."
        ),
    ] = "likelihood"
    n_draws: Annotated[
        Count | None,
        Inference("Draws of each chain; by default 50 by VI and SVI, 250 of chains, 1,000 by SMC."),
    ] = None
    growth_rate: Annotated[
        Positive | None,
        Inference(
            "Learning rate of the stumps, in units of an initial hyperplane; by default 0.15, but "
            "0.015 for classes unless inference is 'vi' or 'mcmc'."
        ),
    ] = None


@declare
class OfPriors:
    """The settings of named priors, by the names that files use (see ``bayestree.models``)."""

    concentration: Annotated[Positive, Model("gamma_0 of the gamma process.")] = 1.0
    rate: Annotated[Positive, Model("c_0 of the gamma process.")] = 1.0
    scale_shape: Annotated[Positive, Model("a_beta of the inverse-gamma scales (eq. 6).")] = 2.0
    shrinkage_shape: Annotated[Positive, Model("e_0 of the gamma prior of b_beta.")] = 1.0
    shrinkage_rate: Annotated[Positive, Model("f_0, a rate, of the gamma prior of b_beta.")] = 1.0
    prior_width: Annotated[
        Positive | None,
        Model("Number of features at which coefficients have the scale of the intercept."),
    ] = None
    scale_groups: Annotated[
        Literal["columns"] | tuple[tuple[str, ...], ...] | tuple[tuple[Size, ...], ...] | None,
        Model(
            "Coefficients that share an inverse-gamma scale: 'columns' for all features of a "
            "column, or groups of columns by name or number."
        ),
    ] = None
    l1: Annotated[Positive, Model("Rate of the 'laplace' prior.")] = 1.0
    spatial: Annotated[Positive, Model("Strength of the 'spatial' prior (E2EDT, eq. 15).")] = 1.0


#: The parameters of files that are settings of a method; ``n_jobs`` is one of the estimator.
SETTINGS = {name: one for name, one in parameters_of(OfMethods).items() if name != "n_jobs"}
OF_PRIORS = parameters_of(OfPriors)


def _same(*settings: type) -> dict[str, str]:
    """Return settings of the same names in files."""
    return {name: name for kind in settings for name in parameters_of(kind) if name in SETTINGS}


#: For each method, its settings and their names in files.
NAMES: Mapping[type[Stage], Mapping[str, str]] = {
    Growth: {"learning_rate": "growth_rate"},
    Map: _same(Minibatches, Engine) | {name: name for name in ("objective", "steepness")},
    Vi: {name: name for name in ("kl_weight", "steepness", "n_draws")},
    Svi: _same(Svi),
    Nuts: _same(Nuts),
    Mcmc: {name: name for name in ("n_chains", "n_warmup", "n_draws")},
    Smc: {name: name for name in ("n_chains", "steepness", "n_draws")},
}
#: Settings of files that a method without them ignores, as a card may have them for another one.
IGNORED = ("steepness", "n_draws")


#: For each name of a prior, its fields and their names in files.
PRIORS: Mapping[str, Mapping[str, str]] = {
    "inverse-gamma": {
        "shape": "scale_shape",
        "shrinkage_shape": "shrinkage_shape",
        "shrinkage_rate": "shrinkage_rate",
        "width": "prior_width",
        "groups": "scale_groups",
    },
    "laplace": {"rate": "l1"},
    "spatial": {"strength": "spatial"},
}


def prior_settings(*, classes: bool) -> dict[str, Parameter]:
    """Return the parameters of files that are settings of priors, with their defaults."""
    usual = vars(named_prior("inverse-gamma", int(classes)))
    own = {name: usual[one] for one, name in PRIORS["inverse-gamma"].items() if one in usual}
    return {n: replace(one, default=own.get(n, one.default)) for n, one in OF_PRIORS.items()}


def with_priors(given: Mapping[str, Any], known: Mapping[str, Parameter]) -> dict[str, Any]:
    """Return parameters with the settings of priors, if they are not the defaults, in objects."""
    found = {name: value for name, value in given.items() if name not in OF_PRIORS}
    own: dict[str, Any] = {
        n: None if given.get(n) == NONE else given.get(n, known[n].default) for n in OF_PRIORS
    }
    changed = {name for name, value in own.items() if value != known[name].default}
    weight = found.get("weight_prior", "gamma-process")
    if changed & {"concentration", "rate"} and isinstance(weight, str):
        found["weight_prior"] = WEIGHT_PRIORS[weight](own["concentration"], own["rate"])
    name = found.get("prior", "inverse-gamma")
    fields = PRIORS.get(name, {}) if isinstance(name, str) else {}
    if "scale_groups" in changed and "groups" not in fields:
        raise ParameterError(
            f"scale_groups needs prior='inverse-gamma', whose scales they share, got {name!r}."
        )
    if changed & {*fields.values()}:
        values = {field: own[name] for field, name in fields.items()}
        groups = values.pop("groups", None)
        usual: Any = named_prior(name, 0, found.get("image_shape"))
        prior = replace(usual, **values)
        found["prior"] = GroupedScale(**vars(prior), groups=groups) if groups else prior
    return found


def with_settings(inference: Any, given: Mapping[str, Any]) -> Any:
    """Return ``inference`` with those of its settings that have other values than their defaults.

    Raises
    ------
    ParameterError
        If the method is not named, has its own settings already, or does not have one of these.
    """
    changed = {name: value for name, value in given.items() if differs(name, value)}
    if not changed:
        return inference
    if isinstance(inference, Stage) and changed.keys() <= {*IGNORED}:
        return _with_common(inference, **changed)
    _check_named(inference, changed)
    if not changed.keys() & _names_of(inference):
        return inference
    kinds, found = PIPELINES[inference], []
    for kind in kinds:
        own = {
            setting: changed[name]
            for setting, name in NAMES.get(kind, {}).items()
            if name in changed
        }
        if kind is not kinds[-1]:
            own.pop("n_draws", None)
        follows = kind is Map and Svi in kinds  # has the settings of SVI
        if (own and not follows) or kind is kinds[-1]:
            stage: Any = kind.from_keywords(own)
            chosen = isinstance(stage, Map) and "steepness" not in own
            found.append(replace(stage, steepness=None) if chosen else stage)
    return found[0] if len(found) == 1 else tuple(found)


def _with_common(stage: Stage, steepness: float | None = None, n_draws: int | None = None) -> Any:
    """Return a method with the settings of files that any method may have."""
    stage = agreed(stage, "n_draws", n_draws)
    kinds = pipeline(stage)[1]
    owner = next((kind for kind in reversed(kinds) if "steepness" in parameters_of(kind)), None)
    if steepness is None or owner is None:
        return stage
    if isinstance(stage, owner):
        return agreed(stage, "steepness", steepness)
    return owner.from_keywords({"steepness": steepness}), stage


def _check_named(inference: Any, changed: Mapping[str, Any]) -> None:
    """Raise ParameterError unless ``inference`` is the name of a method with these settings."""
    shown = ", ".join(f"{name}={written(value)}" for name, value in changed.items())
    if not isinstance(inference, str):
        raise ParameterError(
            f"{shown} would be ignored: inference={inference!r} has its own settings."
        )
    if inference == "auto":
        able = [name for name in PIPELINES if changed.keys() <= _names_of(name)]
        raise ParameterError(
            f"{shown} {'is' if len(changed) == 1 else 'are'} for inference "
            f"{' or '.join(map(repr, able)) or 'methods that do not go together'}, and 'auto' "
            "chooses by the rows: name the method."
        )
    if unknown := sorted(changed.keys() - _names_of(inference) - {*IGNORED}):
        raise ParameterError(
            f"{', '.join(unknown)} would be ignored: inference={inference!r} has no such setting; "
            "leave it out."
        )


def differs(name: str, value: Any) -> bool:
    """Return whether a setting has another value than its default."""
    return bool(value != SETTINGS[name].default)


def _names_of(method: str) -> set[str]:
    return {name for kind in PIPELINES.get(method, ()) for name in NAMES.get(kind, {}).values()}


def foreign_settings(method: Any) -> set[str]:
    """Return the settings in files that a method, by name or with its own, does not have."""
    return SETTINGS.keys() - {*IGNORED} - (_names_of(method) if isinstance(method, str) else set())


def with_methods(given: Mapping[str, Any], fitted: str = "") -> dict[str, Any]:
    """Return parameters with the settings of methods in ``inference``.

    Version 0.2.0 ignored those that its method did not have; its "auto" has ``fitted`` the tree.
    """
    settings = {name: value for name, value in given.items() if name in SETTINGS}
    found = {name: value for name, value in given.items() if name not in SETTINGS}
    method, changed = found["inference"], {n for n in settings if differs(n, settings[n])}
    if not fitted:
        found["inference"] = with_settings(method, settings)
    elif isinstance(method, str | Stage) and changed:
        named = (fitted if fitted in PIPELINES else "svi") if method == "auto" else method
        able = _names_of(named) if isinstance(named, str) else {*IGNORED}
        used = {name: settings[name] for name in changed & able}
        found["inference"] = with_settings(named, used) if used else method
    return found


def refuse_settings(kind: Any, given: Mapping[str, Any]) -> None:
    """Raise ParameterError for former parameters of a class, with what to do."""
    usual = {name: one.default for name, one in parameters_of(kind).items()}
    former = [name for name in given if name not in usual]
    if not former:
        return
    for name in former:
        if name in REMOVED:
            raise ParameterError(f"{name} was removed after version 0.2.0; {REMOVED[name][1]}.")
    known = kind.file_settings()
    moved = [name for name in former if name in known]
    if not moved:
        return
    changed = {name for name in moved if given[name] != known[name].default}
    asked, of_method = usual | dict(given), changed & SETTINGS.keys()
    if of_method and asked["inference"] == "auto":
        able = (name for name in PIPELINES if of_method <= _names_of(name))
        asked["inference"] = next(able, "auto")
    remedy = "give inference or prior an object that has them" if changed else "leave it out"
    with suppress(ParameterError):
        new = kind.with_objects(asked)
        if own := [f"{name}={new[name]}" for name in usual if new[name] != asked[name]]:
            remedy = f"write {', '.join(own)}, with bayestree.inference and bayestree.models"
    what = "is a setting" if len(moved) == 1 else "are settings"
    raise ParameterError(f"{', '.join(moved)} {what} of a method or a prior: {remedy}.")
