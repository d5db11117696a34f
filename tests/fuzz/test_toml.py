"""Untrusted cards, run files and sweep files: read, or refused in one line."""

from contextlib import suppress
from pathlib import Path

import pytest
import tomli_w
from hypothesis import example, given
from hypothesis import strategies as st

from bayestree._utils.parameters import check_parameters
from bayestree.estimators.registry import tasks_of
from bayestree.runs.cards import cards, find_card
from bayestree.runs.schema import RunFile, read_run
from bayestree.runs.settings import keys_of, trees_by_parameter
from bayestree.runs.sweep_file import read_sweep
from bayestree.tables import InputError
from tests.fuzz.strategies import changed, fuzzed, little_memory, scalars, values

ROOT = Path(__file__).parents[2]
CARDS = [card.path.read_bytes() for card in cards()]
SWEEP = (ROOT / "examples" / "priors-sweep.toml").read_bytes()
RUN = b"""
title = "Tumours"
question = "Which are malignant?"
seed = 3
[data]
path = "data/tumours.csv"
target = "diagnosis"
task = "classification"
drop = ["id"]
test_fraction = 0.3
storage = "memory"
[model]
card = "cpt"
max_depth = 3
class_weight = { a = 1.5, b = 2.0 }
[inference]
card = "svi"
epochs = 40
steepness = "none"
[output]
folder = "../results/tumours"
draws = true
"""


def read(reader, *given, **options):
    """The content of a file if it is valid; a refusal is one line."""
    try:
        return reader(*given, **options)
    except InputError as error:
        said = str(error)
    assert said
    assert "\n" not in said
    assert len(said) < 2000
    return None


def holds_together(run, folder):
    """A run that was read can be made, written, and read again as the same."""
    for task in [run.task()] if run.task() else tasks_of(run.tree):
        try:
            estimator = run.estimator(task)
        except InputError:
            continue
        check_parameters(estimator)
        explicit = run.explicit(task)
        explicit.write_toml(folder / "again.toml")
        again = read_run(folder / "again.toml")
        assert repr(again.parameters()) == repr(run.parameters(task))
        assert again.data == explicit.data
        assert again.output == explicit.output


@fuzzed
@given(st.data())
def test_run_files_with_changes(tmp_path, data):
    path = tmp_path / "run.toml"
    path.write_bytes(data.draw(changed(RUN)))
    run = read(read_run, path)
    if run is not None:
        holds_together(run, tmp_path)


@fuzzed
@given(st.binary(max_size=60))
@example(b"[[[[" * 3000)
@example(b"a = " + b"[" * 3000)
@example(b"a." * 3000 + b"a = 1")
@example(b"[data]\npath = 'a'\ntarget = 'y'\n[model.card]\n")
@example(b"[[data]]\n[[model]]\n")
def test_bytes_that_are_no_run(tmp_path, content):
    path = tmp_path / "run.toml"
    path.write_bytes(content)
    read(read_run, path)
    read(read_sweep, path)


TABLES = {"data": keys_of("data"), "output": keys_of("output")}
PARAMETERS = [name for names in trees_by_parameter().values() for name in names]
NAMES = [*PARAMETERS, "card", "tree", "max_dept", "random_state", ""]


@st.composite
def contents(draw):
    """The content of a run file: right keys and wrong ones, with values of every kind."""
    keyed = {
        table: st.dictionaries(st.sampled_from(TABLES.get(table, NAMES)), values, max_size=4)
        for table in ("data", "model", "inference", "output")
    }
    base = {"data": {"path": "a.csv", "target": "y"}, "seed": 1}
    for table in draw(st.lists(st.sampled_from([*keyed, "seed", "title", "modell"]), max_size=3)):
        new = draw(keyed[table] | values if table in keyed else values)
        both = isinstance(new, dict) and isinstance(base.get(table), dict)
        base[table] = base[table] | new if both else new
    return base


@fuzzed
@given(contents())
def test_run_files_of_odd_values(tmp_path, content):
    path = tmp_path / "run.toml"
    path.write_text(tomli_w.dumps(content), encoding="utf-8", errors="replace")
    run = read(read_run, path)
    if run is not None:
        holds_together(run, tmp_path)


