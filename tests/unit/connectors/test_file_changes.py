"""Local files that change between the plan and the reading of a batch, or between two batches."""

from __future__ import annotations

import os
from pathlib import Path

import polars as pl
import pytest

from tests.unit.connectors.reading import Read, read
from tests.unit.connectors.test_files import SCHEMA, lines, position_after, source, users
from umbel.formats.declarations import CSV


@pytest.mark.parametrize("size", [3, 20, 60])
@pytest.mark.parametrize("form", ["json", "csv", "parquet"])
def test_a_file_rewritten_while_it_is_read_in_parts_is_not_read_on(tmp_path: Path, form: str, size: int) -> None:
    """Rows of two versions were mixed, and the letter said that the file was appended to after it was read."""

    def write(users: range) -> None:
        frame = pl.DataFrame({"user": users, "note": [f"n{user}" for user in users]})
        if form == "parquet":
            frame.write_parquet(tmp_path / "new.tmp", row_group_size=5)
        else:
            (tmp_path / "new.tmp").write_bytes(frame.write_csv().encode() if form == "csv" else lines(users))
        (tmp_path / "new.tmp").rename(tmp_path / "a")

    write(range(20))
    reader = source(tmp_path, "*", CSV() if form == "csv" else form, split_bytes=64)
    found = Read()
    splits, found.position = reader.plan(None, 64)
    for split, _ in splits:
        for batch in reader.open(split, SCHEMA, exact=True):
            found.rows |= {batch.first + n: row for n, row in enumerate(batch.raw.frame.iter_rows(named=True))}
    count = len(found.rows)
    assert 0 < count < 20
    write(range(100, 100 + size))
    os.utime(tmp_path / "a", ns=(0, 1))
    read(source(tmp_path, "*", CSV() if form == "csv" else form, split_bytes=64), SCHEMA, into=found)
    assert [int(user) for user in users(found)] == list(range(count))
    ((_, reason, _),) = found.dead.values()
    assert reason.startswith("the file was changed while it was read: it had ")
    assert (found.position["begun"], found.position["count"]) == (None, 1)


@pytest.mark.parametrize("form", ["json", "avro", "parquet", "csv"])
def test_a_file_changed_between_plan_and_reading_is_not_read(tmp_path: Path, form: str) -> None:
    """A batch that is run again would have other rows."""
    (tmp_path / "a").write_bytes(lines([1, 1, 1]))
    (tmp_path / "b").write_bytes(lines([2]))
    reading = source(tmp_path, "*", CSV() if form == "csv" else form)
    splits, _ = reading.plan(None, 1 << 30)
    (tmp_path / "a").write_bytes(lines([3, 4]))
    (lost,) = reading.open(splits[0][0], SCHEMA, exact=True)
    assert lost.raw.rejects["reason"].to_list() == [
        "the file was changed before it was read: create files by renaming them into the folder"
    ]
    old = {name: value for name, value in splits[0][0].items() if name != "stamp"}
    if form == "json":  # as an older version planned it
        assert [batch.raw.frame["user"].to_list() for batch in reading.open(old, SCHEMA, exact=True)] == [[3, 4]]


@pytest.mark.parametrize("form", ["json", "csv"])
def test_of_a_file_that_grows_the_rows_that_were_planned_are_read(tmp_path: Path, form: str) -> None:
    head = b"user,note\n1,a\n" if form == "csv" else lines([1])
    (tmp_path / "a").write_bytes(head)
    reading = source(tmp_path, "*", CSV() if form == "csv" else form)
    splits, position = reading.plan(None, 1 << 30)
    with (tmp_path / "a").open("ab") as file:
        file.write(b"2,b\n" if form == "csv" else lines([2]))
    batches = [batch for split, _ in splits for batch in reading.open(split, SCHEMA, exact=True)]
    assert [int(user) for batch in batches for user in batch.raw.frame["user"]] == [1]
    (report,) = position_after(reading, position)[1]
    assert "appended to" in report.raw.rejects["reason"][0]
