"""Spark's checkpoint of the live job, made from the catalog.

All that umbel needs of it is the number of the last finished batch and of its plan, and the catalog has both. So a checkpoint
that is lost can be written again, and a backup needs none.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from uuid import uuid4

from umbel.catalog.catalog import Catalog
from umbel.runtime.deployment import JOB
from umbel.state import disk


def folder_of(directory: Path) -> Path:
    """Return the folder of the live job's checkpoint."""
    return directory / "checkpoint" / JOB


def is_lost(catalog: Catalog, directory: Path) -> bool:
    """Return whether batches have finished, and there is no checkpoint that has one."""
    last = catalog.progress(JOB, sys.maxsize)
    return last is not None and _last(folder_of(directory)) is None


def _last(folder: Path) -> int | None:
    """Return the number of the last batch that a checkpoint has, None for none."""
    if not (folder / "metadata").exists():
        return None
    offsets = folder / "offsets"
    return max((int(each.name) for each in offsets.glob("[0-9]*") if each.name.isdecimal()), default=None)


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
        disk.replace(folder / "offsets" / str(last.number - 1), _lines(settings, {"plan": max(plan - 1, 0)}))
    disk.replace(folder / "offsets" / str(last.number), _lines(settings, {"plan": plan}))
    disk.replace(folder / "commits" / str(last.number), _lines({"nextBatchWatermarkMs": 0}))
    disk.replace(folder / "metadata", json.dumps({"id": str(uuid4())}).encode())
    return last.number


def _lines(*parts: object) -> bytes:
    return "\n".join(["v1", *(json.dumps(each, separators=(",", ":")) for each in parts)]).encode()
