"""The isolated child: calls functions it receives, and returns their results or errors."""

from __future__ import annotations

import os
import pickle
import signal
import socket
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from umbel.errors import NotSupported, UmbelError, line_of, text_of
from umbel.isolation.memory import limited
from umbel.isolation.wire import receive, send

KNOWN = 256
"""Functions a child caches."""
RESULT, QUESTION, RAISED, MEMORY, UNKNOWN = "result", "question", "raised", "memory", "unknown"

_ASK = "look up and read secrets in the extractor's own process, while it runs"

_questions: list[Questions] = []


class Questions:
    """Questions of a call's code to the calling process.

    One at a time, as they and the answers share a connection. A thread of their own reads the answers: what a signal handler or
    another thread raises in the code that asks would leave half an answer behind, for the next question.

    Args:
        connection: to the calling process.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection, self._own = connection, os.getpid()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="questions")
        self._turn, self._is_open, self._has_questions = threading.Lock(), False, False

    def ask(self, question: Any) -> Any:
        """Send a question and return its response.

        Raises:
            NotSupported: there is no call in progress, or this is a fork of the process with it.
            UmbelError: the error raised by the other side.
        """
        if os.getpid() != self._own:
            raise NotSupported("a process that a function has forked cannot ask the server", hint=_ASK)
        with self._turn:
            if not self._is_open:
                raise NotSupported("the call that began this thread has ended", hint=_ASK)
            self._has_questions = True
            answer = self._thread.submit(self._answer, question)
        is_error, found = answer.result()
        if is_error:
            raise found
        return found

    def _answer(self, question: Any) -> tuple[bool, Any]:
        send(self._connection, (QUESTION, question))
        found: tuple[bool, Any] = receive(self._connection)
        return found

    @contextmanager
    def allowed(self) -> Iterator[None]:
        """Let all threads ask during a block; those that ask at its end are answered."""
        self._is_open, self._has_questions = True, False
        try:
            yield
        finally:
            if os.getpid() != self._own:  # a fork that a function left behind: the result is its parent's to send
                os._exit(0)
            signal.setitimer(signal.ITIMER_REAL, 0)  # an alarm that a function left would ring in another one
            with self._turn:
                self._is_open = False
            if self._has_questions:
                self._thread.submit(int).result()  # the answers of questions that were given up have been read


def ask(question: Any) -> Any:
    """Send a question to the calling process and return its response.

    For code that runs in a child.

    Raises:
        UmbelError: the error raised by the other side.
    """
    return _questions[0].ask(question)


def answer_calls(connection: socket.socket) -> None:
    """Serve calls until the other side closes."""
    _questions[:] = [Questions(connection)]
    known: OrderedDict[str, Callable[[Any], Any]] = OrderedDict()
    while True:
        try:
            key, payload, argument, memory = receive(connection)
        except EOFError:
            return
        _answer(connection, known, key, payload, argument, memory)


def _answer(
    connection: socket.socket,
    known: OrderedDict[str, Callable[[Any], Any]],
    key: str | tuple[str, ...],
    payload: bytes | None,
    argument: Any,
    memory: int,
) -> None:
    """Answer one call.

    It is of a function with the argument, or of the argument with several functions.
    """
    keys = key if isinstance(key, tuple) else (key,)
    if payload is None and not known.keys() >= {*keys}:
        send(connection, (UNKNOWN, None))
        return
    try:
        with _questions[0].allowed(), limited(memory):
            if payload is not None:
                known[keys[0]] = pickle.loads(payload)
                if len(known) > KNOWN:
                    known.popitem(last=False)
            for each in keys:
                known.move_to_end(each)
            functions = [known[each] for each in keys]
            found = argument(functions) if isinstance(key, tuple) else functions[0](argument)
        send(connection, (RESULT, found))
    except MemoryError:
        send(connection, (MEMORY, None))
    except BaseException as error:  # noqa: BLE001  SystemExit too is no more than a failed call
        send(connection, (RAISED, report(error)))


def report(error: BaseException) -> dict[str, Any]:
    """Return an error as plain data.

    The reader may not have the class of a user's exception.
    """
    own = error if isinstance(error, UmbelError) else None
    return {
        "kind": type(error).__name__,
        "cause": type(error.__cause__).__name__ if error.__cause__ is not None else "",
        "text": text_of(error),
        "hint": own.hint if own else None,
        "where": (own.where if own else None) or line_of(error),
        "is_own": own is not None,
        "is_value_error": isinstance(error, ValueError),
    }