huge = st.sampled_from(
    ["9" * 5000, "1e400", "-1e309", "inf", "nan", "'" + "z" * 50_000 + "'", '"\\u0000\\u001b\\n"',
     "[" * 9 + "]" * 9, "{" * 3, "[{a = [{a = 1}]}]", "0x" + "f" * 4000, "[" + "1," * 9999 + "]"]
)  # fmt: skip
deep = st.sampled_from(["a" + ".b" * 3, "a" + ".b" * 40_000, '"\\u0001"', "\x1b", "'a.b'", "''"])


def test_hexadecimal_integers_without_end(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text(f'[data]\npath = "a.csv"\ntarget = "y"\nstorage = 0x{"f" * 4000}\n')
    with pytest.raises(InputError, match="is not valid TOML"):
        read_run(path)


@fuzzed
@given(st.data())
def test_run_files_of_huge_values(tmp_path, data):
    """Lines with huge values and odd keys, in tables with missing lines."""
    every = RUN.decode().strip().split("\n")
    lines = data.draw(
        st.lists(st.sampled_from(every), min_size=8, unique=True).map(sorted_as(every))
    )
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(lines) - 1))
        key = data.draw(st.just(lines[at].partition(" =")[0]) | deep)
        lines[at] = f"{key} = {data.draw(huge)}"
    path = tmp_path / "run.toml"
    path.write_text("\n".join(lines))
    with little_memory(path):
        read(read_run, path)


def sorted_as(every):
    return lambda chosen: sorted(chosen, key=every.index)


@fuzzed
@given(st.sampled_from(NAMES), scalars)
def test_single_settings(tmp_path, name, value):
    parts = {"data": {"path": "a.csv", "target": "y"}}
    run = read(RunFile.from_parts, parts, tmp_path / "run.toml", sets=[(name, value)])
    if run is not None:
        holds_together(run, tmp_path)


@fuzzed
@given(st.text(max_size=30))
def test_pairs(tmp_path, pair):
    (tmp_path / "run.toml").write_bytes(RUN)
    read(read_run, tmp_path / "run.toml", sets=[pair])


@fuzzed
@given(st.data())
def test_cards_with_changes(tmp_path, data):
    card = data.draw(st.sampled_from(CARDS))
    (tmp_path / "card.toml").write_bytes(data.draw(changed(card)))
    kind = "model" if b"tree" in card else "inference"
    parts = {"data": {"path": "a.csv", "target": "y"}, kind: {"card": "card.toml"}}
    if kind == "inference":
        parts["model"] = {"card": data.draw(st.sampled_from(["cpt", "tao", "e2edt", "wodt"]))}
    run = read(RunFile.from_parts, parts, tmp_path / "run.toml")
    if run is not None:
        holds_together(run, tmp_path)


@fuzzed
@given(st.text(max_size=20), st.sampled_from(["model", "inference"]))
@example("a" * 5000, "model")
@example("a" * 5000 + "/x.toml", "model")
@example("/dev/null/x.toml", "model")
def test_names_of_cards(tmp_path, name, kind):
    with suppress(OSError):  # a name too long for the system
        read(find_card, name, kind, folder=tmp_path, root=tmp_path)


@fuzzed
@given(st.data())
def test_sweep_files_with_changes(tmp_path, data):
    (tmp_path / "priors.toml").write_bytes(RUN)
    path = tmp_path / "sweep.toml"
    path.write_bytes(data.draw(changed(SWEEP)))
    read(read_sweep, path)


@fuzzed
@given(st.dictionaries(st.sampled_from(NAMES), values, max_size=3), values)
def test_sweep_files_of_odd_values(tmp_path, vary, sweep):
    (tmp_path / "run.toml").write_bytes(RUN)
    path = tmp_path / "sweep.toml"
    content = {"run": "run.toml", "vary": vary, "sweep": sweep}
    path.write_text(tomli_w.dumps(content), encoding="utf-8", errors="replace")
    read(read_sweep, path)


@pytest.mark.parametrize("name", ["a\nb", "a\x1b[31mb", "é" * 300])
def test_names_in_messages(tmp_path, name):
    parts = {"data": {"path": "a.csv", "target": "y"}, "model": {name: 3}}
    with pytest.raises(InputError) as caught:
        RunFile.from_parts(parts, tmp_path / "run.toml")
    assert str(caught.value).isprintable()
