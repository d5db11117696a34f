"""Parameters as annotated dataclass fields: defaults, constraints, messages, and documentation.

A class states each of its parameters once::

    @declare
    class Stump:
        '''A split.

        {parameters}
        '''

        n_experts: Annotated[Count, Model("Maximum number of facets.")] = 8

and the constructor, the checks and their messages (:func:`check_parameters`), the "Parameters"
section of the docstring (:func:`document`), and the types in a run file
(:attr:`Parameter.file_type`) follow from the fields. Likewise ``{attributes}`` is replaced by an
"Attributes" section with the entries of the classes that it inherits from.
"""

import math
import re
import textwrap
from collections.abc import Callable, Mapping, Set
from dataclasses import MISSING, dataclass, field, fields
from dataclasses import Field as DataclassField
from functools import cache, cached_property, partial
from inspect import cleandoc, get_annotations
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    TypeVar,
    Union,
    cast,
    dataclass_transform,
    get_args,
    get_origin,
)

import numpy as np
from pydantic import ConfigDict, Field, InstanceOf, TypeAdapter, ValidationError, create_model

from bayestree._utils.user_classes import Own, name_of, own_part
from bayestree._utils.wording import MAX_INTEGER, written

PLACEHOLDER = "{parameters}"  # replaced in a docstring by the section of parameters
INHERITED = "{attributes}"  # replaced by a heading and the attributes of the base classes
HEADING = "Attributes\n----------"
OWN = r"^[\w.]+:[\w.]+$"  # the name of a class of the user, "module:Class"
WIDTH = 100  # columns of a docstring
NONE = "none"  # represents None in TOML, which has no null
MODEL, INFERENCE, RUN = "model", "inference", "run"  # groups of parameters


@dataclass(frozen=True)
class About:
    """Group and description of a parameter, in the annotation of its field."""

    group: str
    description: str


Model, Inference, Run = partial(About, MODEL), partial(About, INFERENCE), partial(About, RUN)

Count = Annotated[int, Field(ge=1)]
Size = Annotated[int, Field(ge=0)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
NonNegativeOrInf = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, lt=1)]
Probability = Annotated[float, Field(gt=0, lt=1)]
Shape = tuple[Count, Count]  # height and width of an image
ClassWeights = dict[Any, NonNegative]
Seed = Annotated[int, Field(ge=0, le=2**32 - 1)] | InstanceOf[np.random.RandomState] | None

BOUNDS = {"ge": "of {} or more", "gt": "above {}", "le": "up to {}", "lt": "below {}"}

Class = TypeVar("Class", bound=type)


@dataclass(frozen=True, eq=False)
class ByName:
    """Declared classes whose objects a file writes as tables, such as ``{name = "co2", nu = 1.0}``.

    It stands in the annotation of a parameter: ``Annotated[InstanceOf[Base], ByName(classes)]``.
    """

    classes: Mapping[str, type]


class ParameterError(ValueError, TypeError):
    """A parameter with an invalid value."""


