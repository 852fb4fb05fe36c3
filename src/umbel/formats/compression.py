"""Decompression of the bodies of requests, bounded."""

from __future__ import annotations

import zlib

from umbel.errors import InvalidValue
from umbel.request_errors import TooLarge, UnsupportedMedia

SMALLEST_PIECE = 64
"""Bytes of a member that are decompressed at first."""


def decompressed(body: bytes, encoding: bytes, most: int) -> bytes:
    """Return a body without its compression.

    Args:
        body: as received.
        encoding: the value of Content-Encoding.
        most: bytes that it may have.

    Raises:
        TooLarge: it has more; no more than that is ever decompressed.
        InvalidValue: it is damaged or cut.
        UnsupportedMedia: it is compressed in another way.
    """
    name = encoding.strip().lower()
    if name in (b"", b"identity"):
        return body
    if name in (b"gzip", b"x-gzip"):
        return _gunzipped(body, most)
    if name == b"zstd":
        return _unzstd(body, most)
    shown = name[:80].decode("latin-1")
    raise UnsupportedMedia(f"a body cannot be compressed by {shown!r}", hint="Content-Encoding: gzip, or zstd")


def _gunzipped(body: bytes, most: int) -> bytes:
    """Return the content of all members of a body.

    A member takes pieces that begin small and double: what is left of the last one, which is copied, is no larger than the
    member, or a body of many small members would be copied once for each.
    """
    whole, found, size, at = memoryview(body), [], 0, 0
    while at < len(body):
        member, piece = zlib.decompressobj(wbits=31), SMALLEST_PIECE
        while not member.eof and at < len(body):
            try:
                found.append(member.decompress(whole[at : at + piece], most + 1 - size))
            except zlib.error as error:
                raise InvalidValue(f"the gzip data of the body is damaged: {error}") from None
            size += len(found[-1])
            if size > most:
                raise _too_large(most)
            at, piece = min(at + piece, len(body)) - len(member.unused_data), 2 * piece
        if not member.eof:
            raise InvalidValue("the gzip data of the body is cut")
    return b"".join(found)


def _unzstd(body: bytes, most: int) -> bytes:
    import pyarrow as pa

    try:
        with pa.input_stream(pa.BufferReader(body), compression="zstd") as stream:
            found = bytes(stream.read(most + 1))
    except OSError as error:
        raise InvalidValue(f"the zstd data of the body is damaged: {error}") from None
    if len(found) > most:
        raise _too_large(most)
    return found


def _too_large(most: int) -> TooLarge:
    return TooLarge(f"the body has more than {most:,} bytes once it is decompressed", hint="send it in parts")
