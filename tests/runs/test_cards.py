"""TOML files, and the cards of models and inference, whose values are parameters."""

import itertools
import re
import tomllib
import tracemalloc
from dataclasses import replace
from pathlib import Path, PureWindowsPath
from zipfile import Path as ZipPath
from zipfile import ZipFile

import numpy as np
import pytest

from bayestree import ConvexPolytopeTreeClassifier
from bayestree._utils.parameters import parameters_of
from bayestree.cli.shared import check_output
from bayestree.estimators.registry import TREES, tasks_of
from bayestree.fitting.settings import with_methods
from bayestree.inference import Map
from bayestree.runs.cards import (
    FOLDERS,
    MAX_BYTES,
    cards,
    find_any,
    find_card,
    load_toml,
    read_card,
    read_pair,
    read_toml,
)
from bayestree.runs.configuration import abbreviated, relative_path, resolve_path
from bayestree.runs.schema import RunFile, run_from_options
from bayestree.runs.settings import inference_cards, tree_parameters
from bayestree.tables import InputError
from tests.sampling import quickly
from tests.short_checks import short_stages

ROOT = Path(__file__).parents[2]
#: Of the settings of a paper, with its method.
PAPERS = sorted((ROOT / "models").glob("*-paper.toml"))
MODELS = sorted({*(ROOT / "models").glob("*.toml")} - {*PAPERS})
INFERENCES = sorted((ROOT / "inference").glob("*.toml"))
# Any parameter of a tree that makes it quick.
QUICK = {"epochs": 5, "refine_epochs": 5, "learning_rate": 0.05, "n_draws": 2, "n_warmup": 4,
         "max_depth": 1, "n_estimators": 4}  # fmt: skip


def run_of(*cards, tree=None):
    options = {
        "DATA": ("data.path", "x.csv"),
        "--target": ("data.target", "y"),
        "--tree": ("model.tree", tree),
    }
    return run_from_options(options, cards=cards)


def made(*cards, task="classification", tree=None):
    return run_of(*cards, tree=tree).estimator(task)


def suits(pair):
    """Whether all that the inference says are parameters of the tree, and none that it fixes."""
    try:
        made(*pair)
    except InputError:
        return False
    return True


PAIRS = [pair for pair in itertools.product(MODELS, INFERENCES) if suits(pair)]


def test_every_tree_has_a_card_and_every_card_its_tree():
    assert {path.stem for path in MODELS} == TREES.keys()
    assert all(read_card(path, "model").tree == path.stem for path in MODELS)


def test_every_inference_suits_some_tree():
    assert {inference for _, inference in PAIRS} == set(INFERENCES)
    of_cpt = {inference.stem for model, inference in PAIRS if model.stem == "cpt"}
    assert {"grow", "map", "svi", "nuts", "mcmc"} <= of_cpt


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_a_model_card_says_what_the_name_alone_does(path):
    assert made(path).get_params() == made(tree=path.stem).get_params()


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_every_value_is_a_parameter_of_the_regressor_too(path):
    kind = TREES[path.stem].regressor
    if kind is not None:
        card = read_card(path, "model")
        values = {**card.values, **card.by_task.get("regression", {})}
        found = run_of(path).parameters("regression")
        known = tree_parameters(path.stem, "regression")
        assert {name: known[name].to_file(found[name]) for name in values} == values


# What a model card need not set: values chosen by the fit or for a table, or those of other priors.
UNSAID = {
    "class_weight", "smoothing", "max_leaves", "image_shape", "patch_size", "monotonic_cst",
    "interaction_constraints", "scale_groups", "weight_prior",
}  # fmt: skip
OF_OTHERS = {"cpt": {"l1", "spatial"}, "cpt-k1": {"l1", "spatial", "concentration", "rate"},
             "e2edt": {"max_features"}, "tao": {"pair_cost"}, "tao-sparse": {"pair_cost"},
             "tao-axis": {"pair_cost"}}  # fmt: skip


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_a_model_card_says_all_its_numbers(path):
    card = read_card(path, "model")
    for task in tasks_of(path.stem):
        own = {n for n, one in tree_parameters(path.stem, task).items() if one.group == "model"}
        unsaid = own - {*card.values, *card.by_task.get(task, {})}
        assert unsaid <= UNSAID | OF_OTHERS.get(path.stem, set())