@dataclass(frozen=True)
class Parameter:
    """A parameter of an estimator or of an inference method."""

    name: str
    annotation: Any  # the type for pydantic, without group and description
    default: Any
    description: str
    group: str  # its table in a run file; parameters of a run are set by the run itself

    @property
    def expected(self) -> str:
        """Valid values in words, such as ``an integer of 1 or more, or None``."""
        return ", or ".join(_words(member, in_file=False) for member in _members(self.annotation))

    @property
    def expected_in_file(self) -> str:
        """Valid values in a file, such as ``an integer of 1 or more, or "none"``."""
        members = filter(_in_file, _members(self.annotation))
        return ", or ".join(_words(member, in_file=True) for member in members)

    @property
    def type_words(self) -> str:
        """Type and default for a docstring, such as ``int, default=4``."""
        words = [_type_words(member) for member in _members(self.annotation)]
        if self.default is None:
            return " or ".join(w for w in dict.fromkeys(words) if w != "None") + ", optional"
        return f"{' or '.join(words)}, default={_quoted(self.default)}"

    @cached_property
    def adapter(self) -> TypeAdapter[Any]:
        """Validates values in Python, after :func:`_plain`."""
        config = ConfigDict(strict=True, arbitrary_types_allowed=True)
        return TypeAdapter(self.annotation, config=config)

    @cached_property
    def file_type(self) -> Any:
        """The type of values in a file, with "none" for None; None if all values are objects."""
        members = [_file_type(m) for m in _members(self.annotation) if _in_file(m)]
        return Union[tuple(members)] if members else None  # noqa: UP007 - unknown members

    @cached_property
    def named(self) -> Mapping[str, type]:
        """The classes of the objects that a file writes as tables, by name."""
        found: dict[str, type] = {}
        for member in _members(self.annotation):
            found |= _by_name_of(member)
        return found

    @cached_property
    def own(self) -> type | None:
        """The base of the user's classes whose objects are valid, if they are."""
        return next(filter(None, map(_own_base, _members(self.annotation))), None)

    def check(self, value: Any) -> None:
        """Raise ParameterError if the value is invalid."""
        try:
            self.adapter.validate_python(_plain(value))
        except ValidationError:
            expected = self.expected
            if isinstance(value, float) and not math.isfinite(value):
                expected = expected.replace("a number", "a finite number")
            raise ParameterError(f"{self.name} must be {expected}, got {written(value)}.") from None

    def from_file(self, value: Any) -> Any:
        """Return the value of a valid entry of a file."""
        if value == NONE and NoneType in _members(self.annotation):
            return None
        if self.own and (isinstance(value, Mapping) or re.match(OWN, str(value))):
            return own_part(self.own, value)
        if self.named and isinstance(value, Mapping):
            kind = self.named[value["name"]]
            known = parameters_of(kind)
            return kind(**{n: known[n].from_file(v) for n, v in value.items() if n != "name"})
        return tuple(value) if isinstance(value, list) else value

    def to_file(self, value: Any) -> Any:
        """Return the inverse of :meth:`from_file`."""
        if value is None:
            return NONE
        if self.own and isinstance(value, self.own):
            given = {n: one for n, one in vars(value).items() if one is not None}
            return {"name": name_of(type(value))} | given
        for name, kind in self.named.items():
            if type(value) is kind:
                known = parameters_of(kind)
                return {"name": name} | {n: p.to_file(getattr(value, n)) for n, p in known.items()}
        return list(value) if isinstance(value, tuple) else value


@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(field,))
def declare(cls: Class) -> Class:
    """Make a dataclass of keyword parameters, and complete its docstring.

    A plain assignment to the name of an inherited parameter changes its default::

        @declare
        class Forest(Tree):
            max_depth = 10
    """
    bases = (vars(base).get("__dataclass_fields__", {}) for base in reversed(cls.__mro__))
    known = {name: one for fields_of_base in bases for name, one in fields_of_base.items()}
    own = get_annotations(cls)
    changed = {name: known[name].type for name in vars(cls) if name in known and name not in own}
    cls.__annotations__ = own | changed
    made: Any = dataclass(kw_only=True, eq=False, repr=False)(cls)
    made.__init__.__annotations__ = {}  # unreadable in help(), which has the docstring
    document(made)
    return cast(Class, made)


def takes(*groups: type) -> Callable[[Class], Class]:
    """Add the parameters of declared classes to a class, without inheriting from them.

    Parameters of later groups come first. The class may change their defaults by assignments::

        @declare
        @takes(Limits, Depth)
        class Tree:
            max_depth = 10
    """

    def with_parameters(cls: Class) -> Class:
        taken = {one.name: one for group in reversed(groups) for one in fields(cast(Any, group))}
        own = get_annotations(cls)
        cls.__annotations__ = {name: one.type for name, one in taken.items()} | own
        for name, one in taken.items():
            if name not in vars(cls):
                setattr(cls, name, one.default)
        return cls

    return with_parameters


def parameters_of(cls: type) -> dict[str, Parameter]:
    """Return the parameters of a declared class by name, in the order of its signature."""
    return _parameters_of(cls)


@cache
def _parameters_of(cls: Any) -> dict[str, Parameter]:
    found = [one for one in fields(cls) if one.init]
    return {one.name: _parameter(one) for one in sorted(found, key=lambda one: bool(one.kw_only))}


