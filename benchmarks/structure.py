"""Measure the structure of the package, folder by folder: `python benchmarks/structure.py`.

`figures` has the numbers that tests/test_structure.py bounds: how large the package is, how many
files and functions a default fit runs through, and how much its classes know of one another.

Phrases such as "those of" are counted per 1,000 words of docstrings. The imperative share is that
of functions and methods, properties aside, whose docstring begins with a verb in its base form.
Long sentences have more than 30 words.
"""

import ast
import re
import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1] / "bayestree"
PHRASES = re.compile(
    r"\b(?:those|that|which|one|ones) of\b|\bof (?:which|whom|those)\b"
    r"|\bat hand\b|\bas a rule\b|\bby itself\b"
)
DECORATORS = str(ROOT / "_utils" / "state.py")  # around public methods
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
VERBS = set(
    """accept add adjust advance align allocate allow answer append apply approximate arrange as ask
    assemble assert assign assume attach average backfill begin bind bound break build bundle call
    carry cast centre change check choose clamp clean clear close collapse collect combine compare
    compile complete compute concatenate condition confirm connect convert copy count cover create
    cut decide declare decode decorate decrease define delete derive describe detect determine
    discard display distil divide double draw drop encode end ensure enter enumerate equalize
    escape estimate evaluate exchange exclude execute exit expand explain export express extend
    extract fail fill filter find finish fit fix flag flatten flip fold follow forbid forget
    format freeze gather generate get give go group grow guess guard halve handle harden hash have
    hold ignore import impute include increase index infer initialize insert inspect integrate
    interleave interpret interrupt invert issue iterate join judge jump keep know label launch lay
    leave let lift limit link list load locate lock log look loop lower make map mark mask match
    measure merge minimize mirror mix move multiply name narrow need normalize note number offer
    open optimize order pack pad paint parse partition pass pause permute pick place plan plot
    point pool predict prepare present preserve print probe process produce project propose
    protect prove provide prune pull push put quote raise rank read rebuild recall reclaim recode
    recompute record recover redirect reduce refine refit refresh refuse register regress reject
    release remember remove rename render renew reorder repeat replace report represent require
    reset reshape resolve restart restore restrict resume return reuse reverse rewrite rotate
    round route run sample satisfy save say scale scan score search see select send separate
    serialize serve set settle share shift show shorten shrink shuffle shut sign simulate skip
    slice slide smooth solve sort sparsify specify split spread square squash stack standardize
    start state stay step stop store stratify strip style subtract suggest sum summarize supply
    survey swap switch take tell test thin tie track train transform translate transpose traverse
    treat trim try tune turn type undo unfold unite unpack unwrap update use validate verify visit
    wait walk warm warn watch weigh whiten widen wrap write yield""".split()  # noqa: SIM905
)


def paragraphs(doc: str) -> list[str]:
    """Return the paragraphs of a docstring, without tables, examples and code."""
    blocks = re.split(r"\n\s*\n", doc)
    return [
        " ".join(b.split()) for b in blocks if not re.search(r"^\s*(?:>>>|\.\. |\||-{3,})", b, re.M)
    ]


def docstrings(tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    """Yield (node, docstring) of a module, its classes and functions."""
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED) and (doc := ast.get_docstring(node)):
            yield node, doc


def is_action(node: ast.AST) -> bool:
    """Whether the node is a function or method that is not a property."""
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    decorators = " ".join(ast.unparse(d) for d in node.decorator_list)
    return "property" not in decorators and "setter" not in decorators


def measure(tree: ast.Module) -> Counter[str]:
    """Count lines of imports, docstrings and their words in a module."""
    counts: Counter[str] = Counter()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            counts["imports"] += (node.end_lineno or node.lineno) - node.lineno + 1
    for node, doc in docstrings(tree):
        text = "\n".join(paragraphs(doc))
        counts["words"] += len(text.split())
        counts["phrases"] += len(PHRASES.findall(text))
        counts["long"] += sum(len(s.split()) > 30 for s in re.split(r"(?<=[.:;?!])\s", text))
        if is_action(node):
            counts["actions"] += 1
            counts["imperative"] += re.split(r"[^\w-]", doc, maxsplit=1)[0].lower() in VERBS
    return counts


