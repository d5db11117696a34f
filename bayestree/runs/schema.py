"""The run file: the data, the model, the inference and the outputs of a run, all checked."""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import tomli_w
from numpy.typing import ArrayLike
from sklearn.base import is_classifier

from bayestree._utils.parameters import ParameterError, parameters_of
from bayestree._utils.wording import InputError, nearest_match
from bayestree._utils.write import write_whole
from bayestree.estimators._estimator import Estimator
from bayestree.estimators.registry import GUESSED, TREES, tasks_of
from bayestree.fitted.serialization import OLD_GUIDE, REMOVED
from bayestree.runs.cards import FOLDERS, Card, find_any, find_card, read_pair, read_toml
from bayestree.runs.configuration import (
    ClusterTable,
    DataTable,
    Head,
    OutputTable,
    abbreviated,
    check_links,
    relative_path,
    resolve_path,
)
from bayestree.runs.settings import (
    CARD_KEYS,
    Setting,
    card_settings,
    check_parameters,
    check_section,
    estimator_of,
    file_settings,
    find_key,
    tree_parameters,
    without_former_method,
)

DEFAULT_TREE = "cpt"


class RunFile(Head):
    """A run whose values have all been checked.

    ``settings`` belong to ``[model]`` and ``[inference]``; later ones win.
    """

    data: DataTable
    tree: str
    settings: tuple[Setting, ...] = ()
    output: OutputTable
    cluster: ClusterTable | None = None

    @classmethod
    def from_parts(
        cls,
        parts: Mapping[str, Any],
        where: str | Path,
        *,
        sets: Iterable[tuple[str, Any]] = (),
        source: str = "--set",
        root: str | Path | None = None,
    ) -> Self:
        """Create a run from the content of a run file, or raise an InputError with the remedy.

        Messages name the file ``where``, which need not exist, and paths are relative to it.
        ``sets`` are values by ``"table.key"`` or ``"key"`` that replace values of the file;
        ``source`` is their origin, for messages. No path may leave the folder ``root``.
        """
        settings = [
            *file_settings(parts, Path(where).name),
            *(Setting(source, *find_key(name, source), value) for name, value in sets),
        ]
        return cls.from_settings(settings, Path(where), root=root)

    @classmethod
    def from_settings(
        cls,
        settings: Sequence[Setting],
        where: Path,
        *,
        cards: Sequence[Card] = (),
        root: str | Path | None = None,
    ) -> Self:
        """Create a run from settings, after their cards and the given ``cards``; later ones win."""
        last = {(one.table, one.key): one for one in settings}
        parameters = [one for card in cards for one in card_settings(card)]
        trees = [(f"card {card.name!r}", card.tree) for card in cards]
        for kind in FOLDERS:
            if one := last.get((kind, "card")):
                start = f"{one.origin}: "
                card = find_card(one.value, kind, folder=where.parent, root=root, where=start)
                trees.append((f"card {card.name!r}", card.tree))
                # a model card may state how its tree is fitted
                parameters += card_settings(card, kind if kind == "inference" else None)
        if one := last.get(("model", "tree")):
            trees.append((one.origin, one.value))
        parameters += [
            one for one in settings if one.key not in CARD_KEYS.get(one.table, (one.key,))
        ]
        head, cluster = (
            {one.key: one for one in last.values() if one.table == table}
            for table in ("", "cluster")
        )
        run = cls(
            **dict(check_section(Head, head, where, root)),
            data=_data(settings, where, root),
            tree=one_tree({origin: tree for origin, tree in trees if tree is not None}),
            settings=tuple(without_former_method(parameters)),
            output=_output(last, where, root),
            cluster=check_section(ClusterTable, cluster, where, root) if cluster else None,
        )
        run.check()
        return run

    def task(self) -> str | None:
        """Return the task of the file, or the only one of the tree; None if the data decide it."""
        if self.data.stated_task != "auto":
            return self.data.stated_task
        if len(self.data.targets) > 1:
            return "regression"
        tasks = [task for task in tasks_of(self.tree) if task in GUESSED]
        return tasks[0] if len(tasks) == 1 else None

    def parameters(self, task: str | None = None) -> dict[str, Any]:
        """Return the arguments of the estimator; an InputError names a setting that it cannot take.

        The task is needed if the file leaves it to the data.
        """
        task = task or self._known_task()
        check_task(self.tree, task)
        found = check_parameters(self.settings, self.tree, task)
        seeded = "random_state" in parameters_of(estimator_of(self.tree, task))
        return found | ({"random_state": self.seed} if seeded else {})

    def estimator(self, task: str | None = None, labels: ArrayLike | None = None) -> Estimator:
        """Return the estimator of the run, not fitted.

        ``class_weight`` in a file names classes by text, which ``labels``, the targets of the rows,
        replace by the classes.
        """
        found = self.parameters(task)
        weights = found.get("class_weight")
        if labels is not None and isinstance(weights, Mapping):
            found["class_weight"] = _by_label(weights, labels)
        kind = estimator_of(self.tree, str(task or self.task()))
        try:
            found = kind.with_objects(found)
        except ParameterError as error:
            raise InputError(str(error)) from error
        made = kind(**found, missing_values=self.data.missing_values)
        several = len(self.data.targets) > 1
        if several and is_classifier(made):
            raise InputError("several targets need the task 'regression': list one.")
        if several and not made.__sklearn_tags__().target_tags.multi_output:
            raise InputError(
                "several targets need the tree 'cpt' with leaf = \"constant\", got tree "
                f"{self.tree!r} with leaf {getattr(made, 'leaf', 'constant')!r}: list one target."
            )
        return made

    def explicit(self, task: str) -> "RunFile":
        """Return the same run with a task, every value set and no card, as in a run folder."""
        values = self.parameters(task)
        settings = tuple(
            Setting(f"[{table}]", table, name, one.to_file(values[name]))
            for table in CARD_KEYS
            for name, one in tree_parameters(self.tree, task).items()
            if one.group == table
        )
        data = self.data.model_copy(update={"task": task})
        return self.model_copy(update={"data": data, "settings": settings})

    def to_toml(self, folder: str | Path) -> str:
        """Return the text of a run file in ``folder``, with paths relative to it.

        The data must not decide the task, as cards can have other values for each.
        """
        home, task = Path(folder).resolve(), self._known_task()
        data = self.data.model_dump(exclude_none=True, exclude={"path"})
        if self.data.test is not None:
            del data["test_fraction"]
            data["test"] = relative_path(self.data.test, home)
        tables: dict[str, dict[str, Any]] = {"model": {"tree": self.tree}, "inference": {}}
        for one in self.settings:
            if one.task in (None, task):
                tables[one.table][one.key] = one.value
        output = self.output.model_dump(exclude={"folder"})
        content = {
            **self.model_dump(include={*Head.model_fields}),
            "data": {"path": relative_path(self.data.path, home), **data},
            **tables,
            "output": {"folder": relative_path(self.output.folder, home), **output},
        }
        if self.cluster is not None:
            content["cluster"] = self.cluster.model_dump(exclude_none=True)
        return tomli_w.dumps(content)

    def write_toml(self, path: str | Path) -> None:
        write_whole(Path(path), self.to_toml(Path(path).parent))

    def check(self) -> None:
        """Raise InputError if the settings are invalid for every task that the run can have."""
        self.check_tasks(self.parameters)

    def check_tasks(self, check: Callable[[str], object]) -> None:
        """Make a check for the tasks that the run can have; an InputError if all of them fail."""
        task = self.task()
        first, *others = GUESSED if task is None else [task]
        for other in others:
            with suppress(InputError):
                check(other)
                return
        check(first)

    def _known_task(self) -> str:
        task = self.task()
        if task is None:
            raise ValueError("the task depends on the data; pass 'classification' or 'regression'.")
        return task


