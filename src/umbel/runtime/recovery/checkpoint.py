"""Spark's checkpoint of the live job, made from the catalog.

All that umbel needs of it is the number of the last finished batch and of its plan, and the catalog has both. So a checkpoint
that is lost can be written again, and a backup needs none.
"""

from __future__ import annotations

import json
import shutil
import struct
import sys
import zlib
from pathlib import Path
from typing import Any
from uuid import uuid4

from umbel.catalog.catalog import Catalog
from umbel.runtime.deployment import JOB
from umbel.state import disk
from umbel.state.stored_json import parse_stored

PLAN = "offset"
"""The number of the plan, as the source of the query names it."""
OLDER_PLAN = "plan"
"""The same in checkpoints of earlier versions of umbel, which the query of this one cannot read."""
_MAGIC = int.from_bytes(b"crc\0")


def folder_of(directory: Path) -> Path:
    """Return the folder of the live job's checkpoint."""
    return directory / "checkpoint" / JOB


def loss(catalog: Catalog, directory: Path) -> str:
    """Return why a worker cannot resume from the checkpoint, empty where it can.

    Where no batch has finished it needs none.
    """
    last, folder = catalog.progress(JOB, sys.maxsize), folder_of(directory)
    if last is None:
        return ""
    number = _last(folder)  # Spark writes it before the batch
    if number is None:
        return "the checkpoint is missing"
    if number < last.number:
        return f"the checkpoint ends with batch {number}, and batch {last.number} has finished"
    if _is_sound(folder, number, last.number, last.state.get("plan")):
        return ""
    return (
        "an earlier version of umbel wrote the checkpoint" if _is_older(folder, number) else "the checkpoint is damaged"
    )


def _is_older(folder: Path, number: int) -> bool:
    try:
        return OLDER_PLAN in parse_stored(_checked(folder / "offsets" / str(number)).splitlines()[-1])
    except (OSError, ValueError, TypeError, IndexError, struct.error):
        return False


def is_catalog_older(catalog: Catalog, directory: Path) -> str:
    """Return how a catalog is older than the checkpoint, empty if it is not.

    Spark begins a batch when the one before has finished, which the catalog notes.
    """
    number = _last(folder_of(directory))  # before the catalog is read: batches may finish meanwhile
    last = catalog.progress(JOB, sys.maxsize)
    finished = -1 if last is None else last.number
    if number is None or number <= finished + 1:
        return ""
    return f"it is older than the state: its last finished batch is {finished}, and batch {number} has begun"


def discard_unbegun(catalog: Catalog, directory: Path) -> None:
    """Delete what is left of a checkpoint that no batch was written to.

    Spark refuses to begin where a worker was killed while it wrote its first batch: the unfinished file is still there. And
    it cannot read what older versions of umbel wrote.
    """
    folder = folder_of(directory)
    if catalog.progress(JOB, sys.maxsize) is not None:
        return
    begun = _begun(folder)
    if not begun or not _is_sound(folder, max(begun), max(begun), None):
        for name in ("offsets", "commits"):
            shutil.rmtree(folder / name, ignore_errors=True)


def _is_sound(folder: Path, number: int, finished: int, plan: Any) -> bool:
    """Return whether Spark can read a checkpoint, and resumes with the right plan.

    Args:
        folder: of the checkpoint.
        number: the last batch that it has.
        finished: the last batch that was finished.
        plan: the plan of that batch.
    """
    try:
        if "id" not in parse_stored(_checked(folder / "metadata")):
            return False
        for each in {number, max(0, number - 1), min(number, finished)}:  # Spark looks for the one before, too
            path = folder / "offsets" / str(each)
            version, *lines = _checked(path).decode().split("\n")
            parts = [parse_stored(line) for line in lines if line != "-"]
            found = None if lines[-1] == "-" else parts[-1].get(PLAN)  # none in other files, such as those of `commits`
            if found is None or not version.startswith("v") or (each == finished and plan not in (None, found)):
                return False
        commit = folder / "commits" / str(min(number, finished))
        if commit.exists():
            version, *lines = _checked(commit).decode().split("\n")
            return version.startswith("v") and all(isinstance(parse_stored(line), dict) for line in lines)
    except (OSError, ValueError, TypeError, AttributeError, IndexError, struct.error):
        return False
    return True


def _checked(path: Path) -> bytes:
    """Return the content of a file that Spark wrote.

    Hadoop keeps a CRC-32 of each 512 bytes beside it, and refuses a file that differs.

    Raises:
        ValueError: it differs.
    """
    content, sums = path.read_bytes(), path.with_name(f".{path.name}.crc")
    if sums.exists():
        magic, size, *found = _sums(sums.read_bytes())
        expected = [zlib.crc32(content[at : at + size]) for at in range(0, len(content), size)] if size > 0 else []
        if magic != _MAGIC or found != expected:
            raise ValueError(f"the checksum of {path.name} differs")
    return content


def _sums(data: bytes) -> tuple[int, ...]:
    return struct.unpack(f">{len(data) // 4}I", data)


def _last(folder: Path) -> int | None:
    """Return the number of the last batch that a checkpoint has, None for none."""
    return max(_begun(folder), default=None) if (folder / "metadata").exists() else None


def _begun(folder: Path) -> list[int]:
    """Return the numbers of the batches that Spark has begun."""
    return [int(each.name) for each in folder.glob("offsets/*") if each.name.isdecimal()]


def write(catalog: Catalog, directory: Path) -> int | None:
    """Write the checkpoint after the last finished batch; return its number, None without one.

    Args:
        catalog: of a deployment whose worker does not run.
        directory: of the deployment.
    """
    last = catalog.progress(JOB, sys.maxsize)
    folder = folder_of(directory)
    shutil.rmtree(folder, ignore_errors=True)
    if last is None:
        return None
    settings, plan = {"batchWatermarkMs": 0, "batchTimestampMs": 0, "conf": {}}, last.state["plan"]
    if last.number:  # Spark looks whether the batch before the last one is there, too
        disk.replace(folder / "offsets" / str(last.number - 1), _lines(settings, _offset(max(plan - 1, 0))))
    disk.replace(folder / "offsets" / str(last.number), _lines(settings, _offset(plan)))
    disk.replace(folder / "commits" / str(last.number), _lines({"nextBatchWatermarkMs": 0}))
    disk.replace(folder / "metadata", json.dumps({"id": str(uuid4())}).encode())
    return last.number


def _offset(plan: int) -> dict[str, int]:
    return {PLAN: plan, "timestamp": 0}


def _lines(*parts: object) -> bytes:
    return "\n".join(["v1", *(json.dumps(each, separators=(",", ":")) for each in parts)]).encode()
