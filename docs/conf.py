"""Sphinx's settings for umbel's documentation."""

import sys
from importlib.metadata import version as installed
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "umbel"
author = "the umbel authors"
project_copyright = "the umbel authors, Apache License 2.0"
release = version = installed("umbel")

extensions = ["myst_parser", "umbel_reference"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_build", "_ext"]

html_theme = "furo"
html_title = f"umbel {release}"
html_show_sourcelink = False
nitpicky = True
