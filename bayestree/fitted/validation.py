"""X, y and weights as numbers: scikit-learn's checks, and the encoding of other columns."""

from contextlib import suppress
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.sparse import issparse
from sklearn.base import is_classifier
from sklearn.utils.validation import check_array, check_is_fitted, check_X_y, validate_data

from bayestree import tables
from bayestree._utils.arrays import AnyArray, FloatArray, IntArray
from bayestree._utils.wording import warn
from bayestree.diagnostics.sample import check_fitted_rows
from bayestree.fitted.response import check_generated, refuse_dask
from bayestree.fitted.training_rows import FileRows, TrainingRows, is_large, large_file, mean_of
from bayestree.fitted.tree import MixtureEstimator
from bayestree.inference import Data
from bayestree.routed_tree import chunks
from bayestree.tables.columns import abbreviate, check_finite, codes_by_column
from bayestree.tables.encoding import as_pandas
from bayestree.tables.learning import encode_with_y

ROUNDING = 1e-5  # by which the sum of shares in single precision may differ from 1


class Encoded(NamedTuple):
    """Rows as numbers."""

    X: Any  # an array (n, d), or FileRows
    y: AnyArray | Any  # None if it was not given
    encoding: tables.Encoding  # of the columns


def validated(
    estimator: MixtureEstimator, X: Any, *args: Any, sample_weight: Any = None, **checks: Any
) -> Encoded:
    """Check X, and y if it is given, by scikit-learn, and encode X as numbers.

    Columns that are not numbers, or have missing values, are encoded by ``encoding_``; a fit (with
    ``reset``, as by default) learns a new encoding from X, y and its weights. Rows of a fit that
    are given again with their y and weights are encoded as in the fit. Images must be complete,
    and so must rows that stay in a file.
    """
    reset = checks.get("reset", True)
    refuse_dask(X, *args, sample_weight)
    X = as_pandas(X)
    if issparse(X):
        raise TypeError("X is sparse, but dense rows are needed; pass X.toarray().")
    if isinstance(X, pd.Series):
        raise ValueError(  # noqa: TRY004 - as scikit-learn does
            "X is a Series, but must be a table: pass one row as X.iloc[[0]] instead of X.iloc[0], "
            "and one column as X[['name']]."
        )
    if isinstance(X, pd.DataFrame) and not X.columns.is_unique:
        copies = map(repr, X.columns[X.columns.duplicated()].unique())
        raise ValueError(f"X has several columns named {abbreviate(copies)}; rename them.")
    rows = X
    if isinstance(X, list):
        with suppress(ValueError):  # rows of different lengths, which scikit-learn refuses
            rows = np.asarray(X, dtype=object)
    if args:
        _refuse_missing(args[0])
        args = (_native(args[0]), *args[1:])
    if isinstance(X, tables.Features):
        return _features(estimator, X, args, checks)
    table = None if estimator._in_place() else _table(rows)
    if table is None and (reset or estimator.encoding_.is_plain):
        return _numeric(estimator, X, args, sample_weight, checks)
    validate_data(estimator, rows, skip_check_array=True, reset=reset)
    if table is None:
        table = pd.DataFrame(rows)
    y = _target(args, len(table), checks)
    if reset:
        names = _names(table, table.shape[1])
    else:  # by position, as validate_data has compared the names, if X and the fit have them
        names = [column.name for column in estimator.encoding_.columns]
    numbered = table.set_axis(names, axis=1).reset_index(drop=True)
    profile = _profile(estimator, numbered, sample_weight) if reset else None
    return _encoded(estimator, numbered, profile, y, sample_weight)


def _features(
    estimator: MixtureEstimator, X: tables.Features, args: tuple[Any, ...], checks: dict[str, Any]
) -> Encoded:
    """Check rows that are encoded already, and y if it is given."""
    reset, table = checks.get("reset", True), pd.DataFrame(columns=[*X.encoding.names])
    validate_data(estimator, table, skip_check_array=True, reset=reset)
    y = _target(args, len(X), checks)
    rows = X.to_numpy() if checks["dtype"] == "numeric" else X.to_numpy(dtype=checks["dtype"])
    return Encoded(rows, y, X.encoding if reset else estimator.encoding_)


