"""The tables: data sets, protocol and published figures of each.

A figure is a score (accuracy, AUC of two classes, or RMSE), a number of leaves and a depth, None if
unknown.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from sklearn.datasets import fetch_openml
from sklearn.model_selection import StratifiedKFold

from benchmarks.data import REGRESSION, AbsentError, Split, load, load_all, stored

#: Names of sets on OpenML, where they differ.
OPENML = {
    "breast683": "breast-w",
    "connect4": "connect-4",
    "heart": "heart-statlog",
    "mnist": "mnist_784",
    "pima": "diabetes",
}


class Published(NamedTuple):
    score: float
    leaves: float | None = None
    depth: int | None = None


class Part(NamedTuple):
    """Training and test rows of a measurement: the repetition, its fold and the rows."""

    seed: int
    fold: int
    rows: Split


@dataclass(frozen=True)
class Table:
    """A table of a paper.

    ``parts`` yields the rows of a set for a number of repetitions, which is ``seeds`` by default.
    ``depth`` fixes the maximum depth of all trees on a set, for comparisons at equal depth.
    ``absent`` says what the tables of the paper have and this one lacks.
    """

    title: str
    published: Mapping[str, Mapping[str, Published]]  # by set and method
    parts: Callable[[str, int], Iterator[Part]]
    seeds: int
    measures: Mapping[str, str] = field(default_factory=dict)  # accuracy, unless given
    depth: Mapping[str, int] = field(default_factory=dict)
    absent: str = ""

    @property
    def sets(self) -> list[str]:
        return list(self.published)

    @property
    def same_rows(self) -> bool:
        """Whether all repetitions have the same training and test rows."""
        return self.parts is not five_folds

    def measure(self, name: str) -> str:
        return self.measures.get(name, "rmse" if name in REGRESSION else "accuracy")


def held_out(name: str, seeds: int) -> Iterator[Part]:
    """The official test rows, or 20 % of the rows; seeds differ in the fits alone."""
    rows = load(name) if stored(name) else _shuffled(*_openml(name))
    for seed in range(seeds):
        yield Part(seed, 0, rows)


def five_folds(name: str, seeds: int) -> Iterator[Part]:
    """Trials of 5-fold cross-validation of all rows, whatever their official split."""
    X, y = load_all(name) if stored(name) else _openml(name)
    for seed in range(seeds):
        folds = StratifiedKFold(5, shuffle=True, random_state=seed).split(X, y)
        for fold, (train, test) in enumerate(folds):
            yield Part(seed, fold, Split(X[train], y[train], X[test], y[test]))


def at_depth(name: str, seeds: int) -> Iterator[Part]:
    """The official test rows; a set is named ``SET at depth D``."""
    return held_out(name.partition(" at ")[0], seeds)


def _openml(name: str) -> tuple[np.ndarray, np.ndarray]:
    try:
        X, y = fetch_openml(OPENML.get(name, name), as_frame=False, return_X_y=True)
    except (OSError, ValueError) as error:  # no network, no such set
        message = f"BAYESTREE_DATA has no {name}.npz, and OpenML: {error}"
        raise AbsentError(message) from error
    return X, y


def _shuffled(X: np.ndarray, y: np.ndarray) -> Split:
    """The last fifth of the shuffled rows are for tests."""
    order = np.random.default_rng(0).permutation(len(y))
    train, test = np.split(order, [4 * len(y) // 5])
    return Split(X[train], y[train], X[test], y[test])


def _columns(names: str, rows: Mapping[str, str]) -> dict[str, dict[str, Published]]:
    """Published figures from lines of cells ``score/leaves/depth``, or less; - if there is none."""
    methods = names.split()
    found: dict[str, dict[str, Published]] = {}
    for name, line in rows.items():
        cells = (cell.split("/") for cell in line.split())
        found[name] = {
            method: Published(float(score), *map(float, leaves), *map(int, depth))
            for method, (score, leaves, depth) in (
                (method, (cell[0], cell[1:2], cell[2:]))
                for method, cell in zip(methods, cells, strict=True)
            )
            if score != "-"
        }
    return found


DEPTHS = {
    f"{name} at depth {depth}": depth for name in ("connect4", "mnist") for depth in range(2, 19, 2)
}
TABLES: dict[str, Table] = {
    "cpt": Table(
        "CPT (Armandpour, Sadeghian and Zhou, 2021), Tables 2 and 3",
        _columns(
            "cart hhcart guide co2 e2edt tao lcn cpt-k1 cpt",
            {
                "mnist": ".8805/805/19 .901 .7852/39/15 .90 .9612/357/12 .9474/178/8 "
                ".9381/65536/16 .9574/501/11 .9701/98/8",
                "connect4": ".7829/5744/33 - .7201/27/18 .78 .8051/257/10 .8109/210/8 "
                ".8079/65536/16 .7889/342/10 .8116/4/2",
                "letter": ".8607/1580/27 .831 .8265/673/28 .87 .8631/543/16 .8915/1078/11 "
                ".8964/65536/16 .8413/705/17 .9051/463/11",
                "bace": ".652 .545 - - .8103/23/8 .734 .839/4096/12 .8206/19/9 .847/21/7",
                "hiv": ".544 .636 - - .7109/21/7 .627 .728/128/7 .7112/25/7 .731/24/5",
            },
        ),
        held_out,
        seeds=3,
        measures={"bace": "auc", "hiv": "auc"},
        absent="SensIT and PDBbind",
    ),
    "wodt": Table(
        "WODT (Yang, Shen and Gao, 2019), Tables 2 and 3",
        _columns(
            "wodt cart co2 co2-random oc1 oc1-random cart-lc cart-lc-random",
            {
                "iris": ".9733/5.2 .9467/7.8 .9467/8 .9263/15 .96/5.4 .94/55.9 .9467/6.5 .90/108",
                "wine": ".9665/3.4 .9271/7.5 .9271/7.5 .8818/27.1 .9213/5.1 .8876/37.3 .9494/5.1 "
                ".9045/84",
                "glass": ".6216/46.2 .6521/36.2 .6521/36.2 .5837/298 .6168/81.2 .6075/357 "
                ".7056/52.8 .6215/590",
                "heart": ".763/23.2 .737/34.3 .737/34.3 .7167/980 .7593/71.2 .7815/195 .6815/90.9 "
                ".7556/364",
                "breast683": ".959/14 .9466/23.2 .9346/23.9 .9378/539 .9341/32.8 .9356/90.2 "
                ".9414/46.1 .9517/194",
                "pima": ".7161/108 .709/104 .6908/105 .6953/1841 .6667/141 .6914/452 .7161/157 "
                ".6784/952",
                "vehicle": ".7069/114 .7045/106 .7223/224 .6501/1508 .6418/184 .6927/614 "
                ".6702/215 .7069/1133",
                "fourclass": ".9896/18.6 .9843/21.7 .9809/23.2 .8778/32.9 .935/29.5 .9118/43.6 "
                ".9548/19.9 .9664/45.2",
                "satimage": ".876/210 .8485/330 .848/610 .8139/5791 .8485/526 .8159/1913 .851/514 "
                ".836/2818",
                "usps": ".9058/150 .862/339 - .5879/5295 .8729/510 .72/974 .6542/614 .5999/1227",
                "letter": ".8786/1213 .8672/1752 .8041/1198 .7215/1787 .8142/2083 .7764/10560 "
                ".853/1804 .7688/16100",
                "connect4": ".7415/2976 .7527/9700 .7131/13880 .6457/52420 .7312/10410 .706/6458 "
                ".74/10650 .7249/7490",
                "mnist": ".9434/737 .8806/3329 - - .7557/2500 .7941/2032 .889/3279 .8393/1910",
            },
        ),
        five_folds,
        seeds=10,
        absent="segment, dna, pendigits, protein, shuttle, ijcnn1 and cod-rna",
    ),
    "tao": Table(
        "TAO (Carreira-Perpiñán and Tavallali, 2018), MNIST from a CART of depth 12",
        {"mnist": {"cart": Published(0.8897, 411), "tao": Published(0.9434, 231)}},
        held_out,
        seeds=1,
        depth={"mnist": 12},
    ),
    "e2edt": Table(
        "E2EDT (Hehn, Kooij and Hamprecht, 2020), Figure 2: accuracy by depth",
        {name: {} for name in DEPTHS},
        at_depth,
        seeds=1,
        depth=DEPTHS,
        absent="SensIT and Protein; the figures of the paper, which are in pictures only",
    ),
    "e2edf": Table(
        "E2EDF (Hehn, Kooij and Hamprecht, 2020), Table 1: forests with and without annealing",
        {"usps": {}, "letter": {}, "mnist": {}},
        held_out,
        seeds=1,
    ),
    "dtsemnet": Table(
        "Trees of equal depth (DTSemNet; TAO as measured by that group)",
        _columns(
            "dtsemnet dgt tao cart",
            {
                "mnist": ".9616 .9400 .9505 .8559",
                "letter": ".8919 .8613 .8741 .7013",
                "connect4": ".8203 .7952 .8121 .7403",
                "satimage": ".8755 .8664 .8741 .8418",
            },
        ),
        held_out,
        seeds=3,
        depth={"mnist": 8, "letter": 10, "connect4": 8, "satimage": 6},
        absent="pendigits, segment, SensIT and Protein",
    ),
}
