"""Relative links of the pages lead somewhere, to headings as well."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md")),
    *sorted(page for page in (ROOT / "docs").rglob("*.md") if "_build" not in page.parts),
]
FENCE = re.compile(r"^```(?P<kind>[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?![a-z]+:)(?P<path>[^)#\s]*)(?:#(?P<heading>[^)\s]*))?\)")


def headings(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and MyST make them."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    titles = (title.replace("`", "").strip().lower() for title in re.findall(r"^#+ (.*)$", text, re.MULTILINE))
    return {re.sub(r"[^\w -]", "", title).replace(" ", "-") for title in titles}


def broken(page: Path) -> Iterator[str]:
    """Yield the relative links of a page that lead nowhere."""
    for link in LINK.finditer(FENCE.sub("", page.read_text(encoding="utf-8"))):
        target = (page.parent / link["path"]).resolve() if link["path"] else page
        if not target.exists() or (link["heading"] and link["heading"] not in headings(target)):
            yield link[0]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    assert list(broken(page)) == []


def test_what_does_not_exist_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A title, `so`\n[a](#a-title-so) [b](#b) [c](page.md) [d](gone.md) [e](https://e.org)\n")
    assert list(broken(page)) == ["](#b)", "](gone.md)"]
