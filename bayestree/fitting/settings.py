"""Settings of methods beside the parameters of the estimator, as run files and cards have them.

In Python they belong to the object of the method, such as ``inference=Svi(epochs=30)``; in a run
file they stand next to its name, as ``inference = "svi"`` and ``epochs = 30``.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any

from bayestree._utils.parameters import (
    Inference,
    ParameterError,
    Positive,
    declare,
    parameters_of,
    takes,
)
from bayestree._utils.wording import written
from bayestree.fitting.plan import PIPELINES
from bayestree.inference import Growth, Map, Mcmc, Nuts, Smc, Stage, Svi, Vi
from bayestree.inference.nuts.method import Chains
from bayestree.inference.stage import Minibatches
from bayestree.inference.svi import Variational


@declare
@takes(Chains, Variational)
class OfMethods:
    """The settings of all methods, by the names that files use."""

    growth_rate: Annotated[
        Positive | None,
        Inference(
            "Learning rate of the stumps, in units of an initial hyperplane; by default 0.15, but "
            "0.015 for classes unless inference is 'vi' or 'mcmc'."
        ),
    ] = None


#: The parameters of files that are settings of a method; ``n_jobs`` is one of the estimator.
SETTINGS = {name: one for name, one in parameters_of(OfMethods).items() if name != "n_jobs"}


def _same(*settings: type) -> dict[str, str]:
    """Return settings of the same names in files."""
    return {name: name for kind in settings for name in parameters_of(kind) if name in SETTINGS}


#: For each method, its settings and their names in files.
NAMES: Mapping[type[Stage], Mapping[str, str]] = {
    Growth: {"learning_rate": "growth_rate"},
    Map: _same(Minibatches),
    Vi: {"kl_weight": "kl_weight"},
    Svi: _same(Variational),
    Nuts: _same(Chains),
    Mcmc: {name: name for name in ("n_chains", "n_warmup")},
    Smc: {"n_chains": "n_chains"},
}


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
    if unknown := sorted(changed.keys() - _names_of(inference)):
        raise ParameterError(
            f"{', '.join(unknown)} would be ignored: inference={inference!r} has no such setting; "
            "leave it out."
        )
    kinds, found = PIPELINES[inference], []
    for kind in kinds:
        own = {setting: changed[name] for setting, name in NAMES[kind].items() if name in changed}
        follows = kind is Map and Svi in kinds  # has the settings of SVI
        if (own and not follows) or kind is kinds[-1]:
            stage = kind.from_keywords(own)
            found.append(replace(stage, steepness=None) if isinstance(stage, Map) else stage)
    return found[0] if len(found) == 1 else tuple(found)


def differs(name: str, value: Any) -> bool:
    """Return whether a setting has another value than its default."""
    return bool(value != SETTINGS[name].default)


def _names_of(method: str) -> set[str]:
    return {name for kind in PIPELINES[method] for name in NAMES[kind].values()}


def without_settings(given: Mapping[str, Any], fitted: str) -> dict[str, Any]:
    """Return parameters of version 0.2.0 with the settings of methods in ``inference``.

    Those that its method did not have, it ignored; "auto" has ``fitted`` the tree by a method.
    """
    settings = {name: value for name, value in given.items() if name in SETTINGS}
    found = {name: value for name, value in given.items() if name not in SETTINGS}
    method, changed = found["inference"], {n for n in settings if differs(n, settings[n])}
    if isinstance(method, str) and changed:
        named = (fitted if fitted in PIPELINES else "svi") if method == "auto" else method
        used = {name: settings[name] for name in changed & _names_of(named)}
        found["inference"] = with_settings(named, used) if used else method
    return found


def refuse_settings(given: Mapping[str, Any]) -> None:
    """Raise ParameterError for parameters that are settings of a method, with their new place."""
    moved = {name: given[name] for name in given if name in SETTINGS}
    if not moved:
        return
    named = given.get("inference", "auto")
    changed = {name for name, value in moved.items() if differs(name, value)}
    able = [name for name in PIPELINES if changed <= _names_of(name)]
    usual = named if named in able else able[0] if able and named == "auto" else ""
    if not changed:
        remedy = "leave the default out"
    elif usual:
        remedy = f"write inference={with_settings(usual, moved)!r}, with bayestree.inference"
    else:
        remedy = "give inference an object of bayestree.inference that has them"
    raise ParameterError(
        f"{', '.join(moved)} {'is a setting' if len(moved) == 1 else 'are settings'} of a method: "
        f"{remedy}."
    )
