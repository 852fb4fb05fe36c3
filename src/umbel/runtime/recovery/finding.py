"""Findings of a check."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from umbel.errors import UmbelError

BACKUP = "restore a backup: umbel restore"
ALL = f"{BACKUP}; or read all sources again: umbel rebuild --all"


@dataclass(frozen=True)
class CheckFinding:
    """Something that is missing, damaged or left over.

    Args:
        subject: the part of the deployment.
        text: what is wrong with it.
        lost: what is lost, in datasets, rows and times; empty if nothing is.
        remedy: what to do where it cannot be mended.
        mend: mends it, and returns what was done; None if that is not possible.
    """

    subject: str
    text: str
    lost: str = ""
    remedy: str = BACKUP
    mend: Callable[[], str] | None = None


def reason_of(error: Exception) -> str:
    """Return why something cannot be read."""
    if isinstance(error, UmbelError):
        return error.message
    if isinstance(error, OSError) and error.filename:
        return f"{'/'.join(Path(error.filename).parts[-3:])} cannot be read: {error.strerror}"
    return f"it cannot be read: {error}"
