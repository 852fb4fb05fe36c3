"""Parts of an answer on a disk that is full: the error names the file."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from umbel.errors import Transient
from umbel.formats.declarations import CSV
from umbel.offline.inputs import RejectedRow
from umbel.offline.outputs import PartFile, part_writer_of
from umbel.query.answer import Answer
from umbel.types.dtypes import Str

FULL = Path("/dev/full")
TYPES = {"text": Str()}
ANSWER = Answer({"text": pl.Series(["x" * 9000] * 9000)}, TYPES)
REJECTED = RejectedRow("row 1", "text", "it is wrong", b"x" * 9000)

pytestmark = pytest.mark.skipif(not FULL.exists(), reason="a device that is always full: on Linux")


@pytest.mark.parametrize("form", ["parquet", "json", CSV()])
def test_the_file_of_a_part_is_named(form: str | CSV, tmp_path: Path) -> None:
    ending, begin = part_writer_of(form, TYPES)
    path = tmp_path / f"part-7{ending}"
    path.symlink_to(FULL)

    def written() -> None:
        part = PartFile(7, tmp_path, TYPES, begin, ending)
        part.write(ANSWER)
        part.close()

    with pytest.raises(Transient, match=rf"{path} cannot be written: No space left on device") as caught:
        written()
    assert caught.value.hint == "free some disk space"


def test_the_file_of_rejected_rows_is_named(tmp_path: Path) -> None:
    path = tmp_path / "rejected-7.json"
    path.symlink_to(FULL)
    ending, begin = part_writer_of("json", TYPES)
    part = PartFile(7, tmp_path, TYPES, begin, ending)
    with pytest.raises(Transient, match=f"{path} cannot be written"):
        part.refuse([REJECTED] * 9)
