"""The evidence of a fit whose topology was sampled, and the posterior of the size of its tree."""

from typing import Any

import numpy as np
import pandas as pd

from bayestree._utils.wording import counted
from bayestree.report.html import svg, text
from bayestree.report.html.study import Study


def sampled_sizes(study: Study) -> dict[str, Any] | None:
    """The log evidence, and charts and tables of the number of leaves and of the depth."""
    found = None if study.convergence is None else study.convergence.evidence
    if found is None:
        return None
    several = len(found.runs) > 1
    return {
        "log_evidence": text.with_minus(f"{found.log_evidence:,.2f}"),
        "error": f"{found.standard_error:.2f}" if several else "",
        "runs": counted(len(found.runs), "run"),
        "several": several,
        "tables": [
            _size_table("Number of leaves", found.leaf_probabilities),
            _size_table("Depth", found.depth_probabilities),
        ],
    }


def _size_table(name: str, table: pd.DataFrame) -> dict[str, Any]:
    """A chart and the rows of a table of the posterior of a size."""
    probability, error = table["probability"].to_numpy(), table["error"].to_numpy()
    posterior = np.bincount(table.index, probability).astype(np.float64)
    return {
        "name": name,
        "chart": svg.sizes(posterior, None, f"{name}, posterior probabilities"),
        "rows": [*zip(table.index, probability.tolist(), error.tolist(), strict=True)],
    }
