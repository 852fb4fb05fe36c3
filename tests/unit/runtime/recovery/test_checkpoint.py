"""Checkpoints that Spark would refuse, or that are older than the catalog, are found and written again."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.selling import Shop
from umbel.catalog.catalog import Catalog
from umbel.runtime.recovery import checkpoint
from umbel.runtime.recovery.check import check, repair_all


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(tmp_path)
    for _ in range(3):
        made.sell()
    made.write_checkpoint()
    for path in [*offsets(made), *files(made, "commits"), *folder(made).glob("metadata")]:
        add_sums(path)
    yield made
    made.deployed.close()


def folder(shop: Shop) -> Path:
    return checkpoint.folder_of(shop.folder / "umbel")


def files(shop: Shop, name: str) -> list[Path]:
    return sorted(each for each in (folder(shop) / name).iterdir() if not each.name.startswith("."))


def offsets(shop: Shop) -> list[Path]:
    return files(shop, "offsets")


def add_sums(path: Path) -> None:
    """Write the checksums that Hadoop's local files have: 512 bytes each, padded with blanks to have several."""
    path.write_bytes(path.read_bytes() + b" " * 1100 if path.name == "metadata" else path.read_bytes())
    data = path.read_bytes()
    sums = [zlib.crc32(data[at : at + 512]) for at in range(0, len(data), 512)]
    path.with_name(f".{path.name}.crc").write_bytes(struct.pack(f">4sI{len(sums)}I", b"crc\0", 512, *sums))


def is_lost(shop: Shop) -> bool:
    return bool(loss(shop))


def loss(shop: Shop) -> str:
    return checkpoint.loss(shop.deployed.deployment.catalog, shop.folder / "umbel")


def flip(path: Path) -> None:
    """Change a digit, which leaves valid JSON."""
    data = path.read_bytes()
    path.write_bytes(data.replace(b'"batchTimestampMs":0', b'"batchTimestampMs":4').replace(b'Ms":0', b'Ms":4', 1))
    assert path.read_bytes() != data


HARMS: dict[str, Callable[[Shop], object]] = {
    "a digit": lambda shop: flip(offsets(shop)[-1]),
    "the digit of a commit": lambda shop: flip(files(shop, "commits")[-1]),
    "the metadata": lambda shop: (folder(shop) / "metadata").write_bytes(b'{"id": "other"}'),
    "checksums": lambda shop: offsets(shop)[-1].with_name(f".{offsets(shop)[-1].name}.crc").write_bytes(b"crc\0\0"),
    "other checksums": lambda shop: (
        offsets(shop)[-1].with_name(f".{offsets(shop)[-1].name}.crc").write_bytes(bytes(12))
    ),
    "the last batch": lambda shop: offsets(shop)[-1].unlink(),
}


def test_one_with_its_checksums_is_sound(shop: Shop) -> None:
    assert not is_lost(shop)
    assert list(check(shop.deployed.deployment)) == []


@pytest.mark.parametrize("harm", HARMS)
def test_damage_is_found_and_mended(shop: Shop, harm: str) -> None:
    HARMS[harm](shop)
    found = list(check(shop.deployed.deployment))
    assert [each.subject for each in found] == ["checkpoint"]
    ((_, done),) = repair_all(shop.deployed.deployment, found)
    assert "written again, after batch" in done
    assert not is_lost(shop)


def test_an_older_copy_is_found(shop: Shop, tmp_path: Path) -> None:
    """Its files are whole, but the state is ahead of it: no batch could follow."""
    shutil.copytree(folder(shop), tmp_path / "copy")
    shop.sell()
    assert is_lost(shop)
    shop.write_checkpoint()
    assert not is_lost(shop)
    shutil.rmtree(folder(shop))
    shutil.copytree(tmp_path / "copy", folder(shop))
    assert is_lost(shop)


def test_an_older_catalog_is_found(shop: Shop, tmp_path: Path) -> None:
    """Its commits and erasures since then are lost, though positions are read from the plans."""
    place = shop.deployed.deployment
    with contextlib.closing(sqlite3.connect(place.directory / "catalog.db")) as database:
        database.execute("VACUUM INTO ?", [str(tmp_path / "copy.db")])
    shop.sell()
    shop.sell()
    shop.write_checkpoint()
    assert checkpoint.is_catalog_older(place.catalog, place.directory) == ""
    with contextlib.closing(Catalog(f"sqlite:///{tmp_path / 'copy.db'}")) as older:
        assert "its last finished batch is 2, and batch 4 has begun" in checkpoint.is_catalog_older(
            older, place.directory
        )


def test_why_a_checkpoint_is_written_again_is_said(shop: Shop) -> None:
    *_, last = offsets(shop)
    whole = last.read_bytes()
    last.with_name(f".{last.name}.crc").unlink()
    last.write_bytes(whole.replace(b'"offset"', b'"plan"'))  # as versions before wrote it
    assert loss(shop) == "an earlier version of umbel wrote the checkpoint"
    assert [each.text.split(";")[0] for each in check(shop.deployed.deployment)] == [loss(shop)]
    last.write_bytes(whole[:-9])
    assert loss(shop) == "the checkpoint is damaged"
    last.unlink()
    assert loss(shop) == "the checkpoint ends with batch 1, and batch 2 has finished"
    shutil.rmtree(folder(shop))
    assert loss(shop) == "the checkpoint is missing"
