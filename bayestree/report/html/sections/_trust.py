"""How good the predictions are, and whether the fit can be trusted."""

from typing import Any

from bayestree.report.html import figures, words
from bayestree.report.html.scores import confusion_of, scored_before, scores_of
from bayestree.report.html.sections._section import Section
from bayestree.report.html.study import Study


def scores(study: Study) -> Section | None:
    """Scores, confusions, and whether probabilities or intervals come true."""
    found = scores_of(study)
    if found is None:
        return None
    shown: dict[str, Any] = {
        "scores": found,
        "recorded": scored_before(study),
        "n": 0 if study.scored is None else len(study.scored),
        "confusion": confusion_of(study),
        "calibration": None,
        "predicted": None,
        "coverage": None,
    }
    if study.calibration is not None:
        shown["calibration"] = figures.calibration(study)
        shown["bins"] = study.calibration.bins.to_dict("records")
    if not study.classifies:
        shown["predicted"] = figures.predicted(study)
        inside = figures.coverage_of(study)
        if inside is not None and study.scored is not None:
            n = len(study.scored.sample())
            shown["coverage"] = figures.coverage(inside, n)
            shown["inside"] = words.percent(float(inside[-1]))
        shown["drawn"] = study.drawn
    return Section("scores", "How good the predictions are", shown)


def convergence(study: Study) -> Section | None:
    """The verdicts on the inference, each with its remedy."""
    found = study.convergence
    if found is None:
        if study.is_forest:
            return None
        return Section(
            "convergence",
            "Whether the fit has settled",
            {"point": True, "inference": study.inference},
        )
    quantities = [
        {
            "name": name,
            "vary": int(row["vary"]),
            "r_hat": f"{row['r_hat']:.3f}",
            "bulk": f"{row['ess_bulk']:,.0f}",
            "tail": f"{row['ess_tail']:,.0f}",
            "worst": row["worst"],
        }
        for name, row in found.quantities.iterrows()
    ]
    return Section(
        "convergence",
        "Whether the fit can be trusted",
        {
            "point": False,
            "found": found,
            "inference": study.inference,
            "elbo": figures.elbo(study),
            "quantities": quantities,
        },
    )
