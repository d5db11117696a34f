"""Scores, predictions, and what is printed and written."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from bayestree._cli.folders import COLUMNS, FACETS, MODEL, json_text
from bayestree._cli.rows import Prepared

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

TINY = 1e-15
MOST_PRINTED = 60  # leaves of a tree that is printed; more are only written


def report(estimator: Any, name: str, prepared: Prepared, target: str, out: Path) -> None:
    """Print what was found, and write it all."""
    from bayestree._write import whole_folder

    tree = _text(estimator)
    sizes = _sizes(estimator)
    scores = scored(estimator, prepared.X_held, prepared.y_held, prepared.weights_held)
    metrics = {
        "tree": name,
        "task": prepared.task,
        "target": target,
        "training_rows": len(prepared.X),
        "scored_rows": len(prepared.X_held),
        "scored_on": "held-out rows" if prepared.held_out else "training rows",
        **scores,
        "leaves": estimator.get_n_leaves(),
        "depth": estimator.get_depth(),
    }
    columns = {
        "target": target,
        "target_is_text": prepared.y.dtype.kind == "U",
        "task": prepared.task,
        "columns": prepared.encoding.to_json(),
    }
    with whole_folder(out) as draft:
        estimator.save(draft / MODEL)
        (draft / "tree.txt").write_text(tree, encoding="utf-8")
        (draft / COLUMNS).write_text(json_text(columns), encoding="utf-8")
        (draft / "metrics.json").write_text(json_text(metrics), encoding="utf-8")
        if sizes is not None:
            sizes.to_frame().to_csv(draft / FACETS)
        names = sorted(file.name for file in draft.iterdir())
    print(f"scores on {metrics['scored_rows']} {metrics['scored_on']}: {listed(scores)}\n")
    large = metrics["leaves"] > MOST_PRINTED
    print(f"{metrics['leaves']} leaves: see {out / 'tree.txt'}\n" if large else tree)
    if sizes is not None:
        _tell_sizes(sizes)
    print(f"written to {out}: {', '.join(names)}")


def _text(estimator: Any) -> str:
    """The tree as text; of a forest one after the other."""
    from bayestree import export_text

    if not hasattr(estimator, "estimators_"):
        return export_text(estimator)
    return "\n".join(
        f"tree {number}: {export_text(tree)}"
        for number, tree in enumerate(estimator.estimators_, start=1)
    )


def _sizes(estimator: Any) -> Any:
    """Facets of each node, where splits may have several or there is a posterior of them."""
    if not hasattr(estimator, "polytope_size"):
        return None
    posterior = estimator.posterior_
    several = "log_weight" in posterior.point
    drawn = posterior.n_chains * posterior.n_draws > 1
    return estimator.polytope_size() if several or drawn else None


def scored(
    estimator: Any, X: "pd.DataFrame", y: "NDArray[Any]", weights: "NDArray[np.float64] | None"
) -> dict[str, float]:
    """Scores of the predictions, and of the best constant one."""
    import numpy as np
    from sklearn.metrics import r2_score, root_mean_squared_error

    if weights is None or not weights.any():
        weights = np.ones(len(y))
    found = estimator.predict(X)
    if not hasattr(estimator, "classes_"):
        scores = {"rmse": float(root_mean_squared_error(y, found, sample_weight=weights))}
        if len(y) > 1:
            scores["r2"] = float(r2_score(y, found, sample_weight=weights))
        return scores
    truth = y[:, None] == estimator.classes_
    own = (estimator.predict_proba(X) * truth).sum(axis=1)
    frequent = max(float(weights[y == label].sum()) for label in np.unique(y))
    return {
        "accuracy": float(np.average(found == y, weights=weights)),
        "accuracy_of_most_frequent_class": frequent / float(weights.sum()),
        # A class that training did not hold has probability 0; its loss stays finite.
        "log_loss": float(np.average(-np.log(np.maximum(own, TINY)), weights=weights)),
    }


def predictions(estimator: Any, X: "pd.DataFrame") -> "pd.DataFrame":
    import pandas as pd

    if not hasattr(estimator, "classes_"):
        table = pd.DataFrame({"prediction": estimator.predict(X)})
        if hasattr(estimator, "predict_interval"):
            table["low"], table["high"] = estimator.predict_interval(X, 0.9)
        return table
    probability = estimator.predict_proba(X)
    table = pd.DataFrame(probability, columns=[f"p({label})" for label in estimator.classes_])
    table.insert(0, "prediction", estimator.classes_[probability.argmax(axis=1)])
    return table


def score_if_possible(
    estimator: Any, columns: dict[str, Any], frame: "pd.DataFrame", X: "pd.DataFrame"
) -> str:
    """A line with the scores, or why there are none."""
    from bayestree.tables import InputError, check_complete, numbers

    column = frame[columns["target"]]
    try:
        check_complete(column.to_frame())
        y = column.astype(str) if columns["is_text"] else numbers(column)
    except InputError as error:
        return f"not scored: {error}"
    return f"scores: {listed(scored(estimator, X, y.to_numpy(), None))}"


def tell_data(data: Path, target: str, prepared: Prepared) -> None:
    n_classes = len(set(prepared.y.tolist()))
    what = f"{n_classes} classes" if prepared.task == "classification" else "a number"
    print(f"{data}: {target!r} is {what} ({prepared.task}), {prepared.X.shape[1]} features")
    for column in prepared.encoding.columns:
        if column.categories is not None:
            print(f"text column {column.name!r} becomes {', '.join(column.features)}")
    for remark in prepared.remarks:
        typer.echo(f"warning: {remark}", err=True)


def _tell_sizes(sizes: Any) -> None:
    if len(sizes.labels) == 0:
        return
    print("facets of each node: the most probable number, and an interval of 90 %")
    for label, row in sizes.to_frame().iterrows():
        print(f"  {label:<12} {row.facets:>3.0f}   [{row.facets_low:.0f}, {row.facets_high:.0f}]")
    print()


def listed(scores: dict[str, float]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in scores.items())
