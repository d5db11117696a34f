"""The run file: data, what is believed, how it is fitted, and what to make; every key checked."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
import tomli_w
from numpy.typing import ArrayLike

from bayestree._utils.write import write_whole
from bayestree.runs import parameters as known
from bayestree.runs.nearest import nearest
from bayestree.runs.parameters import TableName
from bayestree.runs.paths import place, seen_from
from bayestree.runs.reading import check_task, read_parts
from bayestree.runs.sections import DataTable, Head, OutputTable
from bayestree.runs.settings import Layer, merged
from bayestree.runs.toml import read_pair, read_toml
from bayestree.runs.trees import tasks_of
from bayestree.tables import InputError

TABLES: tuple[TableName, ...] = ("model", "inference")


class RunFile(Head):
    """A run, checked: every value that its tree can take is known.

    Parameters
    ----------
    title, question : str
        What heads the report.
    seed : int
        Of the random numbers.
    data : DataTable
    tree : str
        Name of the tree, a key of :data:`~bayestree.runs.trees.TREES`.
    model, inference : tuple of Layer
        What was set for its parameters, later ones winning.
    output : OutputTable
    """

    data: DataTable
    tree: str
    model: tuple[Layer, ...] = ()
    inference: tuple[Layer, ...] = ()
    output: OutputTable

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
        """A run from the content of a run file.

        Parameters
        ----------
        parts : mapping
            As TOML gives it: keys and tables.
        where : path
            The file that it is of: named in messages, and what its paths are relative to.
        sets : iterable of (str, value)
            Values in place of those of the file, by ``"table.key"``, or ``"key"`` alone.
        source : str
            Where they were written, for messages.
        root : path, optional
            Folder that no path may leave.

        Raises
        ------
        InputError
            With the table, the key, its value and the remedy.
        """
        home = None if root is None else Path(root)
        found = read_parts(parts, Path(where), sets, home, source=source)
        run = cls(**found)
        run.check()
        return run

    def task(self) -> str | None:
        """What is predicted: as the file says, or the only thing that the tree can; else None."""
        able = tasks_of(self.tree)
        if self.data.task == "auto":
            return able[0] if len(able) == 1 else None
        return self.data.task

    def values(self, table: TableName, task: str) -> dict[str, Any]:
        """Values of ``[model]`` or ``[inference]`` for a task, every one explicit."""
        layers: tuple[Layer, ...] = getattr(self, table)
        return known.defaults(self.tree, task, table) | merged(layers, self.tree, task, table)

    def parameters(self, task: str | None = None) -> dict[str, Any]:
        """Arguments of the estimator, every one explicit but ``verbose``.

        Parameters
        ----------
        task : {"classification", "regression"}, optional
            Where the file leaves it to the data.

        Raises
        ------
        InputError
            If the task is none of the tree's.
        ValueError
            If the task is not known.
        """
        found = task or self._known_task()
        check_task(self.tree, found)
        own = {"random_state": self.seed} if known.is_random(self.tree, found) else {}
        return self.values("model", found) | self.values("inference", found) | own

    def estimator(self, task: str | None = None, labels: ArrayLike | None = None) -> Any:
        """The estimator of the run, not yet fitted.

        Parameters
        ----------
        task : {"classification", "regression"}, optional
            Where the file leaves it to the data.
        labels : array, optional
            The classes of the rows, as often as may be. A file can name them only as text, in
            ``class_weight``.

        Raises
        ------
        InputError
            As of :meth:`parameters`, and for a class that there is not.
        """
        found = self.parameters(task)
        weights = found.get("class_weight")
        if labels is not None and isinstance(weights, Mapping):
            found["class_weight"] = _by_label(weights, labels)
        return known.estimator_of(self.tree, str(task or self.task()))(**found)

    def explicit(self, task: str) -> "RunFile":
        """The same run with every value said and no card: what a run folder keeps.

        Raises
        ------
        InputError
            If the tree has no estimator of the task.
        """
        check_task(self.tree, task)
        layers: dict[str, Any] = {
            table: (Layer(f"[{table}]", self._written(table, task)),) for table in TABLES
        }
        data = self.data.model_copy(update={"task": task})
        return self.model_copy(update={"data": data, **layers})

    def to_toml(self, folder: str | Path) -> str:
        """The run as the text of a run file in ``folder``.

        Its paths are relative to the folder where the two have a folder in common.

        Raises
        ------
        ValueError
            If the task depends on the data: cards have other values for each (see
            :meth:`explicit`).
        """
        place_of = Path(folder).resolve()
        data = self.data.model_dump(exclude_none=True, exclude={"path"})
        if self.data.test is not None:
            del data["test_fraction"]
            data["test"] = seen_from(self.data.test, place_of)
        output = self.output.model_dump(exclude={"folder"})
        content = {
            "title": self.title,
            "question": self.question,
            "seed": self.seed,
            "data": {"path": seen_from(self.data.path, place_of), **data},
            "model": {"tree": self.tree, **self._set("model")},
            "inference": self._set("inference"),
            "output": {"folder": seen_from(self.output.folder, place_of), **output},
        }
        return tomli_w.dumps(content)

    def write_toml(self, path: str | Path) -> None:
        """Write the run file to ``path``, whole or not at all."""
        write_whole(Path(path), self.to_toml(Path(path).parent))

    def check(self) -> None:
        """Refuse what no task of the tree, or not that of the file, can take."""
        task = self.task()
        if task is not None:
            self.parameters(task)
            return
        errors = []
        for each in tasks_of(self.tree):
            try:
                self.parameters(each)
            except InputError as error:
                errors.append(error)
            else:
                return
        raise errors[0]

    def _known_task(self) -> str:
        task = self.task()
        if task is None:
            raise ValueError("the task depends on the data; give 'classification' or 'regression'.")
        return task

    def _set(self, table: TableName) -> dict[str, Any]:
        """What was set in a table, as a file has it."""
        layers: tuple[Layer, ...] = getattr(self, table)
        task = self._known_task()
        return {name: value for layer in layers for name, value in layer.of_task(task).items()}

    def _written(self, table: TableName, task: str) -> dict[str, Any]:
        own = known.parameters_of(self.tree, task)
        return {name: own[name].written(v) for name, v in self.values(table, task).items()}


def _by_label(weights: Mapping[str, float], labels: ArrayLike) -> dict[Any, float]:
    """Weights of classes by the classes as they are, in place of their names."""
    named = {str(label).lower(): label for label in np.unique(labels).tolist()}
    for name in weights:
        if name.lower() not in named:
            raise InputError(f"class_weight: no class is named {name!r}{nearest(name, named)}")
    return {named[name.lower()]: weight for name, weight in weights.items()}


def read_run(
    path: str | Path, sets: Iterable[str] = (), *, root: str | Path | None = None
) -> RunFile:
    """Read a run file.

    Parameters
    ----------
    path : path of a TOML file
    sets : iterable of str
        ``"table.key=value"`` or ``"key=value"``, in place of what the file says.
    root : path, optional
        Folder that no path of the run may leave, that of the file included.

    Raises
    ------
    InputError
        If the file cannot be read, or a key or value is none that a run can have.
    """
    home = None if root is None else Path(root)
    source = place(path, Path.cwd(), root=home, what="run file")
    parts = read_toml(source, "run file")
    return RunFile.from_parts(parts, source, sets=map(read_pair, sets), root=home)
