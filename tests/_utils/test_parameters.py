"""Parameters stated once: constructor, checks, messages, docstring, and types for files."""

from typing import Annotated, Any, Literal

import numpy as np
import pytest
from pydantic import Field, InstanceOf, TypeAdapter, ValidationError

from bayestree._utils.parameters import (
    ByName,
    ClassWeights,
    Count,
    Inference,
    Model,
    NonNegative,
    NonNegativeOrInf,
    ParameterError,
    Positive,
    Probability,
    Run,
    Seed,
    Shape,
    Share,
    check_parameters,
    declare,
    document,
    parameters_of,
)
from bayestree.inference import Map


class Net:
    """An object that no file can hold."""


@declare
class Base:
    """A split.

    {parameters}

    Attributes
    ----------
    weight : float
    """

    depth: Annotated[Count | None, Model("Maximum depth.")] = None
    split: Annotated[Literal["linear"] | InstanceOf[Net], Model("Kind of split.")] = "linear"
    rate: Annotated[Positive, Inference("Learning rate.")] = 0.1


@declare
class Derived(Base):
    """A derived split.

    {parameters}

    {attributes}
    rows : int
        Number of rows
        in the node.

    Notes
    -----
    None.
    """

    rate = 3.0
    seed: Annotated[Seed, Run("Seed.")] = None


def test_signature_groups_and_defaults():
    found = parameters_of(Derived)
    assert [*found] == ["depth", "split", "rate", "seed"]
    assert [one.group for one in found.values()] == ["model", "model", "inference", "run"]
    assert (Base().rate, Derived().rate, found["rate"].default) == (0.1, 3.0, 3.0)
    with pytest.raises(TypeError):
        Base(3)  # type: ignore[call-arg]


def test_a_default_changes_whichever_base_has_the_parameter():
    @declare
    class Other:
        noise: Annotated[Positive, Model("Scale of the noise.")] = 1.0

    @declare
    class Both(Other, Base):
        rate = 5.0
        noise = 2.0

    assert (Both().rate, Both().noise, Both(rate=1.0).rate) == (5.0, 2.0, 1.0)


def test_docstring():
    assert Base.__doc__ == (
        "A split.\n\n"
        "Parameters\n----------\n"
        "depth : int, optional\n    Maximum depth.\n"
        'split : {"linear"} or Net, default="linear"\n    Kind of split.\n'
        "rate : float, default=0.1\n    Learning rate.\n\n"
        "Attributes\n----------\nweight : float"
    )
    assert "rate : float, default=3.0" in Derived.__doc__
    assert Derived.__doc__.endswith(
        "\n\nAttributes\n----------\n"
        "weight : float\n"
        "rows : int\n    Number of rows\n    in the node.\n\n"
        "Notes\n-----\nNone."
    )


def test_attributes_of_a_derived_class():
    @declare
    class Heavier(Derived):
        """Heavier.

        {attributes}
        weight : double
        """

    assert Heavier.__doc__ == (
        "Heavier.\n\nAttributes\n----------\n"
        "weight : double\n"
        "rows : int\n    Number of rows\n    in the node."
    )


def test_a_class_without_docstring():
    document(Net)
    empty = type("Empty", (), {})
    document(empty)
    assert empty.__doc__ is None


@pytest.mark.parametrize("kind", [int, Annotated[int, "Text."]])
def test_a_parameter_needs_group_and_description(kind):
    made = declare(type("Made", (), {"__annotations__": {"x": kind}, "x": 1}))
    with pytest.raises(TypeError, match="parameter x needs a group, a description"):
        parameters_of(made)


def parameter(annotation, default=None):
    fields = {"x": Annotated[annotation, Model("Text.")]}
    return parameters_of(declare(type("Made", (), {"__annotations__": fields, "x": default})))["x"]


FEATURES = Literal["sqrt"] | Count | Annotated[float, Field(gt=0, le=1)] | None
WEIGHTS = ClassWeights | Literal["balanced"] | None
CASES: list[tuple[Any, list[Any], list[Any]]] = [
    (Count, [1, 5, 10**12, np.int64(3)], [0, 1.0, True, "1", None]),
    (Positive, [0.1, 3, np.float32(2)], [0, -1, np.inf, np.nan, True, "1"]),
    (NonNegative, [0, 2.5], [-0.1, np.inf]),
    (NonNegativeOrInf, [0, np.inf], [np.nan, -0.1]),
    (Share, [0, 0.5], [1, 1.0]),
    (Probability, [0.5], [0, 1]),
    (Literal["a", "b"] | None, ["a", None], ["c", 3]),
    (bool | Literal["auto"], [True, np.bool_(False), "auto"], [1, "true"]),
    (int | None, [-1, None], [1.5]),
    (str, ["x"], [3]),
    (WEIGHTS, [{"a": 1, 0: np.float64(2)}, "balanced", None], [{"a": -1}, {"a": "x"}, [1]]),
    (Shape | None, [(3, 4), [3, 4], np.array([3, 4]).tolist()], [[3], (0, 1), [1.5, 2], 3]),
    (FEATURES, ["sqrt", 3, 0.5, 1.0], [0, 1.5, 0.0, "all"]),
    (Seed, [0, np.random.RandomState(0), None], [-1, "x", 1.5]),
    (Literal["x"] | InstanceOf[Net], ["x", Net()], [Net, "y"]),
]


