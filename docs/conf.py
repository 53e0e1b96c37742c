"""Settings of sphinx for this documentation: ``sphinx-build -W docs docs/_build/html``."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
# The checkout, not an older version that happens to be installed; and our own directives.
sys.path[:0] = [str(HERE.parent), str(HERE / "extensions")]

import cachingclient  # noqa: E402 - it is found by the line above

project = "cachingclient"
author = "cachingclient developers"
project_copyright = f"2026, {author}"
version = release = cachingclient.__version__

extensions = [
    "numpydoc",
    "settings_table",
    "sphinx.ext.autodoc",
    "sphinx.ext.doctest",
    "sphinx_click",
]
exclude_patterns = ["_build"]
# What stands in single backticks in the docstrings is code, of this package or of dask.
default_role = "code"

autodoc_member_order = "bysource"
autodoc_typehints = "none"
numpydoc_show_class_members = False
numpydoc_xref_param_type = False

html_theme = "dask_sphinx_theme"
html_title = "cachingclient"
html_show_sourcelink = False
