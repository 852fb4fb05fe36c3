"""The page of what is proven is that of these tests, and leaves nothing open without a reason."""

from __future__ import annotations

from tests.conformance.table import PAGE, page


def test_the_page_is_up_to_date_and_has_no_empty_cell() -> None:
    made = page()
    assert PAGE.read_text(encoding="utf-8") == made, "run: python -m tests.conformance.table"
    cells = [cell.strip() for line in made.splitlines() if line.startswith("|") for cell in line.strip("|").split("|")]
    assert cells
    assert [cell for cell in cells if cell in ("", "—", "0")] == []