def _numeric(
    estimator: MixtureEstimator,
    X: Any,
    args: tuple[Any, ...],
    sample_weight: Any,
    checks: dict[str, Any],
) -> Encoded:
    """Check X of numbers, with or without gaps, and y if it is given."""
    # Only large files, which are not copied, have other types than double precision.
    reset, in_file = checks.get("reset", True), checks["dtype"] == "numeric"
    some = "allow-nan" if estimator.missing_values is None else False  # codes may be infinite
    finite = True if in_file or estimator._in_place() else some
    try:
        found = validate_data(estimator, X, *args, ensure_all_finite=finite, **checks)
    except ValueError as error:
        raise _located(X, error) from error
    rows, y = found if isinstance(found, tuple) else (found, None)
    if not reset:
        known = estimator.encoding_
        return Encoded(rows if in_file else known.filled(rows), y, known)
    names = _names(X, rows.shape[1])
    if in_file or estimator._in_place():
        if estimator.missing_values is not None:
            raise ValueError(
                "missing_values needs rows in memory, and no image_shape or network; replace the "
                "codes in X."
            )
    else:
        # Integers of a frame stay integers.
        given = X if isinstance(X, pd.DataFrame) else pd.DataFrame(rows, copy=False)
        frame = given.set_axis(names, axis=1).reset_index(drop=True)
        profile = _profile(estimator, frame, sample_weight)
        if profile.ignored or profile.codes or np.isnan(rows).any():
            return _encoded(estimator, frame, profile, y, sample_weight)
    means: list[Any] = [None] * len(names)
    weights = checked_weights(sample_weight, len(rows))
    if not in_file:
        with np.errstate(over="ignore"):
            means = [(value,) for value in mean_of(rows, weights).tolist()]
    own = X.dtypes if isinstance(X, pd.DataFrame) else [getattr(X, "dtype", object)] * len(names)
    kinds = [
        tables.Booleans if pd.api.types.is_bool_dtype(dtype) else tables.Numbers for dtype in own
    ]
    observed = tables.Observed(len(names))
    for part in chunks(*rows.shape):
        observed.add(np.asarray(rows[part][weights[part] > 0], dtype=np.float64))
    columns = []
    for j, name in enumerate(names):
        span, whole = observed.of(j)
        columns.append(kinds[j](name, means[j], span=span, whole=whole))
    return Encoded(rows, y, tables.Encoding(tuple(columns)))


def _encoded(
    estimator: MixtureEstimator,
    frame: pd.DataFrame,
    profile: tables.TableProfile | None,
    y: AnyArray | None,
    sample_weight: Any,
) -> Encoded:
    """Encode rows, by a new encoding if a fit gives the ``profile`` of its columns."""
    if profile is None and y is None:
        weights, targets = np.ones(len(frame)), {}
    else:
        weights = checked_weights(sample_weight, len(frame))
        known = np.zeros(len(frame)) if y is None else y
        targets = tables.target_columns(known.astype(str if is_classifier(estimator) else float))
    if profile is not None:
        learner = tables.Learner(profile.kinds, [*targets], profile.formats, profile.codes)
        learner.add(frame, np.column_stack([*targets.values()]), weights)
        learned = learner.learned()
        encoding = learned.encoding
        rows = learned.encode_training(frame)
    else:
        encoding = estimator.encoding_
        if y is None or not encoding.by_y:
            rows = encoding.features(frame).to_numpy()
        else:
            rows = encode_with_y(encoding, frame, targets, weights)
        encoding.among(estimator.fitted_.scaling.used).warn_unknown(frame)
    return Encoded(rows, y, encoding)


def fitted_rows(estimator: MixtureEstimator, X: ArrayLike) -> FloatArray:
    """Encode rows for a fitted estimator, as an array with the features of the fit."""
    check_is_fitted(estimator)
    found: FloatArray = validated(estimator, X, reset=False, dtype=np.float64).X
    return found


