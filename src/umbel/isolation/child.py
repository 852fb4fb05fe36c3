"""The isolated child: calls functions it receives, and returns their results or errors."""

from __future__ import annotations

import os
import pickle
import socket
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from umbel.errors import UmbelError, line_of, text_of
from umbel.isolation.memory import limited
from umbel.isolation.wire import receive, send

KNOWN = 256
"""Functions a child caches."""
RESULT, QUESTION, RAISED, MEMORY, UNKNOWN = "result", "question", "raised", "memory", "unknown"

_connection: list[socket.socket] = []


def ask(question: Any) -> Any:
    """Send a question to the calling process and return its response.

    For code that runs in a child.

    Raises:
        UmbelError: the error raised by the other side.
    """
    (connection,) = _connection
    send(connection, (QUESTION, question))
    is_error, found = receive(connection)
    if is_error:
        raise found
    return found


def answer_calls(connection: socket.socket) -> None:
    """Serve calls until the other side closes."""
    _connection[:] = [connection]
    known: OrderedDict[str, Callable[[Any], Any]] = OrderedDict()
    own = os.getpid()
    while True:
        try:
            key, payload, argument, memory = receive(connection)
        except EOFError:
            return
        _answer(connection, known, key, payload, argument, memory, own)


def _answer(
    connection: socket.socket,
    known: OrderedDict[str, Callable[[Any], Any]],
    key: str,
    payload: bytes | None,
    argument: Any,
    memory: int,
    own: int,
) -> None:
    if payload is None and key not in known:
        send(connection, (UNKNOWN, None))
        return
    try:
        with limited(memory):
            if payload is not None:
                known[key] = pickle.loads(payload)
                if len(known) > KNOWN:
                    known.popitem(last=False)
            known.move_to_end(key)
            found = known[key](argument)
        _end_of_fork(own)
        send(connection, (RESULT, found))
    except MemoryError:
        _end_of_fork(own)
        send(connection, (MEMORY, None))
    except BaseException as error:  # noqa: BLE001  SystemExit too is no more than a failed call
        _end_of_fork(own)
        send(connection, (RAISED, report(error)))


def _end_of_fork(own: int) -> None:
    """End a fork that a function left behind: the result is its parent's to send."""
    if os.getpid() != own:
        os._exit(0)


def report(error: BaseException) -> dict[str, Any]:
    """Return an error as plain data.

    The reader may not have the class of a user's exception.
    """
    own = error if isinstance(error, UmbelError) else None
    return {
        "kind": type(error).__name__,
        "text": text_of(error),
        "hint": own.hint if own else None,
        "where": (own.where if own else None) or line_of(error),
        "is_own": own is not None,
        "is_value_error": isinstance(error, ValueError),
    }
