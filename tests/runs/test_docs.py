"""The pages on run files and cards agree with the code: keys, cards, messages, blocks that run."""

import re
import tomllib
from pathlib import Path

import pytest

from bayestree.estimators.registry import TREES
from bayestree.runs.cards import cards
from bayestree.runs.schema import RunFile
from bayestree.runs.settings import inference_cards, keys_of

DOCS = Path(__file__).parents[2] / "docs" / "run"
PAGE = "".join((DOCS / name).read_text(encoding="utf-8") for name in ("runs.md", "cards.md"))


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def section(title):
    """Text between a heading and the next."""
    text = re.sub(r"^```.*?^```$", "", PAGE, flags=re.MULTILINE | re.DOTALL)
    return re.split(r"^#+ ", text.partition(f" {title}\n")[2], flags=re.MULTILINE)[0]


def first_cells(text):
    cells = re.findall(r"^\| (`[^|]*`) \|", text, re.MULTILINE)
    return [name for cell in cells for name in re.findall(r"`([\w-]+)`", cell)]


@pytest.mark.parametrize(
    ("title", "table"), [("`[data]`", "data"), ("`[output]`", "output"), ("The run file", "")]
)
def test_keys_of_the_sections(title, table):
    assert first_cells(section(title)) == list(keys_of(table))


def test_inference_cards():
    rows = re.findall(r"^\| ([^|]*) \| ([^|]*) \| [^|]* \|$", section("Cards"), re.MULTILINE)
    told = {
        card: re.findall(r"`([\w-]+)`", trees)
        for names, trees in rows[1:]
        for card in re.findall(r"`([\w-]+)`", names)
    }
    assert told.keys() == {card.name for card in cards("inference")}
    for tree in TREES:
        of_tree = {card for card, trees in told.items() if tree in trees}
        suits = set(inference_cards(tree, "classification"))
        # a tree has all parameters of the card of a forest
        suits -= {"em-forest"} if tree == "e2edt" else set()
        assert of_tree == suits


def test_run_files(tmp_path):
    run, card = (tomllib.loads(block) for block in blocks("toml"))
    found = RunFile.from_parts(run, tmp_path / "tumours.toml")
    assert found.parameters("classification")["max_depth"] == 3
    assert found.output.folder == tmp_path / "results" / "tumours"
    (tmp_path / "wide.toml").write_text(blocks("toml")[1])
    wide = run | {"model": {"card": "wide.toml"}}
    made = RunFile.from_parts(wide, tmp_path / "tumours.toml")
    assert made.parameters("classification")["n_experts"] == card["n_experts"] == 40
    assert made.parameters("regression")["n_experts"] == 10


def test_python():
    (block,) = blocks("python")
    names = {}
    exec(block, names)
    assert names["estimator"].max_iter == 20


@pytest.mark.parametrize(
    ("said", "model"),
    [
        ("did you mean 'max_depth'", {"max_dept": 3}),
        ("move it there", {"epochs": 3}),
        ("an integer", {"max_depth": 1.5}),
    ],
)
def test_messages(said, model, tmp_path):
    line = next(
        line for line in PAGE.splitlines() if line.startswith("bayestree: ") and said in line
    )
    parts = {"data": {"path": "x.csv", "target": "y"}, "model": model}
    with pytest.raises(ValueError, match=said) as caught:
        RunFile.from_parts(parts, tmp_path / "tumours.toml")
    assert f"bayestree: {caught.value}" == line
