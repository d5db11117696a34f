"""Settings of the site: ``make docs`` builds it into ``docs/_build/html``."""

import hashlib
import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))

from bayestree import __version__


def digest() -> str:
    """Name what the outputs of pages depend on besides their own code: package, cards and data."""
    found = hashlib.sha256()
    for folder in ("bayestree", "models", "inference", "examples"):
        for path in sorted((HERE.parent / folder).rglob("*")):
            if path.is_file() and path.suffix != ".pyc":
                found.update(path.read_bytes())
    return found.hexdigest()[:16]


CACHE = HERE / "_build" / "executed" / digest()

project = "bayestree"
author = "bayestree developers"
copyright = f"2026, {author}"
version = release = __version__

extensions = [
    "myst_nb",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "sphinx_llms_txt",
    "docstrings",
    "repository",
]
exclude_patterns = [
    "_build",
    "sg_execution_times.rst",
    "_static",
    "gallery",
    *(f"auto_gallery/*.{suffix}" for suffix in ("ipynb", "json", "md5", "py", "zip")),
]
templates_path = ["_templates"]

# A reference that leads nowhere fails the build.
nitpicky = True
# Classes with the gradients of a family of leaves: of interest to none but the family.
nitpick_ignore_regex = [("py:class", r"bayestree\.models\.leaves\.\w+\.\w+Gradient")]
linkcheck_anchors = True

# Pages.
myst_enable_extensions = [
    "amsmath",
    "attrs_block",
    "attrs_inline",
    "colon_fence",
    "deflist",
    "dollarmath",
]
myst_heading_anchors = 4
nb_execution_mode = "cache"
nb_execution_cache_path = str(CACHE)
nb_execution_timeout = 300
nb_execution_raise_on_error = True
nb_merge_streams = True
smartquotes = False  # texts quote code
os.environ.pop("MPLBACKEND", None)  # kernels show their figures
os.environ["PYTHONWARNINGS"] = "ignore:IProgress not found"  # of tqdm, which Pyro imports
# Nobody watches the progress of fits in kernels, which would leave empty boxes in the pages.
QUIET = HERE / "_build" / "ipython" / "profile_default" / "startup" / "quiet.py"
QUIET.parent.mkdir(parents=True, exist_ok=True)
QUIET.write_text("from bayestree._utils import progress\nprogress._can_show = lambda: False\n")
os.environ["IPYTHONDIR"] = str(QUIET.parents[2])

# The reference.
autosummary_generate = True
autodoc_typehints = "none"  # the docstrings have the types
numpydoc_show_class_members = False  # the template of classes has them
toc_object_entries_show_parents = "hide"

# The gallery.
sphinx_gallery_conf = {
    "examples_dirs": ["gallery"],
    "gallery_dirs": ["auto_gallery"],
    "filename_pattern": r"\.py$",
    "within_subsection_order": "FileNameSortKey",
    "remove_config_comments": True,
    "show_memory": False,
    "download_all_examples": False,
    "abort_on_example_error": True,
    "capture_repr": (),
    "image_scrapers": ("figures.last_figure",),
    "run_stale_examples": not CACHE.exists(),
}

# Pages for language models: llms.txt and llms-full.txt.
llms_txt_summary = (
    "bayestree fits Bayesian decision trees whose splits are convex polytopes, with a scikit-learn "
    "interface, a Pyro model, run files and reports."
)

# Appearance.
html_theme = "pydata_sphinx_theme"
html_title = f"bayestree {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_theme_options = {
    "navbar_align": "left",
    "header_links_before_dropdown": 7,
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
}
