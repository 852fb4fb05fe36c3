"""Sphinx's settings for umbel's documentation."""

from importlib.metadata import version as installed

project = "umbel"
author = "the umbel authors"
project_copyright = "the umbel authors, Apache License 2.0"
release = version = installed("umbel")

extensions = ["myst_parser"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]

html_theme = "furo"
html_title = f"umbel {release}"
html_show_sourcelink = False
nitpicky = True