def checked_weights(sample_weight: Any, n_rows: int) -> FloatArray:
    """Check the weight of each row, shape (n_rows,); ones by default.

    Weights that sum to 1, as in boosting, are shares: positive ones get the mean 1.
    """
    if sample_weight is None or isinstance(sample_weight, Real):
        sample_weight = np.full(n_rows, 1.0 if sample_weight is None else sample_weight)
    weights: FloatArray = check_array(
        sample_weight, ensure_2d=False, dtype=np.float64, order="C", input_name="sample_weight"
    )
    if weights.shape != (n_rows,):
        raise ValueError(
            f"sample_weight must have shape ({n_rows},), one weight for each row of X, got "
            f"{weights.shape}."
        )
    if (weights < 0).any():
        raise ValueError(
            f"sample_weight must be 0 or more, got negative values such as {weights.min():g}."
        )
    if not weights.any():
        raise ValueError("sample_weight is zero everywhere; some row must have a positive weight.")
    total = weights.sum()
    is_share = abs(total - 1) < ROUNDING
    return weights * (np.count_nonzero(weights) / total) if is_share else weights


def _refuse_missing(y: Any) -> None:
    """Refuse None, NaN and the like in y."""
    if y is None:
        return  # scikit-learn refuses it
    # NumPy would convert a NaN in a list of labels to the text "nan".
    values = y if hasattr(y, "dtype") else np.asarray(y, dtype=object)
    rows = np.unique(np.argwhere(np.atleast_1d(pd.isna(values)))[:, 0])
    if len(rows):
        number = f"{len(rows)} missing {'value' if len(rows) == 1 else 'values'}"
        raise ValueError(
            f"Input y contains NaN or None: {number}, first at row {rows[0] + 1}; drop the rows of "
            "X and y whose y is missing."
        )


def _native(y: Any) -> Any:
    """Keep integers and booleans of pandas, nullable or categories, from becoming floats."""
    if isinstance(getattr(y, "dtype", None), pd.api.extensions.ExtensionDtype):
        values = [*y]
        if pd.api.types.infer_dtype(values) in ("integer", "boolean"):
            return np.array(values)
    return y


def _names(X: Any, n_columns: int) -> list[str]:
    """Name the columns x0, x1, ... unless they have names."""
    if isinstance(X, pd.DataFrame) and all(isinstance(name, str) for name in X.columns):
        return [*X.columns]
    return [f"x{number}" for number in range(n_columns)]


def _table(X: Any) -> pd.DataFrame | None:
    """Return X as a table, if it has columns that are not numbers; else None."""
    if getattr(getattr(X, "dtype", None), "kind", "f") not in "biufc" and X.ndim == 2:
        X = pd.DataFrame(np.asarray(X)).infer_objects()
    if not isinstance(X, pd.DataFrame) or X.shape[1] == 0 or len(X) == 0:
        return None
    if all(_is_number(dtype) for dtype in set(X.dtypes)):
        return None
    return X


def _is_number(dtype: Any) -> bool:
    """Tell whether scikit-learn converts a column of this type, gaps included."""
    return pd.api.types.is_numeric_dtype(dtype) and not isinstance(dtype, pd.BooleanDtype)


def _target(args: tuple[Any, ...], n_rows: int, checks: dict[str, Any]) -> AnyArray | None:
    """Check y by scikit-learn; None if it is not given."""
    if not args or (isinstance(args[0], str) and args[0] == "no_validation"):
        return None
    others = {
        name: value for name, value in checks.items() if name in ("y_numeric", "multi_output")
    }
    return check_X_y(np.zeros((n_rows, 1)), args[0], **others)[1]


def _profile(
    estimator: MixtureEstimator, frame: pd.DataFrame, sample_weight: Any = None
) -> tables.TableProfile:
    """Find the kinds of the columns of a fit; warn about ignored and doubtful ones."""
    names = list(frame.columns)
    profile = tables.TableProfile(names, codes=codes_by_column(estimator.missing_values, names))
    counted = checked_weights(sample_weight, len(frame)) > 0
    profile.add(frame if counted.all() else frame[counted])
    profile.check(typed=True)
    for remark in profile.ignored.values():
        warn(remark, tables.UnusedColumnsWarning)
    for doubt in profile.doubts:
        warn(doubt, tables.DoubtfulColumnsWarning)
    return profile


