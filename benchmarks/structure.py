"""Measure the structure of the package, folder by folder: `python benchmarks/structure.py`.

Phrases such as "those of" are counted per 1,000 words of docstrings. The imperative share is that
of functions and methods, properties aside, whose docstring begins with a verb in its base form.
Long sentences have more than 30 words.
"""

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1] / "bayestree"
PHRASES = re.compile(
    r"\b(?:those|that|which|one|ones) of\b|\bof (?:which|whom|those)\b"
    r"|\bat hand\b|\bas a rule\b|\bby itself\b"
)
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


if __name__ == "__main__":
    main()
