"""Sphinx extension: put the generated parts of the reference into its pages, and refuse undocumented public names.

A page of `docs/reference` says where: `<!-- reference: operators -->`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sphinx.errors import ExtensionError

from umbel_reference.pages import PARTS
from umbel_reference.public import undocumented
from umbel_reference.sources import variables

FOLDER = Path(__file__).parents[2] / "reference"
MARK = re.compile(r"<!-- reference: ([\w ]+) -->")
ENVIRONMENT = FOLDER / "environment.md"


def filled(text: str) -> str:
    """Return a page with its generated parts.

    Raises:
        KeyError: no part has such a name.
    """
    return MARK.sub(lambda mark: PARTS[mark[1]](), text)


def errors() -> Iterator[str]:
    """Yield what the reference leaves out: public names, generated parts that no page has, environment variables."""
    yield from undocumented()
    marks = {mark for page in FOLDER.glob("*.md") for mark in MARK.findall(page.read_text(encoding="utf-8"))}
    yield from (f"no page of docs/reference has the part '{name}'" for name in sorted(PARTS.keys() - marks))
    listed = filled(ENVIRONMENT.read_text(encoding="utf-8"))
    yield from (
        f"{name} is missing from {ENVIRONMENT.name}" for name in sorted(variables()) if f"`{name}" not in listed
    )


def check(*_: object) -> None:
    """End the build if the reference leaves something out.

    Raises:
        ExtensionError: with everything that is missing.
    """
    found = list(errors())
    if found:
        raise ExtensionError("undocumented:" + "".join(f"\n  - {each}" for each in found))


def setup(app: Any) -> dict[str, bool]:
    """Register the extension."""
    app.connect("builder-inited", check)
    app.connect(
        "env-get-outdated", lambda _, env, *__: {name for name in env.found_docs if name.startswith("reference/")}
    )
    app.connect("source-read", lambda _, __, source: source.__setitem__(0, filled(source[0])))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
