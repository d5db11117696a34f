"""Tables of Arrow, polars and the like, as pandas tables with pandas' own types."""

import re
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

UNNAMED_INDEX = re.compile(r"__index_level_\d+__")  # as pandas stores it


def from_arrow(table: Any) -> pd.DataFrame:
    """A table or batch of Arrow. An index with a name is a column, and one without is left out."""
    frame: pd.DataFrame = table.to_pandas(ignore_metadata=True)
    return frame.loc[:, [not UNNAMED_INDEX.fullmatch(str(name)) for name in frame]]


def as_pandas(X: Any) -> Any:
    """A table of another library, or with columns of Arrow or sparse ones, in pandas' own types.

    Anything else is returned as it is, single columns included.
    """
    if not isinstance(X, pd.DataFrame):
        exports = hasattr(X, "__arrow_c_stream__") or hasattr(X, "__arrow_c_array__")
        if not exports or isinstance(X, pd.Series):
            return X
        try:
            return from_arrow(pa.table(X))
        except (pa.ArrowInvalid, TypeError):
            return X
    changed = X
    for place, dtype in enumerate(X.dtypes):
        if isinstance(dtype, pd.ArrowDtype):
            values = X.iloc[:, place].array.__arrow_array__().to_pandas().array
        elif isinstance(dtype, pd.SparseDtype):
            values = np.asarray(X.iloc[:, place])
        else:
            continue
        changed = X.copy(deep=False) if changed is X else changed
        changed.isetitem(place, values)
    return changed
