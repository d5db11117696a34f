"""Parameters of the estimators that do not declare them yet, from scikit-learn's constraints."""

import inspect
import re
from functools import cache
from numbers import Integral
from typing import Annotated, Any, Literal, Union

from pydantic import Field
from sklearn.utils._param_validation import Interval, StrOptions

from bayestree import estimators
from bayestree._utils import parameters as declared
from bayestree._utils.parameters import INFERENCE, MODEL, RUN, ClassWeights, Parameter, Shape

MODEL_PARAMETERS = frozenset(
    """
    split n_experts n_estimators max_features patch_size image_shape
    prior concentration rate scale_shape shrinkage_shape shrinkage_rate l1 spatial
    pair_cost pair_penalty criterion ccp_alpha leaf leaf_ridge class_weight scaling smoothing
    max_depth max_leaves min_rows min_leaf min_gain
    """.split()  # noqa: SIM905 - a line of words is easier to read
)
RUN_PARAMETERS = ("random_state", "verbose")
TYPES = {"boolean": bool, str: str, Integral: int, tuple: Shape, dict: ClassWeights, None: None}
SECTION = re.compile(r"^Parameters\n-+\n(.*?)(?=^\w[^\n]*\n-+$|\Z)", re.MULTILINE | re.DOTALL)
ENTRY = re.compile(r"^(\w+(?:, \w+)*)(?: : [^\n]*)?\n((?:[ ]{4}[^\n]*\n|\n)*)", re.MULTILINE)
ROLE = re.compile(r":\w+:`~?(?:[\w.]*\.)?(\w+)`")


@cache
def parameters_of(kind: Any) -> dict[str, Parameter]:
    """Return the parameters of an estimator class, declared or not."""
    if "__dataclass_fields__" in vars(kind):
        return declared.parameters_of(kind)
    found = {}
    for name, signed in inspect.signature(kind).parameters.items():
        types = [_type(one) for one in kind._parameter_constraints[name] if _is_plain(one)]
        annotation: Any = Union[tuple(types)] if types else Any  # noqa: UP007 - computed
        group = MODEL if name in MODEL_PARAMETERS else INFERENCE
        group = RUN if name in RUN_PARAMETERS else group
        found[name] = Parameter(name, annotation, signed.default, _text(name, kind), group)
    return found


def _is_plain(constraint: Any) -> bool:
    return isinstance(constraint, Interval | StrOptions) or (
        isinstance(constraint, str | type | None) and constraint in TYPES
    )


def _type(constraint: Any) -> Any:
    if isinstance(constraint, StrOptions):
        return Literal[tuple(sorted(constraint.options))]
    if not isinstance(constraint, Interval):
        return TYPES[constraint]
    bounds: dict[str, Any] = {}
    if constraint.left is not None:
        bounds["ge" if constraint.closed in ("left", "both") else "gt"] = constraint.left
    if constraint.right is not None:
        bounds["le" if constraint.closed in ("right", "both") else "lt"] = constraint.right
    if constraint.type is Integral:
        return Annotated[int, Field(**bounds)]
    infinite = constraint.right is None and constraint.closed in ("right", "both")
    return Annotated[float, Field(allow_inf_nan=infinite, **bounds)]


def _text(name: str, kind: type) -> str:
    text = _described(kind).get(name)
    if text is None:  # a regressor that describes how it differs from its classifier
        name_of_classifier = kind.__name__.replace("Regressor", "Classifier")
        text = _described(getattr(estimators, name_of_classifier)).get(name, "")
    other = re.match(r"As of (\w+)", text)
    return _described(getattr(estimators, other[1]))[name] if other else text


def _described(kind: type) -> dict[str, str]:
    section = SECTION.search(inspect.getdoc(kind) or "")
    found: dict[str, str] = {}
    for entry in ENTRY.finditer(section[1] + "\n" if section else ""):
        text = ROLE.sub(r"\1", " ".join(entry[2].split())).replace("``", "")
        found |= dict.fromkeys(entry[1].split(", "), text)
    return found
