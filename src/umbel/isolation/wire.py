"""Messages between a process and its isolated children: length-prefixed pickles.

Bytes that an object pickles as a `PickleBuffer` follow the pickle, uncopied; they arrive as a `bytearray`.
"""

from __future__ import annotations

import pickle
import socket
import struct
from collections.abc import Callable
from typing import Any, TypeVar

HEAD, LENGTH = struct.Struct(">BQ"), struct.Struct(">Q")
SKIPPED = 1 << 16
"""Bytes read at once of a message for which there is no room."""

Buffer = TypeVar("Buffer", bytearray, memoryview)


def send(connection: socket.socket, message: Any) -> None:
    """Send a message."""
    apart = list[pickle.PickleBuffer]()
    body = pickle.dumps(message, protocol=5, buffer_callback=lambda each: not _is_apart(each, apart))
    head = HEAD.pack(len(apart), len(body)) + b"".join(LENGTH.pack(each.raw().nbytes) for each in apart)
    if len(body) < 1 << 16:
        connection.sendall(head + body)
    else:
        connection.sendall(head)
        connection.sendall(body)
    for each in apart:
        connection.sendall(each)


def receive(connection: socket.socket, each_wait: Callable[[], None] | None = None) -> Any:
    """Return the next message.

    Args:
        connection: with a timeout if `each_wait` is provided.
        each_wait: called each time the timeout passes without a byte; raises to give up.

    Raises:
        EOFError: the other side has closed.
        MemoryError: there is no room for the message, which is skipped.
    """
    count, length = HEAD.unpack(_exactly(connection, HEAD.size, each_wait))
    lengths = LENGTH.iter_unpack(_exactly(connection, count * LENGTH.size, each_wait))
    sizes = [length, *(size for (size,) in lengths)]
    try:
        buffers = [bytearray(size) for size in sizes]
    except MemoryError:
        _skip(connection, sum(sizes), each_wait)
        raise
    body, *apart = (_filled(buffer, connection, each_wait) for buffer in buffers)
    return pickle.loads(body, buffers=apart)


def _is_apart(each: pickle.PickleBuffer, apart: list[pickle.PickleBuffer]) -> bool:
    """Add a buffer of bytes to those sent apart.

    Arrays stay in the pickle: bytes that arrive as a `bytearray` would become writable there.
    """
    is_apart = type(each.raw().obj) is bytes
    if is_apart:
        apart.append(each)
    return is_apart


def _skip(connection: socket.socket, size: int, each_wait: Callable[[], None] | None) -> None:
    """Discard the bytes of a message, up to the begin of the next one."""
    part = bytearray(min(size, SKIPPED))
    while size:
        size -= len(_filled(memoryview(part)[:size], connection, each_wait))


def _exactly(connection: socket.socket, size: int, each_wait: Callable[[], None] | None) -> bytearray:
    return _filled(bytearray(size), connection, each_wait)


def _filled(buffer: Buffer, connection: socket.socket, each_wait: Callable[[], None] | None) -> Buffer:
    view, filled = memoryview(buffer), 0
    while filled < len(view):
        try:
            count = connection.recv_into(view[filled:])
        except TimeoutError:
            if each_wait is None:
                raise
            each_wait()
            continue
        except ConnectionError:
            count = 0
        if not count:
            raise EOFError
        filled += count
    return buffer