def read_run(
    path: str | Path,
    sets: Iterable[str] = (),
    *,
    root: str | Path | None = None,
    removed: Literal["refused", "default", "any"] = "refused",
) -> RunFile:
    """Read a run file; an InputError names what is unknown or invalid.

    ``sets`` such as ``"table.key=value"`` or ``"key=value"`` replace values of the file. No path,
    the file's included, may leave the folder ``root``. ``removed`` says which parameters that the
    package no longer has are ignored: none, those at their former defaults, or all.
    """
    where = resolve_path(path, Path.cwd(), root=root, what="run file")
    parts = read_toml(where, "run file")
    if removed != "refused":
        parts = without_removed(parts, every=removed == "any")
    return RunFile.from_parts(parts, where, sets=map(read_pair, sets), root=root)


def without_removed(parts: Mapping[str, Any], *, every: bool = False) -> dict[str, Any]:
    """Drop parameters that were removed, at their former defaults or ``every``, from a run file."""

    def kept(table: Mapping[str, Any]) -> dict[str, Any]:
        own = REMOVED if table.get("name", "svi") == "svi" else {}
        return {
            key: kept(value) if isinstance(value, dict) else value
            for key, value in table.items()
            if key not in own or not (every or value == own[key][0])
            if not (every and value == OLD_GUIDE)
        }

    found = dict(parts)
    if isinstance(parts.get("inference"), dict):
        found["inference"] = kept(parts["inference"])
    if every and isinstance(parts.get("cluster"), dict):
        kept_keys = {k: v for k, v in parts["cluster"].items() if k != "partitions"}
        found["cluster"] = kept_keys or {"workers": 1}
    return found


