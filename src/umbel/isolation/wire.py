"""Messages between a process and its isolated children: length-prefixed pickles."""

from __future__ import annotations

import pickle
import socket
import struct
from collections.abc import Callable
from typing import Any

LENGTH = struct.Struct(">Q")


def send(connection: socket.socket, message: Any) -> None:
    """Send a message."""
    body = pickle.dumps(message, protocol=5)
    head = LENGTH.pack(len(body))
    if len(body) < 1 << 16:
        connection.sendall(head + body)
        return
    connection.sendall(head)
    connection.sendall(body)


def receive(connection: socket.socket, each_wait: Callable[[], None] | None = None) -> Any:
    """Return the next message.

    Args:
        connection: with a timeout if `each_wait` is provided.
        each_wait: called each time the timeout passes without a byte; raises to give up.

    Raises:
        EOFError: the other side has closed.
    """
    (size,) = LENGTH.unpack(_exactly(connection, LENGTH.size, each_wait))
    return pickle.loads(_exactly(connection, size, each_wait))


def _exactly(connection: socket.socket, size: int, each_wait: Callable[[], None] | None) -> bytearray:
    buffer = bytearray(size)
    view, filled = memoryview(buffer), 0
    while filled < size:
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
