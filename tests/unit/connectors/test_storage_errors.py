"""Buckets: what is said of errors of the storage."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from umbel.connectors.buckets import FolderBucket
from umbel.errors import InvalidValue, Transient


def bucket_in(folder: Path) -> FolderBucket:
    (folder / "data").mkdir()
    return FolderBucket(folder, "data", "bucket 'data'")


@pytest.mark.parametrize(
    ("number", "hint"),
    [
        (errno.EROFS, "mount the disk so that it can be written to"),
        (errno.EDQUOT, "free some disk space"),
        (errno.ENOSPC, "free some disk space"),
        (errno.EIO, "is the storage reachable"),
    ],
)
def test_the_remedy_fits_the_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, hint: str) -> None:
    bucket = bucket_in(tmp_path)

    def fail(_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("umbel.connectors.buckets.os.fsync", fail)
    with pytest.raises(Transient) as caught:
        bucket.put_bytes(b"x", "a")
    assert hint in (caught.value.hint or "")


def test_a_name_that_is_too_long_is_not_tried_again(tmp_path: Path) -> None:
    bucket = bucket_in(tmp_path)
    for refused in (lambda: bucket.check("x" * 300 + "/a"), lambda: bucket.put_bytes(b"x", "x" * 300)):
        with pytest.raises(InvalidValue, match="too long"):
            refused()