@pytest.mark.parametrize("path", MODELS + PAPERS + INFERENCES, ids=lambda path: path.stem)
def test_a_card_says_what_it_is(path):
    card = read_card(path, "model")
    assert len(card.summary) > 40
    assert "Values are" not in card.summary
    if path in MODELS + PAPERS:
        assert re.search(r"\(.*(19|20)\d\d", card.summary)  # the paper


class TestFinding:
    def test_by_name(self):
        found = cards()
        assert {(card.kind, card.name) for card in found} == {
            *(("model", path.stem) for path in MODELS + PAPERS),
            *(("inference", path.stem) for path in INFERENCES),
        }
        for card in found:
            assert find_card(card.name, card.kind) == card
            assert card.text == card.path.read_text()

    def test_by_path(self, tmp_path):
        path = tmp_path / "my.toml"
        path.write_text("# Mine.\ntree = 'wodt'\nmax_depth = 3\n[regression]\nmax_depth = 2")
        card = find_card("my.toml", "model", folder=tmp_path)
        assert (card.name, card.tree, card.summary) == ("my.toml", "wodt", "Mine.")
        assert (card.values, card.by_task) == ({"max_depth": 3}, {"regression": {"max_depth": 2}})
        with pytest.raises(InputError, match=r"card 'my.toml' is outside --root"):
            find_card("my.toml", "model", folder=tmp_path, root=tmp_path / "in")

    def test_of_either_kind(self):
        assert find_any("svi").kind == "inference"
        assert find_any("models/tao").kind == "model"
        assert find_any("inference/tao").kind == "inference"
        said = r"two cards are named 'tao'; write models/tao or inference/tao"
        with pytest.raises(InputError, match=said):
            find_any("tao")
        with pytest.raises(InputError, match="named 'lbfg'; did you mean 'lbfgs'"):
            find_any("lbfg")

    @pytest.mark.parametrize("name", ["nope", "", ".", "..", "models"])
    def test_no_card(self, name):
        with pytest.raises(InputError):
            find_card(name, "model")
        with pytest.raises(InputError):
            find_any(name)


def test_a_copy_has_the_same_values(tmp_path):
    (tmp_path / "mine.toml").write_text(find_card("cpt", "model").text)
    mine = find_card("mine.toml", "model", folder=tmp_path)
    assert mine.values == find_card("cpt", "model").values
    assert made(mine.path).get_params() == made("cpt").get_params()


def test_cards_that_suit_a_tree():
    assert inference_cards("wodt", "classification") == ["lbfgs"]
    assert inference_cards("tao", "regression") == ["tao", "tao-random"]
    assert {"svi", "nuts", "map", "grow"} <= set(inference_cards("cpt", "regression"))


def test_they_travel_in_the_wheel():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["force-include"] == {
        folder: f"bayestree/cards/{folder}" for folder in FOLDERS.values()
    }


@pytest.mark.parametrize(
    "pair",
    quickly(PAIRS, quick=[i for i, (tree, _) in enumerate(PAIRS) if tree.stem != "cpt-k1"]),
    ids=lambda pair: "-".join(path.stem for path in pair),
)
def test_every_pair_fits(pair):
    fits(made(*pair))


@pytest.mark.parametrize("path", MODELS + PAPERS, ids=lambda path: path.stem)
def test_every_model_fits(path):
    fits(made(path))


