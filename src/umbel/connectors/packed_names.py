"""Names of files, and stamps of their versions, as compressed text.

A position, which has them, is written with every batch.
"""

from __future__ import annotations

import struct
import zlib
from base64 import b85decode, b85encode
from collections.abc import Mapping, Sequence

from umbel.formats.stored import Stamp


def pack_stamps(stamps: Mapping[str, Stamp]) -> str:
    """Return stamps as compressed text."""
    names = sorted(stamps)
    numbers = b"".join(struct.pack("<Qq", *stamps[name]) for name in names)
    return b85encode(zlib.compress("\0".join(names).encode(errors="surrogateescape") + b"\0\0" + numbers)).decode()


def unpack_stamps(text: str | None) -> dict[str, Stamp]:
    """Return the stamps written by `pack_stamps`.

    Empty for a position of an older version.
    """
    if text is None:
        return {}
    names, _, numbers = zlib.decompress(b85decode(text)).partition(b"\0\0")
    found = struct.iter_unpack("<Qq", numbers)
    return dict(zip(names.decode(errors="surrogateescape").split("\0"), found, strict=False)) if names else {}


def pack(names: Sequence[str]) -> str:
    """Return names as compressed text."""
    return b85encode(zlib.compress("\0".join(sorted(names)).encode(errors="surrogateescape"))).decode()


def unpack(text: str) -> list[str]:
    """Return the names written by `pack`."""
    names = zlib.decompress(b85decode(text)).decode(errors="surrogateescape")
    return names.split("\0") if names else []
