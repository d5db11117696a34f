"""Fail if a default fit takes much more CPU time, beside a forest or BART, than was recorded.

    OMP_NUM_THREADS=1 python benchmarks/guard.py [--bart] [--record]

Ten tables, of this repository, of scikit-learn and made; 300 trees of the forest, 100 draws of BART
(`pip install stochtree`) of numbers and two classes. Seconds are CPU time of fits, the least of
three rounds, in which the methods alternate. A ratio may be LIMIT times what RECORDED says, which
`--record` prints anew; on a busy machine ratios are too high.
"""

import argparse
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn import datasets
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

import bayestree as bt

LIMIT, ROUNDS = 1.3, 3
FOLDER = Path(__file__).resolve().parents[1] / "examples" / "data"
TARGETS = {"tumours": "diagnosis", "wines": "cultivar", "thyroid": "thyroid", "heart": "disease"}
TARGETS |= {"penguins": "species", "concrete": "strength", "diabetes": "progression"}
MADE = {"classes 1000 x 20": (1000, 20), "classes 300 x 150": (300, 150)}
NAMES = (*TARGETS, "iris", *MADE)
#: CPU seconds of a default fit over those of a forest, and over those of BART.
RECORDED: dict[str, tuple[float, float | None]] = {
    "tumours": (3.7, 1.5),
    "wines": (3.5, None),
    "thyroid": (3.7, None),
    "heart": (5.9, 3.1),
    "penguins": (4.1, None),
    "concrete": (10.7, 15.9),
    "diabetes": (6.5, 10.1),
    "iris": (3.2, None),
    "classes 1000 x 20": (4.5, 1.7),
    "classes 300 x 150": (2.2, 0.2),
}


def rows(name: str) -> tuple[pd.DataFrame, np.ndarray]:
    if name in TARGETS:
        frame = pd.read_csv(FOLDER / f"{name}.csv")
        return frame, frame.pop(TARGETS[name]).to_numpy()
    if name == "iris":
        frame, y = datasets.load_iris(return_X_y=True, as_frame=True)
        return frame, y.to_numpy()
    n, d = MADE[name]
    X, y = datasets.make_classification(n, d, n_informative=5, n_redundant=2, random_state=0)
    return pd.DataFrame(X), y


def numeric(frame: pd.DataFrame) -> np.ndarray:
    """Text as 0 and 1, and gaps as the median: what a forest and BART take."""
    coded = pd.get_dummies(frame, dtype=float)
    return coded.fillna(coded.median()).to_numpy()


def with_bart(X: np.ndarray, y: np.ndarray) -> None:
    from stochtree import BARTModel, OutcomeModel  # noqa: PLC0415 - an option

    settings: dict[str, Any] = {"random_seed": 1, "num_threads": 1}
    target = y
    if len(np.unique(y)) == 2:
        settings["outcome_model"] = OutcomeModel(outcome="binary", link="probit")
        target = (y == y[0]).astype(float)
    BARTModel().sample(X_train=X, y_train=target, num_gfr=10, num_mcmc=100, general_params=settings)


def fits(name: str, *, bart: bool) -> list[Callable[[], object]]:
    """A default fit of a table, one of a forest, and one of BART if it can be had."""
    frame, y = rows(name)
    X, classifies = numeric(frame), y.dtype.kind != "f"
    ours: Any = bt.ConvexPolytopeTreeClassifier if classifies else bt.ConvexPolytopeTreeRegressor
    forest = RandomForestClassifier if classifies else RandomForestRegressor
    found: list[Callable[[], object]] = [
        lambda: ours(random_state=0).fit(frame, y),
        lambda: forest(300, random_state=0).fit(X, y),
    ]
    if bart and not (classifies and len(np.unique(y)) > 2):
        found.append(lambda: with_bart(X, y))
    return found


def seconds(fit: Callable[[], object]) -> float:
    started = time.process_time()
    fit()
    return time.process_time() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bart", action="store_true")
    parser.add_argument("--record", action="store_true")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in ("thyroid", "diabetes"):  # imports and compiled code
        fits(name, bart=False)[0]()
    failed = []
    for name in NAMES:
        methods = fits(name, bart=asked.bart)
        own, *others = np.min([[seconds(one) for one in methods] for _ in range(ROUNDS)], axis=0)
        ratios = [round(float(own / other), 1) for other in others]
        limits = [LIMIT * one for one in RECORDED.get(name, ()) if one is not None]
        slow = any(ratio > limit for ratio, limit in zip(ratios, limits, strict=False))
        failed += [name] * slow
        stated = (ratios[0], ratios[1] if len(ratios) > 1 else None)
        print(
            f"    {name!r}: {stated}," if asked.record else f"{name}: {own:.2f} s, {stated}",
            flush=True,
        )
    if failed and not asked.record:
        raise SystemExit(f"more than {LIMIT} times the recorded ratio: {', '.join(failed)}")


if __name__ == "__main__":
    main()
