"""Relative links of the pages lead somewhere, to headings as well, and the commands they show exist."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.main

from umbel.cli.main import app

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


def command_lines(page: Path) -> Iterator[list[str]]:
    """Yield the words of the `umbel` commands that a page shows in blocks, those of a pipe apart."""
    for fence in FENCE.finditer(page.read_text(encoding="utf-8")):
        if fence["kind"] in ("console", "sh"):
            for line in re.findall(r"^\$ ((?:.*\\\n)*.*)", fence["text"], re.MULTILINE):
                for part in re.split(r" [|&]+ ", line):
                    words = [word for word in shlex.split(part) if not re.match(r"[A-Z_]+=", word)]
                    if words[:1] == ["umbel"]:
                        yield words[1:]


def unknown(words: list[str]) -> list[str]:
    """Return what of a command line umbel does not know: the command, or options of it."""
    command = typer.main.get_command(app)
    rest = iter(words)
    while hasattr(command, "commands") and (name := next((word for word in rest if not word.startswith("-")), None)):
        if name not in command.commands:
            return [name]
        command = command.commands[name]
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    options = (word.partition("=")[0] for word in rest if re.match(r"--?[a-z]", word))
    return sorted(set(options) - known - {"--help"})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    assert list(broken(page)) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_commands_of_a_page_exist(page: Path) -> None:
    assert [(words, found) for words in command_lines(page) if (found := unknown(words))] == []


def test_what_does_not_exist_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A title, `so`\n[a](#a-title-so) [b](#b) [c](page.md) [d](gone.md) [e](https://e.org)\n"
        "```console\n$ A=1 umbel comit x\n$ echo x | umbel log a b - --wiat\n$ umbel token create x --role admin\n```\n"
    )
    assert list(broken(page)) == ["](#b)", "](gone.md)"]
    assert [unknown(words) for words in command_lines(page)] == [["comit"], ["--wiat"], []]
