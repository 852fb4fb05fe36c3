"""Backups of many files: time in proportion to their number, and no batch waits for those that it does not write."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from tests.selling import Shop
from umbel.connectors.buckets import Bucket
from umbel.runtime.recovery.backup import backup
from umbel.runtime.recovery.cut import CATALOG, Cut, _Pins
from umbel.runtime.recovery.listing import BackupList
from umbel.runtime.recovery.repository import Repository
from umbel.runtime.recovery.restore import restore, verify


def test_sizes_are_added_up_once(
    shop: Shop, repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were added up for each file: 20,000 files took 65 of 70 seconds for that."""
    counts = Counter[str]()

    def counted(kind: type[Cut | BackupList]) -> property:
        whole = kind.size.fget  # type: ignore[attr-defined]

        def size(self: Cut | BackupList) -> int:
            counts[kind.__name__] += 1
            return int(whole(self))

        return property(size)

    for kind in (Cut, BackupList):
        monkeypatch.setattr(kind, "size", counted(kind))
    backup(shop.deployed.deployment, repository)
    verify(repository)
    restore(repository, tmp_path / "elsewhere")
    assert counts == {"Cut": 1, "BackupList": 2}


def test_no_batch_waits_for_the_feature_log(
    shop: Shop, repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have files without number, each of which was given a second name while the catalog was locked."""
    logged, pin = shop.log_features(), _Pins.pin_features

    def pinned(pins: _Pins, root: Path) -> None:
        with closing(sqlite3.connect(root / CATALOG, timeout=0)) as writer:
            writer.execute("BEGIN IMMEDIATE")
        pin(pins, root)

    monkeypatch.setattr(_Pins, "pin_features", pinned)
    shop.moved(repository)
    restore(repository, tmp_path / "elsewhere")
    for path in logged:
        assert (tmp_path / "elsewhere" / path.relative_to(tmp_path / "umbel")).read_bytes() == path.read_bytes()


def test_small_files_are_read_many_at_once(
    shop: Shop, repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There were two requests for each file, of which a bucket answers some dozens a second, and charges for each."""
    folder = tmp_path / "umbel" / "features" / "main" / "w" / "2026-01-01"
    for workflow in range(3):
        shop.moved(repository)
        (day := folder.parent.with_name(f"w{workflow}") / folder.name).mkdir(parents=True)
        for number in range(200):
            (day / f"{number}.sum.ndjson").write_bytes(b"%d of %d" % (number, workflow))
    shop.moved(repository)
    reads, read = list[str](), Bucket.read

    def counted(bucket: Bucket, path: str, start: int = 0, size: int | None = None) -> bytes:
        reads.append(path)
        return read(bucket, path, start, size)

    monkeypatch.setattr(Bucket, "read", counted)
    verify(repository)
    restore(repository, tmp_path / "elsewhere")
    assert len(reads) < 100
    for path in (tmp_path / "umbel" / "features").rglob("*.ndjson"):
        assert (tmp_path / "elsewhere" / path.relative_to(tmp_path / "umbel")).read_bytes() == path.read_bytes()
