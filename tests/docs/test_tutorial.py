"""The tutorial works: its files are saved, its commands typed, and they print what it shows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.reader import Reader
from tests.docs.tutorial import Change, Command, File, is_printed, steps

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    reader = Reader(tmp_path, PAGE.name)
    yield reader
    reader.stop()


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_the_tutorial_works(reader: Reader) -> None:
    for step in steps(PAGE.read_text(encoding="utf-8")):
        match step:
            case File(name, text):
                reader.save(name, text)
            case Change():
                reader.change(step)
            case Command():
                reader.type(step)
    assert reader.running is not None


def test_a_page_is_read_as_it_is_meant() -> None:
    page = (
        "```python\n# a.py\nx = 1\ny = 2\n```\n```diff\n--- a.py\n@@\n x = 1\n-y = 2\n+y = 3\n```\n"
        "```sh\npip install umbel\n```\n```sh\nls\n```\n```console\n$ echo a\na\n$ true\n```\n"
    )
    assert list(steps(page)) == [
        File("a.py", "# a.py\nx = 1\ny = 2\n"),
        Change("a.py", "x = 1\ny = 2\n", "x = 1\ny = 3\n"),
        Command(17, "ls\n", None),
        Command(20, "echo a", "a\n"),
        Command(22, "true", ""),
    ]


def test_a_change_must_fit_once() -> None:
    assert Change("a.py", "y\n", "z\n").applied("x\ny\n") == "x\nz\n"
    for text in ("x\n", "y\ny\n"):
        with pytest.raises(AssertionError, match="does not have this once"):
            Change("a.py", "y\n", "z\n").applied(text)


@pytest.mark.parametrize(
    ("shown", "printed", "expected"),
    [
        ("a\n", "\na  \n", True),
        ("a\n", "a\nb\n", False),
        ("after … s\n", "after 1.5 s\n", True),
        ("after … s\n", "after 1.5\ns\n", False),
        ("…\nend\n", "a\nb\nend\n", True),
        ("…\nend\n", "a\nb\n", False),
        ("", "", True),
        ("", "a\n", False),
    ],
)
def test_an_output_is_compared_with_what_is_shown(shown: str, printed: str, expected: bool) -> None:
    assert is_printed(shown, printed) is expected