@pytest.mark.parametrize(("annotation", "good", "bad"), CASES)
def test_check(annotation, good, bad):
    found = parameter(annotation)
    for value in good:
        found.check(value)
    for value in bad:
        with pytest.raises(ParameterError, match=r"x must be .*, got "):
            found.check(value)


@pytest.mark.parametrize(
    ("annotation", "good", "bad"),
    [
        (Count, [1, 5], [0, 1.0, True, "1", 2**31]),
        (int | None, [-1, "none"], [1.5, -(2**31), None]),
        (Positive, [0.1, 3], [0, float("inf"), "1"]),
        (Literal["a", "b"] | None, ["a", "none"], ["c"]),
        (bool, [True], [1, "true"]),
        (WEIGHTS, [{"a": 1}, "balanced", "none"], [{"a": -1}, {"a": "x"}, [1]]),
        (Shape | None, [[3, 4], "none"], [[3], [3, 4, 5], [0, 1], [1.5, 2], 3]),
        (FEATURES, ["sqrt", 3, 0.5, "none"], [0, 1.5, "all"]),
        (Literal["x"] | InstanceOf[Net], ["x"], ["y"]),
    ],
)
def test_types_for_files(annotation, good, bad):
    found = parameter(annotation)
    kind = TypeAdapter(found.file_type)
    kind.json_schema()
    for value in good:
        assert found.to_file(found.from_file(kind.validate_python(value))) == value
    for value in bad:
        with pytest.raises(ValidationError):
            kind.validate_python(value)


def test_no_type_for_files():
    assert parameter(InstanceOf[Net]).file_type is None


@pytest.mark.parametrize(
    ("annotation", "words", "in_file"),
    [
        (Count, "an integer of 1 or more", "an integer of 1 or more"),
        (Count | None, "an integer of 1 or more, or None", 'an integer of 1 or more, or "none"'),
        (Probability, "a number above 0 and below 1", "a number above 0 and below 1"),
        (Literal["b", "a"], "'b' or 'a'", '"b" or "a"'),
        (bool, "True or False", "true or false"),
        (Literal["x"] | InstanceOf[Net], "'x', or a Net", '"x"'),
        (Shape, "two integers of 1 or more", "[height, width], integers of 1 or more"),
        (
            ClassWeights,
            "a dict of a number of 0 or more for each class",
            "a table of a number of 0 or more for each class",
        ),
    ],
)
def test_words(annotation, words, in_file):
    assert parameter(annotation).expected == words
    assert parameter(annotation).expected_in_file == in_file


class TestTables:
    """Objects with parameters of their own, which a file holds as tables."""

    made = parameter(Literal["map"] | Annotated[InstanceOf[Map], ByName({"map": Map})])

    def test_there_and_back(self):
        assert self.made.from_file("map") == "map"
        found = self.made.from_file({"name": "map", "epochs": 3, "steepness": [1.0, 6.0]})
        assert found == Map(epochs=3, steepness=(1.0, 6.0))
        written = self.made.to_file(found)
        assert written["epochs"] == 3
        assert written.keys() == {"name", *parameters_of(Map)}
        TypeAdapter(self.made.file_type).validate_python(written)
        assert self.made.from_file(written) == found

    @pytest.mark.parametrize(
        "table", [{}, {"name": "svi"}, {"name": "map", "epoch": 3}, {"name": "map", "epochs": 0}]
    )
    def test_refused(self, table):
        with pytest.raises(ValidationError):
            TypeAdapter(self.made.file_type).validate_python(table)

    def test_words(self):
        assert self.made.expected == "'map', or a Map"
        assert self.made.expected_in_file == '"map", or a table of its name and settings'


def test_messages():
    with pytest.raises(ValueError, match="depth must be an integer of 1 or more, or None, got -1"):
        check_parameters(Derived(depth=-1))
    with pytest.raises(TypeError, match="rate must be a number above 0, got 'fast'"):
        check_parameters(Derived(rate="fast"))
    check_parameters(Derived(depth=3, split=Net()))


def test_infinite_numbers_are_refused_in_words():
    with pytest.raises(ValueError, match="learning_rate must be a finite number above 0, got inf"):
        check_parameters(Map(learning_rate=float("inf")))
    check_parameters(Map(steepness=np.array([1.0, 6.0])))