def test_the_card_of_a_paper_states_the_tree_and_the_method():
    """Whether it is named in a run file or in a command; a card of inference has the last word."""
    parts = {"data": {"path": "x.csv", "target": "y"}, "model": {"card": "cpt-paper"}}
    named = RunFile.from_parts(parts, "run.toml").estimator("classification")
    assert named.get_params() == made(ROOT / "models" / "cpt-paper.toml").get_params()
    assert named.weight_prior == "literal-gamma-process"
    (stage,) = (one for one in (named.inference,) if isinstance(one, Map))
    assert (stage.objective, stage.steepness) == ("impurity", 1.0)
    parts |= {"inference": {"card": "map-pyro"}}
    stage = RunFile.from_parts(parts, "run.toml").estimator("classification").inference
    assert (stage.objective, stage.steepness, stage.engine) == ("likelihood", 6.0, "pyro")


def hastened(inference):
    """The method with few steps."""
    if inference == "auto":
        return inference  # VI, which is quick
    if isinstance(inference, str):
        return with_methods({"inference": inference} | QUICK, "svi")["inference"]
    if isinstance(inference, tuple):
        return tuple(map(hastened, inference))
    known = parameters_of(type(inference))
    return replace(inference, **{name: v for name, v in QUICK.items() if name in known})


def fits(estimator):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 2))
    y = (X[:, 0] + 0.3 * rng.normal(size=80) > 0).astype(int)  # nothing separates the classes
    parameters = estimator.get_params()
    estimator.set_params(**{name: v for name, v in QUICK.items() if name in parameters})
    if parameters.get("init") == "random":
        # a random stump whose sides have one label is a fixed point of TAO
        estimator.set_params(max_depth=2)
    if "dropconnect" in parameters:
        estimator.set_params(max_depth=2, epochs=40)  # noisy steps move a single neuron slowly
    if (parameters.get("n_experts") or 1) > 4:
        estimator.set_params(n_experts=4)
    estimator.set_params(**({"verbose": False} if "verbose" in parameters else {}))
    with short_stages():
        if isinstance(estimator, ConvexPolytopeTreeClassifier):
            estimator.set_params(inference=hastened(estimator.inference))
        assert estimator.fit(X, y).score(X, y) > 0.6


class TestPairs:
    @pytest.mark.parametrize(
        ("pair", "name", "value"),
        [
            ("max_depth=3", "max_depth", 3),
            ("rate=1e-3", "rate", 0.001),
            ("report = true", "report", True),
            ('guide="Auto=Normal"', "guide", "Auto=Normal"),
            ("scaling=common", "scaling", "common"),
            ("order=best-first", "order", "best-first"),
            ("data.path=../new/rows.csv", "data.path", "../new/rows.csv"),
            (r"data.path=C:\data\new.csv", "data.path", r"C:\data\new.csv"),
            (r'data.path="C:\data\new.csv"', "data.path", r"C:\data\new.csv"),
            ("image_shape=[28, 28]", "image_shape", [28, 28]),
        ],
    )
    def test_values_are_those_of_toml(self, pair, name, value):
        found = read_pair(pair)
        assert found == (name, value)
        assert type(found[1]) is type(value)

    @pytest.mark.parametrize(
        "pair", ["depth", "=3", "depth=", "depth=3 4", "a=1\nb=2", "x=not so", "x=" + "[" * 5000]
    )
    def test_refused(self, pair):
        with pytest.raises(InputError, match="--set"):
            read_pair(pair)


