"""How Sphinx builds these pages: `make docs`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

project = "Inlaid"
author = "the Inlaid developers"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_inlaid"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build", "conformance/cuda.md"]  # the report of a local run
master_doc = "index"
html_theme = "furo"
html_title = "Inlaid"
html_copy_source = False
html_show_sourcelink = False
html_static_path: list[str] = []
templates_path: list[str] = []
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
default_role = "literal"  # docstrings have code in single backquotes
maximum_signature_line_length = 90
myst_heading_anchors = 4