def imported(tree: ast.Module) -> Iterator[str]:
    """Yield the names that a module imports, each as `module` and as `module.name`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{a.name}" for a in node.names)


def figures() -> dict[str, int]:
    """Return the bounded numbers by name."""
    from bayestree import ConvexPolytopeTreeClassifier as Flagship  # noqa: PLC0415
    from bayestree._utils.parameters import parameters_of  # noqa: PLC0415

    trees = {path: ast.parse(path.read_text()) for path in ROOT.rglob("*.py")}
    hooks = Counter(
        name
        for kind in Flagship.__mro__
        if kind.__module__.startswith("bayestree.")
        for name in vars(kind)
        if name.startswith("_") and not name.startswith("__") and "abc" not in name
    )
    calls = Calls()
    calls.of(_default_fit)
    return {
        "lines": sum(path.read_text().count("\n") for path in trees),
        "files": len(trees),
        "files of a default fit": len(calls.files),
        "functions of a default fit": len(calls.functions),
        "pairs of files that call each other": len(calls.both_ways),
        "parameters of the flagship": len(parameters_of(Flagship)),
        "private names of the flagship": len(hooks),
        "private names in several classes": sum(count > 1 for count in hooks.values()),
        "functions that take an estimator of any kind": sum(map(_of_any_estimator, trees.values())),
        "private attributes of other objects": sum(map(_private_reads, trees.values())),
    }


def _default_fit() -> None:
    import numpy as np  # noqa: PLC0415

    from bayestree import ConvexPolytopeTreeClassifier  # noqa: PLC0415

    X = np.random.default_rng(0).normal(size=(300, 5))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ConvexPolytopeTreeClassifier(random_state=0).fit(X, X[:, 0] + X[:, 1] > 0)


class Calls:
    """The functions of the package that a call runs through, and which file calls which."""

    def __init__(self) -> None:
        self.functions: set[tuple[str, str]] = set()
        self.edges: set[tuple[str, str]] = set()

    def of(self, function: Callable[[], object]) -> None:
        sys.setprofile(self._record)
        try:
            function()
        finally:
            sys.setprofile(None)

    def _record(self, frame: object, event: str, _: object) -> None:
        if event != "call":
            return
        code = frame.f_code  # type: ignore[attr-defined]
        if not code.co_filename.startswith(str(ROOT)):
            return
        self.functions.add((code.co_filename, code.co_qualname))
        back = frame.f_back  # type: ignore[attr-defined]
        while back is not None and back.f_code.co_filename == DECORATORS:
            back = back.f_back  # what is decorated is called by the caller of the decorator
        caller = "" if back is None else back.f_code.co_filename
        if caller.startswith(str(ROOT)) and caller != code.co_filename:
            self.edges.add((caller, code.co_filename))

    @property
    def files(self) -> set[str]:
        return {file for file, _ in self.functions}

    @property
    def both_ways(self) -> set[tuple[str, str]]:
        return {(a, b) for a, b in self.edges if a < b and (b, a) in self.edges}


def _of_any_estimator(tree: ast.Module) -> int:
    """Count the functions with a parameter ``estimator: Any``."""
    found = 0
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            kinds = {one.arg: one.annotation for one in arguments}
            kind = kinds.get("estimator")
            found += isinstance(kind, ast.Name) and kind.id == "Any"
    return found


def _private_reads(tree: ast.Module) -> int:
    """Count the private attributes that are read of other objects than self and cls."""
    return sum(
        isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Load)
        and node.attr.startswith("_")
        and not node.attr.startswith("__")
        and not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"))
        for node in ast.walk(tree)
    )


def main() -> None:
    rooms: dict[str, Counter[str]] = defaultdict(Counter)
    classes, importers = defaultdict(set), defaultdict(set)
    paths = sorted(ROOT.rglob("*.py"))
    names = [".".join(p.relative_to(ROOT.parent).with_suffix("").parts) for p in paths]
    modules = {n.removesuffix(".__init__"): p for n, p in zip(names, paths, strict=True)}
    for module, path in modules.items():
        tree = ast.parse(path.read_text())
        parts = path.relative_to(ROOT).parts
        counts = measure(tree)
        counts.update(files=1, lines=path.read_text().count("\n"))
        rooms[parts[0] if len(parts) > 1 else "top"] += counts
        for name in imported(tree):
            if name in modules:
                importers[name].add(module)
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                classes[node.name].add(module)
    rooms["all"] = sum(rooms.values(), Counter[str]())
    print(f"{'folder':<12} files  lines  imports %  phrases/1000  imperative %  long sentences")
    for name, c in rooms.items():
        imports = 100 * c["imports"] / c["lines"]
        phrases = 1000 * c["phrases"] / max(c["words"], 1)
        imperative = 100 * c["imperative"] / max(c["actions"], 1)
        print(
            f"{name:<12} {c['files']:5d} {c['lines']:6d} {imports:10.1f}"
            f" {phrases:13.1f} {imperative:13.0f} {c['long']:15d}"
        )
    lonely = sorted(m for m in modules if len(importers[m] - {m.rpartition(".")[0]}) == 1)
    print(f"\nmodules with one importer ({len(lonely)}):", *lonely, sep="\n  ")
    shared = {n: sorted(m) for n, m in classes.items() if len(m) > 1}
    print(f"\nclass names in several modules ({len(shared)}):", *shared.items(), sep="\n  ")
    print(*(f"{number:6d} {name}" for name, number in figures().items()), sep="\n")


if __name__ == "__main__":
    main()