def check_parameters(instance: Any) -> None:
    """Raise ParameterError for the first parameter whose value is invalid."""
    for name, parameter in parameters_of(type(instance)).items():
        parameter.check(getattr(instance, name))


def document(cls: type) -> None:
    """Replace ``{parameters}`` and ``{attributes}`` in the docstring of a class by these sections.

    Attributes are inherited; entries below ``{attributes}`` are added, or replace inherited ones.
    """
    if cls.__doc__ and PLACEHOLDER in cls.__doc__:
        section = f"Parameters\n----------\n{entries(cls)}"
        cls.__doc__ = cleandoc(cls.__doc__).replace(PLACEHOLDER, section)
    if cls.__doc__ and INHERITED in cls.__doc__:
        before, own, after = _parted(cleandoc(cls.__doc__), INHERITED)
        found: dict[str, str] = {}
        for base in cls.__mro__[1:]:
            _, inherited, _ = _parted(cleandoc(base.__doc__ or ""), HEADING)
            for name, text in _by_name(inherited).items():
                found.setdefault(name, text)
        found |= _by_name(own)
        cls.__doc__ = "\n".join([before + HEADING, *found.values()]) + after


def _parted(text: str, heading: str) -> tuple[str, str, str]:
    """Return the text before a heading, the paragraph below it, and what follows."""
    before, _, rest = text.partition(heading)
    own, gap, after = rest.partition("\n\n")
    return before, own.strip(), gap + after


def _by_name(section: str) -> dict[str, str]:
    """Return entries by name; the lines below the first of each are indented."""
    each = re.split(r"\n(?!\s)", section) if section else []
    return {one.partition(" : ")[0]: one for one in each}


def entries(cls: type) -> str:
    """Return the entries of the "Parameters" section of a NumPy-style docstring."""
    found = []
    for name, one in parameters_of(cls).items():
        text = textwrap.fill(one.description, WIDTH - 4, break_on_hyphens=False)
        found.append(f"{name} : {one.type_words}\n{textwrap.indent(text, '    ')}")
    return "\n".join(found)


