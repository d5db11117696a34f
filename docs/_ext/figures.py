"""Collects the figure in which a script of the gallery ends: pyplot does not know it."""

from typing import Any

from matplotlib.figure import Figure
from sphinx_gallery.scrapers import figure_rst


def last_figure(_block: Any, variables: dict[str, Any], settings: dict[str, Any]) -> str:
    """Save the figure that is the value of the last expression of a block, if it is one."""
    figure = variables["example_globals"].get("___")
    if not isinstance(figure, Figure):
        return ""
    path = next(variables["image_path_iterator"])
    figure.savefig(path, dpi=120)
    return str(figure_rst([path], settings["src_dir"]))
