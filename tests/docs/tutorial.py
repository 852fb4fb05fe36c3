"""Read a tutorial as a reader does: save its files, change them as its diffs say, type its commands.

* `python` and `py` blocks whose first line is a comment with a file name are files.
* `diff` blocks change the file they name; each hunk begins with `@@`.
* `sh` blocks are scripts, except those that install umbel.
* `console` blocks are commands, lines that begin with `$ `, and their outputs. `…` in an output stands for
  anything within a line; a line that is only `…`, for any lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

FENCE = re.compile(r"^```(?P<kind>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
NAME = re.compile(r"# (?P<name>[\w./-]+\.py)\n")
PROGRESS = "waiting until "
"""How lines begin that are printed every few seconds while something takes long."""


@dataclass(frozen=True)
class File:
    """A file to save."""

    name: str
    text: str


@dataclass(frozen=True)
class Change:
    """A part of a file to replace."""

    name: str
    before: str
    after: str

    def applied(self, text: str) -> str:
        """Return the text of the file after the change.

        Raises:
            AssertionError: what is to be replaced is not there exactly once.
        """
        assert text.count(self.before) == 1, f"{self.name} does not have this once:\n{self.before}"
        return text.replace(self.before, self.after)


@dataclass(frozen=True)
class Command:
    """A command to type.

    Args:
        line: where it stands in the page, counted from 1.
        output: what it prints; None where the page does not say.
    """

    line: int
    text: str
    output: str | None


Step = File | Change | Command


def steps(page: str) -> Iterator[Step]:
    """Yield what a reader of the page does, in order."""
    for fence in FENCE.finditer(page):
        line, text = page.count("\n", 0, fence.start("text")) + 1, fence["text"]
        match fence["kind"]:
            case "python" | "py" if name := NAME.match(text):
                yield File(name["name"], text)
            case "diff":
                yield from _changes(text)
            case "sh" if "pip install" not in text:
                yield Command(line, text, None)
            case "console":
                yield from _commands(text, line)


def _changes(text: str) -> Iterator[Change]:
    heading, *hunks = re.split(r"^@@.*\n", text, flags=re.MULTILINE)
    name = heading.removeprefix("--- ").strip()
    for hunk in hunks:
        lines = hunk.splitlines(keepends=True)
        before = "".join(each[1:] for each in lines if not each.startswith("+"))
        yield Change(name, before, "".join(each[1:] for each in lines if not each.startswith("-")))


def _commands(text: str, line: int) -> Iterator[Command]:
    for block in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, output = block.partition("\n")
        yield Command(line, command, output)
        line += block.count("\n")


def is_printed(shown: str, printed: str) -> bool:
    """Return whether an output is the one that is shown.

    Empty lines, spaces at the ends of lines and the progress of what takes longer do not count.
    """
    pattern = "".join(map(_pattern, _lines(shown)))
    return re.fullmatch(pattern, "".join(f"{each}\n" for each in _lines(printed))) is not None


def _lines(text: str) -> Iterator[str]:
    return (line.rstrip() for line in text.splitlines() if line.strip() and not line.startswith(PROGRESS))


def _pattern(line: str) -> str:
    if line == "…":
        return r"(?:.*\n)*"
    return ".*".join(re.escape(part) for part in line.split("…")) + r"\n"