class TestFiles:
    @pytest.mark.parametrize(
        ("content", "said"),
        [
            (b"max_depth 3", "is not valid TOML: Expected"),
            (b"x = '\xff'", "is not valid TOML: it is not text in UTF-8"),
            (
                b'x = "C:\\data\\new.csv"',
                "Unescaped .* write paths with forward slashes, or in single",
            ),
            (
                b'x = "C:\\Users\\a.csv"',
                "hex value .* write paths with forward slashes, or in single",
            ),
            (b"x = " + b"[" * 5000, "is not valid TOML: it is nested too deeply"),
            (b"x = " + b"9" * 5000, "is not valid TOML: .*digits"),
            (b"#" * (MAX_BYTES + 1), "larger than 1 MiB"),
        ],
    )
    def test_what_is_no_toml(self, tmp_path, content, said):
        path = tmp_path / "a.toml"
        path.write_bytes(content)
        with pytest.raises(InputError, match=rf"run file '.*a\.toml' .*{said}"):
            read_toml(path, "run file")

    @pytest.mark.parametrize(
        ("name", "content", "what", "said"),
        [
            (
                "a.csv",
                "x,y",
                "run file",
                r"is a table, not a run file; .* `bayestree fit .*a\.csv --t",
            ),
            ("a.parquet", "x", "sweep file", "is a table, not a sweep file; .* `bayestree fit "),
            (
                "a.toml",
                "[data]",
                "sweep file",
                "is a run file, not a sweep.* `bayestree run .*a.toml`",
            ),
            ("a.toml", "[data]", "model card", "is a run file, not a model card"),
            (
                "a.toml",
                "[vary]",
                "run file",
                "is a sweep file, not a run.* `bayestree sweep .*a.toml`",
            ),
        ],
    )
    def test_files_of_another_kind(self, tmp_path, name, content, what, said):
        (tmp_path / name).write_text(content)
        with pytest.raises(InputError, match=said):
            read_toml(tmp_path / name, what)

    def test_no_file(self, tmp_path):
        with pytest.raises(InputError, match=r"card .* is not a file"):
            read_toml(tmp_path, "card")

    def test_a_byte_order_mark_is_no_fault(self, tmp_path):
        path = tmp_path / "a.toml"
        path.write_text("seed = 3", encoding="utf-8-sig")
        assert read_toml(path, "run file") == {"seed": 3}


def test_values_are_shown_short():
    assert abbreviated("a" * 100) == "'" + "a" * 76 + "..."
    assert abbreviated(10**5000) == "a int"


def test_relative_to_the_file_that_names_them(tmp_path):
    folder = tmp_path.resolve()
    assert resolve_path("data/a.csv", folder, root=None, what="path") == folder / "data" / "a.csv"
    assert resolve_path("../a.csv", folder, root=None, what="path") == folder.parent / "a.csv"
    assert resolve_path("/a.csv", folder, root=None, what="path") == Path("/a.csv")


class TestRoot:
    @pytest.mark.parametrize("name", ["a.csv", "../run/a.csv", "deep/er/../a.csv"])
    def test_inside(self, tmp_path, name):
        inside = tmp_path / "run"
        inside.mkdir()
        assert resolve_path(name, inside, root=inside, what="path").is_relative_to(inside.resolve())

    @pytest.mark.parametrize("name", ["../a.csv", "/etc/passwd", "deep/../../a.csv"])
    def test_outside(self, tmp_path, name):
        inside = tmp_path / "run"
        inside.mkdir()
        with pytest.raises(InputError, match=r"\[data\] path '.*' is outside --root '.*run'"):
            resolve_path(name, inside, root=inside, what="[data] path")

    def test_by_a_link(self, tmp_path):
        inside, outside = tmp_path / "run", tmp_path / "other"
        inside.mkdir()
        outside.mkdir()
        (inside / "link").symlink_to(outside)
        with pytest.raises(InputError, match="outside --root"):
            resolve_path("link/a.csv", inside, root=inside, what="path")
        (inside / "same").symlink_to(inside)
        assert (
            resolve_path("same/a.csv", inside, root=inside, what="path")
            == inside.resolve() / "a.csv"
        )

    def test_a_root_by_a_link(self, tmp_path):
        (tmp_path / "run").mkdir()
        link = tmp_path / "link"
        link.symlink_to(tmp_path / "run")
        found = resolve_path("a.csv", tmp_path / "run", root=link, what="path")
        assert found == (tmp_path / "run").resolve() / "a.csv"

    def test_a_name_that_begins_alike_is_outside(self, tmp_path):
        with pytest.raises(InputError, match="outside"):
            resolve_path("../runs/a.csv", tmp_path / "run", root=tmp_path / "run", what="path")


