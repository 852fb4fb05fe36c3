"""The hint of the end of an ingest log is that of this log."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

from umbel.log.segments import LogPosition
from umbel.log.tail import Tail


def test_the_hint_of_another_log_is_none(tmp_path: Path) -> None:
    """Else a reader would take this log for shorter than what was read of it."""
    directories = [tmp_path / "web" / name for name in ("one", "other")]
    for number, directory in enumerate(directories):
        tail = Tail(directory)
        with tail.locked():
            tail.move(LogPosition(1, 100 + number, 3))
        assert tail.hint() == LogPosition(1, 100 + number, 3)
        tail.close()
    for directory, other in zip(
        directories, [each.joinpath("lock").read_bytes() for each in directories][::-1], strict=True
    ):
        (directory / "lock").write_bytes(other)
        tail = Tail(directory)
        assert tail.hint() is None
        body = other[:-4]  # as an older version wrote it
        (directory / "lock").write_bytes(body + struct.pack("<I", zlib.crc32(body)))
        assert tail.hint() is not None
        tail.close()
