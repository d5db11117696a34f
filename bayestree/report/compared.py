"""Studies of the same rows that are compared: what differs between them, and by how much."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pandas as pd

from bayestree._utils.arrays import IntArray
from bayestree._utils.wording import isolated
from bayestree.report.agreement import Agreement, agreement_of, differences
from bayestree.report.scores import Scores, scores_of
from bayestree.report.study import Study

NOT_SETTINGS = ("title", "question", "output")  # keys and tables of a run file


@dataclass(frozen=True, eq=False)
class Compared:
    """Studies of the same rows by their names, and the comparison of their runs.

    ``numbers`` (n,) are those of the scored rows in their table. ``table``, ``caveats`` and
    ``conclusions`` are those of ``bayestree.runs.compare``; its first run is the best.
    """

    by_name: Mapping[str, Study]
    numbers: IntArray | None = None
    table: pd.DataFrame = field(default_factory=pd.DataFrame)
    caveats: Sequence[str] = ()
    conclusions: Sequence[str] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(map(isolated, self.by_name))

    @property
    def studies(self) -> tuple[Study, ...]:
        return tuple(self.by_name.values())

    @property
    def pairs(self) -> tuple[tuple[str, Study], ...]:
        return tuple(zip(self.names, self.studies, strict=True))

    @property
    def question(self) -> str:
        """The question of the studies, if it is the same."""
        return common([study.question for study in self.studies])

    @cached_property
    def reference(self) -> int:
        """Place of the study from which differences are measured: the best, or else the first."""
        return list(self.by_name).index(self.table.index[0]) if len(self.table) else 0

    @property
    def others(self) -> tuple[int, ...]:
        """Places of the other studies."""
        return tuple(place for place in range(len(self.studies)) if place != self.reference)

    @property
    def base(self) -> Study:
        return self.studies[self.reference]

    @cached_property
    def scores(self) -> tuple[Scores | None, ...]:
        return tuple(map(scores_of, self.studies))

    @cached_property
    def differences(self) -> list[dict[str, str]]:
        """Differences of the scores of each of the others from the reference, by score."""
        first, found = self.scores[self.reference], []
        for place in self.others:
            own = self.scores[place]
            both = None if first is None or own is None else (first, own)
            found.append({} if both is None else differences(self.base, self.studies[place], both))
        return found

    @cached_property
    def agreements(self) -> list[tuple[tuple[str, str], Agreement]]:
        """How far the predictions of the others agree with the reference, with both names."""
        each = [(place, agreement_of(self.base, self.studies[place])) for place in self.others]
        first = self.names[self.reference]
        return [((first, self.names[place]), one) for place, one in each if one is not None]

    def settings(self, study: Study) -> dict[str, Any]:
        """Return the values of a run file by table and key, or else the parameters."""
        if not study.run_file:
            kind = {"estimator": type(study.estimator).__name__}
            return kind | study.estimator.get_params(deep=False)
        found: dict[str, Any] = {}
        for table, values in tomllib.loads(study.run_file).items():
            if table in NOT_SETTINGS:
                continue
            own = values.items() if isinstance(values, dict) else [("", values)]
            found |= {f"{table}.{key}".rstrip("."): value for key, value in own}
        return found

    @cached_property
    def different(self) -> dict[str, list[Any]]:
        """Settings that differ, with the values of all; None where there is no such setting."""
        each = [self.settings(study) for study in self.studies]
        keys = dict.fromkeys(key for one in each for key in one)
        found = {key: [one.get(key) for one in each] for key in keys}
        return {key: own for key, own in found.items() if any(one != own[0] for one in own)}


def common(texts: Sequence[str]) -> str:
    """Return the text that all have, or else none."""
    return texts[0] if len(set(texts)) == 1 else ""
