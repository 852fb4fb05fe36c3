"""What the README and the documentation show is run: a reader can paste it.

All `python` blocks of a page run in order in one namespace. A `text output` block holds exactly what the block before
it prints.
"""

from __future__ import annotations

import contextlib
import io
import linecache
import re
import sys
import types
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^```(?P<kind>[^\n`]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Snippet:
    """A fenced `python` block, and what it must print, if that is shown.

    Args:
        line: where its text begins in the page, counted from 1.
    """

    line: int
    text: str
    output: str | None


def snippets(page: str) -> list[Snippet]:
    """Return the Python blocks of a page, in order."""
    fences = list(FENCE.finditer(page))
    found = []
    for fence, after in zip_longest(fences, fences[1:]):
        if fence["kind"] == "python":
            shown = after is not None and after["kind"] == "text output"
            line = page.count("\n", 0, fence.start("text")) + 1
            found.append(Snippet(line, fence["text"], after["text"] if after and shown else None))
    return found


def run(page: Path, blocks: list[Snippet]) -> None:
    """Run the blocks in one module, as if they were one file; compare what each prints with what is shown."""
    module = types.ModuleType("page_" + re.sub(r"\W", "_", page.stem))
    module.__file__ = str(page)
    sys.modules[module.__name__] = module
    for block in blocks:
        name = f"{page}:{block.line}"
        # umbel reads the source of users' functions and the comments above fields
        linecache.cache[name] = (len(block.text), None, block.text.splitlines(keepends=True), name)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(block.text, name, "exec"), module.__dict__)
        if block.output is not None:
            assert printed.getvalue() == block.output, f"{name} prints something else"


def pages() -> list[Path]:
    """Return the pages that have a Python block."""
    candidates = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [page for page in candidates if "_build" not in page.parts and snippets(page.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_snippets_of_a_page_run(page: Path) -> None:
    run(page, snippets(page.read_text(encoding="utf-8")))


def test_an_output_belongs_to_the_block_before_it(tmp_path: Path) -> None:
    page = "```python\nx = 1\n```\ntext\n```python\nprint(x)\n```\n```text output\n1\n```\n```sh\nls\n```\n"
    assert snippets(page) == [Snippet(2, "x = 1\n", None), Snippet(6, "print(x)\n", "1\n")]
    run(tmp_path / "page.md", snippets(page))
    with pytest.raises(AssertionError, match=r"page\.md:6 prints something else"):
        run(tmp_path / "page.md", snippets(page.replace("\n1\n", "\n2\n")))