def value_lines(content: Mapping[str, Any]) -> list[str]:
    """Return a line for each value that affects the numbers of a run, in any order of the file."""
    found = {("", "seed"): content.get("seed", 0)}
    tables = {name: x for name, x in content.items() if isinstance(x, dict)}
    for table in ("data", "model", "inference"):
        found |= {(table, key): value for key, value in tables.get(table, {}).items()}
    if sample_rows := tables.get("cluster", {}).get("sample_rows"):
        found["cluster", "sample_rows"] = sample_rows
    for place, value in found.items():
        if isinstance(value, float) and value.is_integer():  # 20.0 is the same as 20
            found[place] = int(value)
    return [" ".join(tomli_w.dumps({key: found[_, key]}).split()) for _, key in sorted(found)]


def digest_of_values(path: Path) -> str:
    """Return a digest of the values of a run file that affect the numbers.

    The paths of tables, which have digests of their own, may change.
    """
    lines = value_lines(read_toml(path, "run file"))
    kept = [line[:4] if line.startswith(("path = ", "test = ")) else line for line in lines]
    return hashlib.sha256("\n".join(kept).encode()).hexdigest()


def run_from_options(
    options: Mapping[str, tuple[str, Any]],
    *,
    cards: Iterable[str | Path] = (),
    pairs: Iterable[str] = (),
) -> RunFile:
    """Create a run from cards, then the options of a command, then ``NAME=VALUE`` pairs.

    ``options`` maps each option to the ``"table.key"`` that it sets and its value, None if it is
    not given. A card, given by name or path, may contain parameters of all tables.
    """
    given = [(option, *pair) for option, pair in options.items() if pair[1] is not None]
    given += [("--set", *pair) for pair in map(read_pair, pairs)]
    settings = [Setting(origin, *find_key(key, origin), value) for origin, key, value in given]
    found = [find_any(str(name), where="--card: ") for name in cards]
    return RunFile.from_settings(settings, Path("options"), cards=found)


def check_task(tree: str, task: str) -> None:
    """Raise InputError if a tree does not support a task."""
    if task not in tasks_of(tree):
        supporting = ", ".join(name for name, other in TREES.items() if other.of(task))
        raise InputError(
            f"tree {tree!r} supports {' and '.join(tasks_of(tree))} only; for {task} use "
            f"{supporting}."
        )


def one_tree(named: Mapping[str, Any]) -> str:
    """Return the tree that all origins name, or the default if there is none."""
    for origin, name in named.items():
        if not (isinstance(name, str) and name in TREES):
            end = nearest_match(str(name), TREES)
            raise InputError(f"{origin}: no tree is named {abbreviated(name)}{end}")
    if len(set(named.values())) > 1:
        each = " and ".join(f"{origin} names {name!r}" for origin, name in named.items())
        raise InputError(f"conflicting trees: {each}; remove one.")
    return next(iter(named.values()), DEFAULT_TREE)


def _data(settings: Sequence[Setting], where: Path, root: str | Path | None) -> DataTable:
    given: dict[str, Setting] = {}
    for one in (one for one in settings if one.table == "data"):
        other = given.get({"test": "test_fraction", "test_fraction": "test"}.get(one.key, ""))
        if other is not None:
            if other.origin == one.origin:
                raise InputError(f"{one.origin}: set test or test_fraction, not both.")
            del given[other.key]  # the later one wins
        given[one.key] = one
    if not given:
        raise InputError(f"{where.name}: the table [data] is missing; set its path and target.")
    data = check_section(DataTable, given, where, root, "data")
    return data if data.test is None else data.model_copy(update={"test_fraction": 0.0})


def _output(last: Mapping[Any, Setting], where: Path, root: str | Path | None) -> OutputTable:
    default = Setting(where.name, "output", "folder", Path("results", where.stem))
    given = {one.key: one for one in last.values() if one.table == "output"}
    output = check_section(OutputTable, {"folder": default} | given, where, root)
    if root is not None:
        check_links(output.folder, root)
    return output


def _by_label(weights: Mapping[str, float], labels: ArrayLike) -> dict[Any, float]:
    """Replace the names of classes by the classes themselves."""
    named = {str(label).lower(): label for label in np.unique(labels).tolist()}
    for name in weights:
        if name.lower() not in named:
            end = nearest_match(name, named)
            raise InputError(f"class_weight: no class is named {name!r}{end}")
    return {named[name.lower()]: weight for name, weight in weights.items()}
