"""NAME=VALUE arguments of commands, and their tables."""

from __future__ import annotations

from decimal import Decimal

import pytest
from rich.table import Table

from umbel.cli.tables import pairs, print_table, show, visible
from umbel.types import dtypes


def test_a_decimal_has_all_its_digits() -> None:
    """A number of JSON has 16 digits: another key was looked up, and erased."""
    types = {
        "D.price": "Decimal[3]",
        "D.cost": "Optional[Decimal[3]]",
        "D.none": "Optional[Decimal[3]]",
        "D.f": "float",
    }
    texts = ["99999999999999.37", '"-1.5"', "null", "0.1"]
    found = pairs([f"{name[2:]}={text}" for name, text in zip(types, texts, strict=True)], types, "D.")
    assert found == {"price": "99999999999999.37", "cost": "-1.5", "none": None, "f": 0.1}
    assert dtypes.Decimal(3).ingest([found["price"]]).values.to_list() == [Decimal("99999999999999.370")]


def test_a_row_is_a_line_where_that_is_no_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows were broken at 80 columns, also in a pipe, and on a narrow terminal what did not fit was cut off."""
    monkeypatch.setenv("COLUMNS", "80")
    table = Table("name", "reason", box=None)
    table.add_row("a" * 100, "one two " * 20)
    print_table(table)
    assert len(capsys.readouterr().out.splitlines()) == 2
    monkeypatch.setenv("FORCE_COLOR", "1")
    print_table(table)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines[1:])) <= 80
    assert sum(line.count("a") for line in lines[1:]) == 100


def test_a_terminal_obeys_no_text_of_others(capsys: pytest.CaptureFixture[str]) -> None:
    """A value with the escape sequence that clears a screen cleared it; other control characters were left out."""
    show({"name": ["a\x1b[2J\x9bb\a\rc"], "other": ["é\U0001f468\u200d\U0001f469"]})
    printed = capsys.readouterr().out
    assert "a\\x1b[2J\\x9bb\\x07\\x0dc" in printed
    assert "é\U0001f468\u200d\U0001f469" in printed
    assert visible("two\nlines\tand a tab") == "two\nlines\tand a tab"
