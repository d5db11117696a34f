"""How notebooks show a fitted tree."""

from html import escape
from typing import Any

from bayestree._utils.wording import counted
from bayestree.export.text import export_text

MAX_LEAVES = 60  # of the largest tree that is shown


class Shown:
    """Adds the fitted tree, or the trees of a forest, to scikit-learn's table of parameters."""

    def get_n_leaves(self) -> int:
        raise NotImplementedError

    def get_depth(self) -> int:
        raise NotImplementedError

    def _repr_html_inner(self) -> str:
        shown: Any = super()
        return f"{shown._repr_html_inner()}{self._tree_html()}"

    def _repr_mimebundle_(self, **settings: Any) -> dict[str, str]:
        shown: Any = super()
        bundle: dict[str, str] = shown._repr_mimebundle_(**settings)
        if "text/html" in bundle:
            bundle["text/html"] += self._tree_html()
        return bundle

    def _tree_html(self) -> str:
        """The tree as text that can be folded; empty before the fit."""
        if not (hasattr(self, "tree_") or hasattr(self, "estimators_")):
            return ""
        n_leaves = self.get_n_leaves()
        title = f"{counted(n_leaves, 'leaf')}, depth {self.get_depth()}"
        text = "bayestree.export_text writes it."
        if n_leaves <= MAX_LEAVES:
            text = export_text(self, max_facets=3, max_features=3)
        return f"<details open><summary>{title}</summary><pre>{escape(text)}</pre></details>"
