"""Mutants change what runs, one thing at a time, and nothing that only describes."""

from __future__ import annotations

from pathlib import Path

from tests.mutants.changes import mutants
from tests.mutants.executed import SOURCE, Executed

MODULE = '''"""A module of 3 words."""
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    SIZE = 7

LIMIT = 1 << 4


def kept(count: "int | None", times: int = 2) -> bool:
    if count is None:
        raise ValueError(f"{count + 1} is too many", hint="at most 5")
    for each in range(times):
        log.warning("%s", each - 1)
        each.close()
    return 0 < count <= LIMIT and not times
'''
CHANGES = {
    7: ["1 << 4  →  1 >> 4", "1  →  2", "4  →  5"],
    10: ["2  →  3"],
    11: ["count is None  →  count is not None"],
    12: ["raise ValueError(f'{count + 1} is too many', hint='at most 5')  →  (dropped)"],
    15: ["each.close()  →  (dropped)"],
    16: [
        "0 < count <= LIMIT and (not times)  →  0 < count <= LIMIT or not times",
        "0 < count <= LIMIT  →  0 <= count <= LIMIT",
        "0 < count <= LIMIT  →  0 < count < LIMIT",
        "0  →  1",
        "not times  →  times",
    ],
}


def test_a_module_has_these_mutants(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(MODULE)
    found = list(mutants(path))
    by_line = {line: [each.change for each in found if each.line == line] for line in sorted({m.line for m in found})}
    assert by_line == CHANGES
    assert {each.line for each in found if each.is_import} == {7, 10}
    assert [each.lines for each in found if each.line in (10, 11, 15)] == [(10, 10), (11, 11), (15, 15)]
    for each in found:
        assert each.text.count("\n") == min(one.text.count("\n") for one in found)
        compile(each.tree, str(path), "exec")
    assert len({each.text for each in found}) == len(found)


def test_the_tests_of_a_change_are_those_that_execute_it_quick_ones_first() -> None:
    executed = Executed(
        {"a.py": {3: ["slow", "quick"], 4: ["failed"], 9: ["other"]}}, {"slow": 2, "quick": 1, "other": 3}
    )
    assert executed.tests(SOURCE / "a.py", 3, 4, False) == ["quick", "slow"]
    assert executed.tests(SOURCE / "a.py", 1, 1, True) == ["quick", "slow", "other"]
    assert executed.tests(SOURCE / "a.py", 5, 6, False) == executed.tests(SOURCE / "b.py", 3, 3, False) == []