def _located(X: Any, error: ValueError) -> ValueError:
    """Add the column and row of an infinite value to the error about it."""
    known = isinstance(X, pd.DataFrame | np.ndarray) and "infinity" in str(error)
    if known:
        try:
            check_finite(pd.DataFrame(X).infer_objects().reset_index(drop=True))
        except tables.InputError as found:
            return ValueError(f"{str(error).splitlines()[0].rstrip('.')}: {found}")
    return error


def checked(
    estimator: MixtureEstimator,
    X: Any,
    *,
    in_parts: bool,
    in_place: bool = False,
    y: Any = "no_validation",
    **checks: Any,
) -> Encoded:
    """Check X, and y if it is given, by :func:`validated`.

    X becomes an array of floats, or FileRows if it is a large file and ``in_parts`` is set, or a
    large array in memory and ``in_place`` is set.
    """
    array = large_file(X) if in_parts else None
    stays = in_place and array is None and is_large(X)
    kind: Any = [np.float64, np.float32] if stays else np.float64
    found = validated(estimator, X, y, dtype=kind if array is None else "numeric", **checks)
    if array is None and not stays:
        return found
    rows = FileRows(found.X, mapped=False) if array is None else FileRows(array)
    return found._replace(X=rows)


def training_data(
    estimator: MixtureEstimator, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
) -> Data:
    """Return the rows as the model of ``posterior_`` uses them, for ``bayestree.inference``.

    For example ``bayestree.inference.nuts(clf.posterior_.model, clf.training_data(X, y),
    init=clf.posterior_, mirror=True)``, with settings that estimators do not have.

    Parameters
    ----------
    X, y, sample_weight : arrays, shapes (n, d), (n,), (n,)
        The rows of the fit, which the estimator does not keep. With
        ``validation_fraction``, the posterior is based on only a part of them.

    Returns
    -------
    Data
        Scaled X, y as class numbers in the order of ``classes_`` or standardised, and weights
        multiplied by the weights of the classes; without rows of weight 0.

    Raises
    ------
    ValueError
        For rows that ``fit`` would refuse, or unknown classes.
    """
    check_is_fitted(estimator)
    data, _ = training_rows(estimator, X, y, sample_weight)
    return data


def training_rows(
    estimator: MixtureEstimator,
    X: ArrayLike | None,
    y: ArrayLike | None,
    sample_weight: ArrayLike | None,
    remedy: str = "",
) -> tuple[Data, IntArray]:
    """Return rows of positive weight, on the scale of the draws, and their numbers."""
    rows, numbers = counted_rows(estimator, X, y, sample_weight, remedy)
    X_fit = estimator.fitted_.scaling.standardise(rows.X)
    return Data.of(X_fit, rows.response, rows.weights), numbers


def counted_rows(
    estimator: MixtureEstimator,
    X: ArrayLike | None,
    y: ArrayLike | None,
    sample_weight: ArrayLike | None,
    remedy: str = "",
) -> tuple[TrainingRows, IntArray]:
    """Return rows of positive weight, in the units of the data, and their numbers.

    With a ``remedy`` to name, rows that are not those of the fit are refused.
    """
    if X is None or y is None:
        raise ValueError("X and y belong together; give both, or neither.")
    response = estimator.fitted_.response
    y, extra = response.separate(y, refuse=bool(remedy))
    given = {"sample_weight": sample_weight, **estimator._y_checks(y)}
    rows, values, _ = validated(estimator, X, y, reset=False, dtype=np.float64, **given)
    response.check_outputs(values)
    weights = estimator._row_weights(sample_weight, values)
    numbers = np.flatnonzero(weights > 0)
    if len(numbers) == 0:
        raise ValueError("class_weight is zero for all classes of y.")
    check_generated(response.leaf, values, extra)
    if remedy:
        check_fitted_rows(estimator, rows[numbers], float(weights.sum()), remedy)
    found = TrainingRows(
        rows[numbers],
        response.encode(values[numbers]),
        weights[numbers],
        response.class_names,
        None if extra is None else extra[numbers],
    )
    return found, numbers
