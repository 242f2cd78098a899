"""How Sphinx builds these pages: `make docs`."""

from __future__ import annotations

project = "Inlaid"
author = "the Inlaid developers"
extensions = ["myst_parser", "sphinx.ext.autodoc"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "Inlaid"
html_static_path: list[str] = []
autodoc_typehints = "none"
autodoc_member_order = "bysource"
myst_heading_anchors = 3
# Links out of this folder lead to files of the checkout, which have no page here.
suppress_warnings = ["myst.xref_missing"]
master_doc = "index"
templates_path: list[str] = []
