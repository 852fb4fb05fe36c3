"""What a batch or a request asks of a catalog takes no longer where there are many commits, or many late records."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from umbel.catalog import late_records
from umbel.catalog.catalog import Catalog, DeadLetter, JobProgress
from umbel.catalog.late_records import LATE, PARTS

SIZE, MOST = 1000, 32_000


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    opened = Catalog(f"sqlite:///{tmp_path / 'catalog.db'}")
    yield opened
    opened.close()


def finish(catalog: Catalog, epoch: int, number: int, dataset: str = "D") -> None:
    late = DeadLetter(dataset, 0, f"{number}", f"{LATE}by 5 s", bytes(SIZE), SIZE)
    catalog.finish("live", JobProgress(number, 1), {}, [late], epoch=epoch, late_bytes=MOST)


def test_late_records_are_not_added_up_with_each_batch(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    summed = list[str]()
    forget = late_records._forget

    def counted(session: Session, dataset: str, keep: int) -> None:
        summed.append(dataset)
        forget(session, dataset, keep)

    monkeypatch.setattr(late_records, "_forget", counted)
    epoch, most = catalog.take_over("live"), (MOST + MOST // PARTS) // SIZE + 1
    for number in range(1, 41):
        finish(catalog, epoch, number, "D" if number % 2 else "E")
    assert len(catalog.dead_letters("E")) == 20
    for number in range(41, 81):
        finish(catalog, epoch, number)
        assert len(catalog.dead_letters("D")) <= most
    assert len(catalog.dead_letters("D")) >= MOST // SIZE
    assert [each.position for each in catalog.dead_letters("D", 2)] == ["80", "79"]
    assert summed.count("D") <= 60 // 3 + 1
    assert summed.count("E") <= 20 // 3 + 1


def test_heads_of_branches_are_found_without_reading_definitions(catalog: Catalog) -> None:
    for number in range(20):
        catalog.commit(f"b{number % 2}", "m", bytes(50_000))
    catalog.remove("b1")
    last = catalog.latest()
    statements = list[str]()
    sa.event.listen(catalog._engine, "before_cursor_execute", lambda *a: statements.append(a[2]))
    assert (catalog.heads(last), catalog.serving(last)) == ({"b0": 19}, {"b0": 19})
    assert statements
    assert all("length(commits.definitions)" in each for each in statements if "definitions" in each)
