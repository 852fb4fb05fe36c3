"""Checksums of the catalog's critical values: definitions and job progress.

They are part of the values, so the tables are unchanged; values of umbel 0.1 have none and are accepted unverified.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any

from umbel.errors import Damaged

_MARK = b"\numbel-crc:"
_BYTES = len(_MARK) + 8
_NAME = "crc"
REMEDY = "restore umbel's folder as a whole from one backup: its logs, state and catalog belong together; umbel check tells more"


def sealed(data: bytes) -> bytes:
    """Return data followed by a checksum; empty data is returned unchanged."""
    return b"%b%b%08x" % (data, _MARK, zlib.crc32(data)) if data else data


def opened(stored: bytes, what: str) -> bytes:
    """Verify and remove the checksum added by `sealed`.

    Args:
        stored: as it is in the catalog.
        what: name of the value in error messages.

    Raises:
        Damaged: it has changed.
    """
    data, _, _ = stored.rpartition(_MARK)
    if stored == sealed(data) or not _has_sum(stored):
        return data or stored
    raise damaged(what)


def with_sum(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return plain data with a checksum as one more member."""
    return {**state, _NAME: _sum_of(state)}


def without_sum(stored: Mapping[str, Any], what: str) -> dict[str, Any]:
    """Verify and remove the checksum added by `with_sum`; see `opened`."""
    state = {name: value for name, value in stored.items() if name != _NAME}
    if _NAME in stored and stored[_NAME] != _sum_of(state):
        raise damaged(what)
    return state


def _sum_of(state: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(state, sort_keys=True).encode())


def _has_sum(stored: bytes) -> bool:
    """Return True if data ends in a checksum, valid or damaged.

    It is recognised by most bytes of its mark.
    """
    end = stored[-_BYTES:]
    return sum(a == b for a, b in zip(end, _MARK, strict=False)) >= len(_MARK) - 2


def damaged(what: str) -> Damaged:
    """Return the error of a value that is not as it was written."""
    return Damaged(f"the catalog is damaged: {what} are not as they were written", hint=REMEDY)
