"""Which estimator to fit, from the tree's name, cards and single settings, each value checked."""

import difflib
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bayestree._cli.rows import Prepared
from bayestree._cli.trees import TREES

if TYPE_CHECKING:
    from bayestree.estimators._base import BaseTree

DEFAULT_TREE = "cpt"
OWN_OPTION = {"random_state": "--seed", "verbose": None}  # set by the command line itself
BARE_WORD = re.compile(r"[A-Za-z_][\w-]*")


class Setting(NamedTuple):
    """A value for a parameter, and where it was written: ``--depth``, or a card's name."""

    name: str
    value: Any
    source: str


class Choice(NamedTuple):
    """A tree by name, and what was set for it; later settings win."""

    tree: str
    settings: list[Setting]


def choose(
    tree: str | None,
    cards: Iterable[Path],
    options: Mapping[str, tuple[str, Any]],
    pairs: Iterable[str],
) -> Choice:
    """Gather the settings of a fit, before any of them is checked against its estimator.

    Parameters
    ----------
    tree : str, optional
        As ``--tree`` says; else what a card says, else the convex polytope tree.
    cards : paths of TOML files
    options : mapping
        Option, as it is typed, to a parameter and its value; None where it was not given.
    pairs : iterable of str
        ``NAME=VALUE``.

    Raises
    ------
    InputError
        For a card that cannot be read, a tree that is not known, two trees at once, or a pair
        that is none.
    """
    settings: list[Setting] = []
    named = {} if tree is None else {"--tree": tree}
    for path in cards:
        values = read_card(path)
        if "tree" in values:
            named[f"card {str(path)!r}"] = values.pop("tree")
        settings += [Setting(name, value, f"card {str(path)!r}") for name, value in values.items()]
    settings += [
        Setting(name, value, option)
        for option, (name, value) in options.items()
        if value is not None
    ]
    settings += map(read_pair, pairs)
    return Choice(_one_tree(named), settings)


def read_card(path: Path) -> dict[str, Any]:
    """The values of a card: a TOML file without sections."""
    from bayestree.tables import InputError

    if not path.is_file():
        raise InputError(f"--card {str(path)!r} is no file; give a card in TOML.")
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"--card {str(path)!r} is not TOML: {error}.") from error


def read_pair(pair: str) -> Setting:
    """``NAME=VALUE`` with the value as TOML writes it; a bare word is text."""
    from bayestree.tables import InputError

    name, equals, text = (part.strip() for part in pair.partition("="))
    if not (name and equals and text):
        raise InputError(f"--set {pair!r} is not of the form NAME=VALUE.")
    try:
        found = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        found = {"value": text} if BARE_WORD.fullmatch(text) else {}
    if found.keys() != {"value"}:
        raise InputError(
            f"--set {pair!r}: {text!r} is not a TOML value; write a number, true, false, "
            '"text" or [a list].'
        )
    return Setting(name, found["value"], "--set")


def make(choice: Choice, task: str, *, seed: int) -> "BaseTree":
    """The estimator of a choice, unfitted.

    Raises
    ------
    InputError
        If the tree has no estimator of the task, or a setting is none of its parameters, is
        what the tree fixes, or has a value that the parameter cannot take.
    """
    import bayestree
    from bayestree.tables import InputError

    tree = TREES[choice.tree]
    kind = tree.of(task)
    if kind is None:
        able = ", ".join(name for name, other in TREES.items() if other.of(task))
        raise InputError(f"tree {choice.tree!r} is of classes only; for {task} take {able}.")
    estimator: BaseTree = getattr(bayestree, kind)()
    parameters = estimator.get_params(deep=False)
    for setting in choice.settings:
        _check_setting(setting, choice.tree, parameters)
    own = {"random_state": seed, "verbose": True}
    estimator.set_params(
        **tree.start,
        **tree.fixed,
        **{name: value for name, value in own.items() if name in parameters},
    )
    estimator.set_params(**{setting.name: setting.value for setting in choice.settings})
    try:
        estimator._validate_params()
    except ValueError as error:
        raise InputError(str(error)) from error
    return estimator


def fit_rows(estimator: "BaseTree", prepared: Prepared, choice: Choice) -> None:
    """Fit; settings that do not go together are input that cannot be used.

    A ValueError with no settings at all is a fault of the program, and stays one.
    """
    from bayestree.tables import InputError

    fit: Callable[..., Any] = estimator.fit
    try:
        fit(prepared.X, prepared.y, prepared.weights)
    except ValueError as error:
        if not choice.settings:
            raise
        raise InputError(str(error)) from error


def _one_tree(named: Mapping[str, Any]) -> str:
    from bayestree.tables import InputError

    for source, name in named.items():
        if not (isinstance(name, str) and name in TREES):
            raise InputError(f"{source}: no tree is named {name!r}{_nearest(str(name), TREES)}")
    if len(set(named.values())) > 1:
        told = " and ".join(f"{source} names {name!r}" for source, name in named.items())
        raise InputError(f"two trees at once: {told}; take one.")
    return next(iter(named.values()), DEFAULT_TREE)


def _check_setting(setting: Setting, tree: str, parameters: Mapping[str, Any]) -> None:
    from bayestree.tables import InputError

    name, value, source = setting
    if name not in parameters:
        typed = source == "--set" or source.startswith("card ")
        remedy = _nearest(name, parameters.keys() - OWN_OPTION) if typed else "; leave it out."
        raise InputError(f"{source}: tree {tree!r} has no parameter {name!r}{remedy}")
    if name in OWN_OPTION:
        remedy = f"use {OWN_OPTION[name]}" if OWN_OPTION[name] else "leave it out"
        raise InputError(f"{source}: {name!r} is set by the command line; {remedy}.")
    fixed = TREES[tree].fixed
    if fixed.get(name, value) != value:
        raise InputError(
            f"{source}: {name} = {value!r}, but tree {tree!r} is the one with {name} = "
            f"{fixed[name]!r}; name another tree."
        )


def _nearest(name: str, known: Iterable[str]) -> str:
    """The end of a message: the nearest right name, or all of them."""
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.7)
    return f"; did you mean {close[0]!r}?" if close else f"; it may be one of {', '.join(known)}."
