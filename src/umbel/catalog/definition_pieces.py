"""Definitions in the catalog, in pieces: what commits share is stored once.

A commit has the digests of its pieces. Pieces end where the content tells, at the beginning of a record of a definition, so
that those before and after a change are those of the commit before.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence

from sqlalchemy import select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from umbel.catalog import tables as t
from umbel.catalog.checksums import damaged, opened, sealed

LEAST = 4096
"""Bytes of the smallest piece; definitions of no more are stored with their commit."""
ONE_IN = 16
"""How many records end a piece, on average, of those that may."""
RECORD = re.compile(rb"(?=definitions\.records\.)")
"""Where the record of a field, feature, dataset or other definition begins, see `umbel.definitions.serde`."""
_MARK = b"\0umbel-pieces:"
"""Definitions in pieces begin with it, and no others: as protobuf it would be a field of number 0."""
_DIGEST = 32
_AT_ONCE = 500
"""Pieces in one query."""


def divided(definitions: bytes) -> tuple[bytes, Mapping[str, bytes]]:
    """Return what a commit stores of definitions, and their compressed pieces by digest."""
    if len(definitions) <= LEAST:
        return sealed(definitions), {}
    found = [(hashlib.sha256(each).digest(), each) for each in _pieces(definitions)]
    listed = sealed(_MARK + b"".join(digest for digest, _ in found))
    return listed, {digest.hex(): zlib.compress(piece) for digest, piece in found}


def digests(stored: bytes, what: str) -> Sequence[str] | None:
    """Return the digests of the pieces that a commit lists, None for a small one.

    Raises:
        Damaged: the list is not as it was written.
    """
    listed = opened(stored, what)
    if not listed.startswith(_MARK):
        return None
    found = listed.removeprefix(_MARK)
    return [found[start : start + _DIGEST].hex() for start in range(0, len(found), _DIGEST)]


def joined(order: Sequence[str], pieces: Mapping[str, bytes], what: str) -> bytes:
    """Return definitions whole.

    Args:
        order: the digests, as listed by the commit.
        pieces: the compressed pieces by digest.
        what: name of the value in error messages.

    Raises:
        Damaged: a piece is missing, or not as it was written.
    """
    return b"".join(_checked(digest, pieces.get(digest), what) for digest in order)


def store(session: Session, definitions: bytes) -> bytes:
    """Store the new pieces of definitions; return what their commit stores."""
    stored, pieces = divided(definitions)
    if pieces:
        dialect = postgresql if session.get_bind().dialect.name == "postgresql" else sqlite
        rows = [{"digest": digest, "data": data} for digest, data in sorted(pieces.items())]
        session.execute(dialect.insert(t.DefinitionPiece).on_conflict_do_nothing(), rows)
    return stored


def read(session: Session, stored: bytes, what: str) -> bytes:
    """Return definitions from what their commit stores.

    Args:
        session: of the catalog.
        stored: as returned by `store`.
        what: name of the value in error messages.

    Raises:
        Damaged: they are not as they were written.
    """
    order = digests(stored, what)
    if order is None:
        return opened(stored, what)
    piece, found, needed = t.DefinitionPiece, dict[str, bytes](), list(dict.fromkeys(order))
    for start in range(0, len(needed), _AT_ONCE):
        rows = session.execute(
            select(piece.digest, piece.data).where(piece.digest.in_(needed[start : start + _AT_ONCE]))
        )
        found.update((digest, data) for digest, data in rows)
    return joined(order, found, what)


def _pieces(definitions: bytes) -> Iterator[bytes]:
    start = size = 0
    for record in RECORD.split(definitions):
        size += len(record)
        if size >= LEAST and zlib.crc32(record) % ONE_IN == 0:
            yield definitions[start : start + size]
            start, size = start + size, 0
    if size:
        yield definitions[start:]


def _checked(digest: str, stored: bytes | None, what: str) -> bytes:
    try:
        piece = zlib.decompress(stored or b"")
    except zlib.error as error:
        raise damaged(what) from error
    if hashlib.sha256(piece).hexdigest() != digest:
        raise damaged(what)
    return piece
