"""The section about the columns: which matter, in which direction, and their shrinkage."""

from functools import partial
from typing import Any, cast

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes

from bayestree._utils.arrays import FloatArray
from bayestree._utils.wording import in_words, isolated
from bayestree.description import sparsity_of
from bayestree.plots._explanations import draw_dependence
from bayestree.report import figures
from bayestree.report.effects import Effect, Range
from bayestree.report.study import Study, number, percent, with_minus
from bayestree.tree import Tree

Shown = tuple[str, dict[str, Any]] | None  # heading, and variables of the macro
MAX_USED = 12  # maximum number of features in a table
CURVES = 4  # columns with a figure
CURVE = (2.6, 2.0)  # its width and height in inches
DIGITS = 3  # of values of a column


def features(study: Study) -> Shown:
    """Show the importance and the effect of each feature, and the shrinkage of its coefficients."""
    found, factors = study.importance, []
    if (shrunk := study.shrinkage) is not None:
        nodes = figures.first_nodes(study, figures.EXPERTS)
        factors = [chart for node in nodes if (chart := figures.shrinkage_factors(shrunk, node))]
    if found is None and not factors:
        return None
    total = np.zeros(len(study.columns)) if found is None else found.total
    used = np.argsort(-total, kind="stable")[: np.count_nonzero(total)]
    in_tree = len(used)
    if averages(study):
        plane = cast(Tree, study.tree).hyperplane
        in_tree = sum(bool(plane[:, own].any()) for own in study.encoding.places)
    measured = bool(study.effects) and study.effects[0].loss is not None
    return "Features", {
        "effects": effect_lines(study) if measured else [],
        "used": [
            (study.columns[j], float(total[j]), float(total[j] / total[used[0]]))
            for j in used[:MAX_USED]
        ],
        "trends": {study.columns[one.column]: in_a_phrase(study, one) for one in study.effects},
        "curves": _curves(study),
        "hidden": 0 if measured else len(used) - MAX_USED,
        "unused": len(study.columns) - in_tree,
        "averages": averages(study),
        "image": importance_image(study, total),
        "factors": factors,
        "noun": "feature" if study.encoding.is_plain else "column",
    }


def averages(study: Study) -> bool:
    """Whether predictions are those of the posterior, while the tree shown is sparse."""
    if sparsity_of(study.estimator) is None:
        return False
    return bool(study.bayesian.fitted_.averages(study.bayesian.prediction))


def importance_image(study: Study, total: FloatArray) -> Markup | None:
    """Show the importance of the pixels, if rows are images."""
    if study.image_shape is None or not total.any():
        return None
    alt = "Importance of each pixel: dark pixels are important"
    return figures.grey_image(total, 0.0, float(total.max()), study.image_shape, alt)


def effect_lines(study: Study) -> list[dict[str, Any]]:
    """List the columns with their loss and their share of the votes on a common scale."""
    lines = [one for one in study.effects if one.loss is not None and one.votes is not None]
    top = {
        name: max((getattr(one, name).high for one in lines), default=0.0) or 1.0
        for name in ("loss", "votes")
    }
    return [
        {
            "name": study.columns[one.column],
            "loss": _bar(cast(Range, one.loss), top["loss"], _written),
            "votes": _bar(cast(Range, one.votes), top["votes"], percent),
            "trend": in_a_phrase(study, one),
        }
        for one in lines
    ]


def _written(value: float) -> str:
    return with_minus(f"{round(value, 3) + 0.0:.3f}")  # 0 has no sign


def _bar(found: Range, top: float, write: Any) -> dict[str, Any]:
    """Place a number and its interval on a scale from 0 to ``top``, in percent."""
    value, low, high = (100 * min(max(0.0, one / top), 1.0) for one in found)
    text, ends = write(found.value), f"{write(found.low)} to {write(found.high)}"
    is_sure = found.low < found.high
    return {
        "value": value,
        "low": low,
        "width": high - low if is_sure else 0.0,
        "text": text,
        "interval": ends if is_sure else "",
    }


def predicted_quantity(study: Study, effect: Effect) -> str:
    """Name what a curve shows."""
    if study.classifies:
        return f"P({study.classes[effect.output]})"
    return "risk score" if study.survives else f"predicted {study.target}"


def in_a_phrase(study: Study, effect: Effect) -> str:
    """Describe the direction of an effect, such as ``"P(yes) rises from 10 % to 80 %"``."""
    mean, quantity = effect.mean, predicted_quantity(study, effect)
    write = percent if study.classifies else partial(number, digits=3)
    low, high = write(float(mean.min())), write(float(mean.max()))
    if effect.trend == "unclear":
        return f"{quantity} stays near {low}" if low == high else f"unclear ({low} to {high})"
    if effect.trend in ("rises", "falls"):
        ends = (low, high) if effect.trend == "rises" else (high, low)
        return f"{quantity} {effect.trend} from {' to '.join(ends)}"
    values = effect.curve.grid[effect.known]
    least, most = (
        isolated(in_words(values[place], DIGITS)) for place in (mean.argmin(), mean.argmax())
    )
    where = "for" if effect.trend == "levels" else "at"
    course = "" if effect.trend == "levels" else "rises and falls: "
    return f"{quantity} {course}{high} {where} {most}, {low} {where} {least}"


def _curves(study: Study) -> list[Markup]:
    """Draw the partial dependence on the first columns, all on one scale."""
    first = study.effects[:CURVES]
    ends = [(one.curve.low, one.curve.high) for one in first]
    if not ends:
        return []
    low, high = min(one.min() for one, _ in ends), max(one.max() for _, one in ends)
    margin = 0.05 * float(high - low) or 0.05
    limits = float(low) - margin, float(high) + margin
    return [_curve(study, one, limits) for one in first]


def _curve(study: Study, effect: Effect, limits: tuple[float, float]) -> Markup:
    name = study.columns[effect.column]
    found = effect.curve._replace(feature=name, label=predicted_quantity(study, effect))

    def draw(ax: Axes) -> None:
        draw_dependence(found, ax, curves=False)
        ax.set_ylim(limits)

    alt = f"Partial dependence on {name}: {in_a_phrase(study, effect)}"
    return figures.picture(draw, CURVE, alt, legend=False)