@pytest.mark.parametrize("name", ["a\0b", "C:\new\table.csv"])
def test_what_is_no_path(tmp_path, name):
    with pytest.raises(
        InputError, match=r"path '.*\\.*' has a control .* write paths with forward"
    ):
        resolve_path(name, tmp_path, root=None, what="path")
    (tmp_path / "round").symlink_to(tmp_path / "round")
    with pytest.raises(InputError, match="path 'round' is not a valid path"):
        resolve_path("round", tmp_path, root=None, what="path")


def test_relative_path_a_folder():
    assert relative_path(Path("/work/data/a.csv"), Path("/work/results/x")) == "../../data/a.csv"
    assert relative_path(Path("/work/results"), Path("/work/results")) == "."
    assert relative_path(Path("/data/a.csv"), Path("/work/results")) == "/data/a.csv"
    other_drive = PureWindowsPath(r"D:\work\a.csv")
    assert relative_path(other_drive, PureWindowsPath(r"C:\work")) == r"D:\work\a.csv"


def test_outputs(tmp_path):
    path = tmp_path / "a.toml"
    check_output(path, (), force=False)
    path.touch()
    with pytest.raises(InputError, match="exists; choose another file, or add --force"):
        check_output(path, (), force=False)
    check_output(path, (), force=True)
    with pytest.raises(InputError, match=r"--out '.*' must end in \.csv or \.parquet"):
        check_output(path, force=True)
    with pytest.raises(InputError, match="is a folder; specify a file"):
        check_output(tmp_path, (), force=True)
    with pytest.raises(InputError, match="is in a folder that does not exist"):
        check_output(tmp_path / "no" / "a.toml", (), force=False)


def test_a_zipped_package_finds_its_cards(tmp_path, monkeypatch):
    with ZipFile(tmp_path / "package.zip", "w") as archive:
        for folder in ("cards/models", "cards/inference"):
            archive.writestr(f"bayestree/{folder}/mine.toml", "# Mine. Values are made up.\n")
    package = ZipPath(tmp_path / "package.zip", "bayestree/")
    monkeypatch.setattr("bayestree.runs.cards.files", lambda name: package)
    assert [(card.name, card.summary) for card in cards()] == [("mine", "Mine.")] * 2
    assert find_card("mine", "model").kind == "model"


DEEP = ".".join("a" * 40_000)


@pytest.mark.parametrize(
    "text",
    [
        f"{DEEP} = 1",
        f"[{DEEP}]",
        f"[[{DEEP}]]",
        DEEP.replace("a", '"a"') + " = 1",
        f'x = """y"""""\n{DEEP} = 1',
        f"x = [\n{{{DEEP} = 1}}]",
        "x = " + "{a = " * 9,
        "x = " + "[" * 9,
    ],
)
def test_deep_keys_are_refused_before_they_are_parsed(tmp_path, text):
    path = tmp_path / "run.toml"
    path.write_text(text)
    tracemalloc.start()
    with pytest.raises(InputError, match=r"nested too deeply \(line [12]: over 8 levels\)"):
        read_toml(path, "run file")
    assert tracemalloc.get_traced_memory()[1] < 20 * 2**20
    tracemalloc.stop()


@pytest.mark.parametrize(
    "text",
    [
        f"x = '{'[' * 9}' # {DEEP}",
        f'"{DEEP}" = 1.5',
        f'x = """\\"""{"[" * 9}\\\\"""""',
        f"x = '''\n{DEEP} = ''''",
        f"x = [{'1.5, ' * 20}]",
        "[a.b.c.d.e.f.g.h]",
    ],
)
def test_text_and_numbers_are_not_deep(text):
    assert load_toml(text) == tomllib.loads(text)