def _plain(value: Any) -> Any:
    """Return the value with Python numbers, not NumPy's, and tuples for lists and sets in them."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, tuple | list):
        each = (tuple(one) if isinstance(one, Set) else one for one in value)
        return tuple(_plain(one) for one in each)
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    return value


def _parameter(one: "DataclassField[Any]") -> Parameter:
    annotation, *metadata = get_args(one.type) if get_origin(one.type) is Annotated else [one.type]
    about = next((item for item in metadata if isinstance(item, About)), None)
    if about is None or one.default is MISSING:
        raise TypeError(
            f"parameter {one.name} needs a group, a description and a default, such as "
            f'{one.name}: Annotated[float, Model("Rate of the prior.")] = 1.0.'
        )
    constraints = [c for item in metadata for c in getattr(item, "metadata", ())]
    kind = Annotated[annotation, *constraints] if constraints else annotation
    return Parameter(one.name, kind, one.default, about.description, about.group)


def _members(annotation: Any) -> tuple[Any, ...]:
    """Return the members of a union, including nested ones, or the type itself."""
    if get_origin(annotation) not in (Union, UnionType):
        return (annotation,)
    return tuple(m for member in get_args(annotation) for m in _members(member))


def _base(member: Any) -> tuple[Any, dict[str, float]]:
    """Return the type without annotations, and the bounds of its values."""
    if get_origin(member) is not Annotated:
        return member, {}
    base, *metadata = get_args(member)
    return base, {name: b for item in metadata for name, b in _bounds(item).items()}


def _bounds(item: Any) -> dict[str, float]:
    return {
        name: getattr(constraint, name)
        for constraint in getattr(item, "metadata", (item,))
        for name in BOUNDS
        if hasattr(constraint, name)
    }


def _by_name_of(member: Any) -> Mapping[str, type]:
    metadata = get_args(member)[1:] if get_origin(member) is Annotated else ()
    return next((one.classes for one in metadata if isinstance(one, ByName)), {})


def _own_base(member: Any) -> type | None:
    return _base(member)[0] if Own in getattr(member, "__metadata__", ()) else None


def _in_file(member: Any) -> bool:
    """Return whether a file can contain such a value."""
    base, _ = _base(member)
    return (
        bool(_by_name_of(member) or _own_base(member))
        or base in (int, float, bool, str, NoneType)
        or get_origin(base) in (Literal, dict)
        or (get_origin(base) is tuple and _in_file(get_args(base)[0]))
    )


def _words(member: Any, *, in_file: bool) -> str:
    base, bounds = _base(member)
    origin, arguments = get_origin(base), get_args(base)
    if origin is Literal:
        return " or ".join(_quoted(one) if in_file else repr(one) for one in arguments)
    if origin is tuple:
        return _tuple_words(base, in_file=in_file)
    if origin is dict:
        values = _words(arguments[1], in_file=in_file)
        key = "column name" if arguments[0] is str else "class"
        return f"{'a table' if in_file else 'a dict'} of {values} for each {key}"
    if base is NoneType:
        return f'"{NONE}"' if in_file else "None"
    if base is bool:
        return "true or false" if in_file else "True or False"
    kinds = {int: "an integer", float: "a number", str: "a string"}
    article = "an" if base.__name__[0] in "AEIOU" else "a"
    limits = " and ".join(BOUNDS[name].format(bound) for name, bound in bounds.items())
    if in_file and _by_name_of(member):
        kinds[base] = "a table of its name and settings"
    if in_file and _own_base(member):
        kinds[base] = f'"module:Class" of your {base.__name__}, or a table of this name and fields'
    return f"{kinds.get(base, f'{article} {base.__name__}')} {limits}".strip()


def _tuple_words(base: Any, *, in_file: bool) -> str:
    element = get_args(base)[0]
    if not _in_file(element):
        return f"a list of {_base(element)[0].__name__}s"
    nested = get_origin(element) is tuple
    each = _words(get_args(element)[0] if nested else element, in_file=in_file)
    if Ellipsis in get_args(base) and not nested:
        return f"a list of {each} for each column"
    kind, *bounds = each.split()[1:]
    words = " ".join([f"{kind}s", *bounds])
    if nested:
        return f"a list of lists of {words}"
    return f"[height, width], {words}" if base == Shape and in_file else f"two {words}"


def _type_words(member: Any) -> str:
    base, _ = _base(member)
    if get_origin(base) is Literal:
        return "{" + ", ".join(_quoted(one) for one in get_args(base)) + "}"
    if Ellipsis in get_args(base):
        return "list"
    if get_origin(base) is tuple:
        return f"({', '.join(_type_words(one) for one in get_args(base))})"
    if get_origin(base) is dict:
        return "dict"
    return "None" if base is NoneType else str(base.__name__)


def _quoted(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _file_type(member: Any) -> Any:
    base, bounds = _base(member)
    origin, arguments = get_origin(base), get_args(base)
    if origin is Literal or base is NoneType:
        return base if origin is Literal else Literal[NONE]
    if _own_base(member):
        return Annotated[str, Field(pattern=OWN)] | dict[str, Any]
    if named := _by_name_of(member):
        return Union[tuple(_table_type(*one) for one in named.items())]  # noqa: UP007
    if origin is tuple:
        kinds = (one if one is Ellipsis else _file_type(one) for one in arguments)
        return tuple.__class_getitem__(tuple(kinds))
    if origin is dict:
        return dict.__class_getitem__((str, _file_type(arguments[1])))
    if base is int:
        lower = {} if bounds.keys() & {"ge", "gt"} else {"ge": -MAX_INTEGER}
        bounds = {"le": MAX_INTEGER} | lower | bounds
        bounds["le"] = min(bounds["le"], MAX_INTEGER)
    extra = get_args(member)[1:] if get_origin(member) is Annotated else ()
    return Annotated[base, *extra, Field(strict=True, **cast(Any, bounds))]


def _table_type(name: str, kind: type) -> Any:
    """Return the type of the table of an object with parameters."""
    fields: dict[str, Any] = {
        n: (one.file_type, Field(one.to_file(one.default), description=one.description))
        for n, one in parameters_of(kind).items()
    }
    fields["name"] = (Literal[name], ...)
    return create_model(name, __config__=ConfigDict(extra="forbid"), **fields)
