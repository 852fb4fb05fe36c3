"""The parent's side of isolation: replaceable children that call functions within limits."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from umbel.errors import NotSupported, Transient, UmbelError
from umbel.isolation.child import MEMORY, QUESTION, RAISED, RESULT, UNKNOWN
from umbel.isolation.forkserver import FORK, REFUSED, WAIT
from umbel.isolation.memory import resident
from umbel.isolation.wire import receive, send

EVERY = 0.02
"""Seconds between two checks of the time and memory of a call."""
FORKS = 3
"""Attempts to start a child; before each a fork server that has ended is replaced."""
SLOW, LOW = 0.3, 15
"""Seconds after which a call gets a lower priority, and its niceness."""
MEGABYTE = 1 << 20
NATIVE = {signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS}
"""Signals that end native code which is refused memory: Polars aborts, others use an address they did not get."""
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1"}
_ARROW_MEMORY = {"ARROW_DEFAULT_MEMORY_POOL": "system"}
"""Arrow's other allocator reserves 1 GiB at first use, which the memory limit would count."""
_LIMITS = "raise the limit of processes, of the user or the container, or let functions start fewer"

Answers = Callable[[Any], Any]


class CallFailed(Exception):
    """A call in a child without a result.

    Args:
        reason: for people.
        error: the exception of the function, as data; None if its process ended without a report.
        is_timeout: True if it exceeded its time limit.
        has_ended: True if its process ended by itself, or was killed by others.
    """

    def __init__(
        self, reason: str, error: dict[str, Any] | None = None, *, is_timeout: bool = False, has_ended: bool = False
    ) -> None:
        super().__init__(reason)
        self.reason, self.error, self.is_timeout, self.has_ended = reason, error, is_timeout, has_ended


class ForkServer:
    """Starts children by forking a process that has the modules loaded. Threads may share it.

    Args:
        modules: imported before the first fork.
        environment: of its processes, where the variable is not set already.
    """

    def __init__(self, modules: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        self._modules = modules
        self._environment = environment or {}
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._children: set[int] = set()
        self._owner = 0

    def fork(self) -> tuple[int, socket.socket]:
        """Return a new child's process id and the connection to it.

        Raises:
            Transient: the system allows no further process, or the fork server ends each time.
        """
        ours, theirs = socket.socketpair()
        with self._lock, theirs:
            for _ in range(FORKS):
                try:
                    control = self._started()
                    socket.send_fds(control, [FORK], [theirs.fileno()])
                    child = self._number(control)
                    if child == REFUSED:
                        ours.close()
                        raise Transient("the system allows no further process, for a function", hint=_LIMITS)
                    self._children.add(child)
                    return child, ours
                except (OSError, EOFError):
                    self._drop()
        ours.close()
        raise Transient(
            f"the process that starts those of functions ended {FORKS} times in a row",
            hint="is memory short? its errors are on standard error",
        )

    def end(self, child: int) -> int:
        """Kill a child and its descendants; return the exit code, negative for a signal."""
        with self._lock:
            control = self._control
            if control is None or child not in self._children:
                return 0  # it ended with its fork server
            _kill(child)
            self._children.discard(child)
            try:
                control.sendall(WAIT + child.to_bytes(8, "big"))
                return self._number(control) - 256
            except (OSError, EOFError):
                self._drop()
                return 0

    def close(self) -> None:
        """End the fork server and its children."""
        with self._lock:
            self._drop()

    def start(self) -> None:
        """Start the fork server, if it is not running."""
        with self._lock:
            self._started()

    def _started(self) -> socket.socket:
        if self._owner != os.getpid():  # a fork of the process that started it has none
            self._forget()
        if self._control is None:
            ours, theirs = socket.socketpair()
            environment = {**self._environment, **os.environ, **_ONE_THREAD, **_ARROW_MEMORY}
            with theirs:
                command = [sys.executable, "-m", "umbel.isolation.forkserver", str(theirs.fileno()), *self._modules]
                self._process = subprocess.Popen(
                    command,
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=2,
                    env=environment,
                    start_new_session=True,  # signals to the group of this process come before it ignores them
                )
            self._control, self._owner = ours, os.getpid()
        return self._control

    def _drop(self) -> None:
        if self._control is not None:
            self._control.close()
        if self._process is not None and self._owner == os.getpid():
            for child in self._children:
                _kill(child)
            self._process.kill()
            self._process.wait()
        self._forget()

    def _forget(self) -> None:
        self._process = self._control = None
        self._children.clear()

    @staticmethod
    def _number(control: socket.socket) -> int:
        data = b""
        while len(data) < 8:
            part = control.recv(8 - len(data))
            if not part:
                raise EOFError
            data += part
        return int.from_bytes(data, "big")


class IsolatedProcess:
    """One isolated process, for one caller at a time.

    If a call kills it, another process is started for the next one.

    Args:
        server: forks it.
        yields: True to lower the priority of a slow call, so that a call that hangs leaves the processors to others.
    """

    def __init__(self, server: ForkServer, *, yields: bool = False) -> None:
        self._server, self._yields = server, yields
        self._process = 0
        self._connection: socket.socket | None = None
        self._known: set[str] = set()

    def call(
        self,
        key: str,
        payload: Callable[[], bytes],
        argument: Any,
        *,
        seconds: float,
        memory: int,
        answers: Answers | None = None,
        is_repeated: bool = False,
    ) -> Any:
        """Call a function in the child; return its result.

        Args:
            key: of the function; the child caches it.
            payload: returns the pickled function, if the child does not have it.
            argument: any picklable object.
            seconds, memory: limits of the call's time, and of the growth of the process's memory in bytes.
            answers: called with questions of code in the child; umbel's errors are raised there.
            is_repeated: whether to call it once more if its process ends: the system kills any one when memory is short.

        Raises:
            CallFailed: it raised an exception, or its process ended, or exceeded a limit.
        """
        once = partial(self._called_once, key, payload, argument, seconds, memory, answers)
        try:
            return once()
        except CallFailed as failed:
            if not is_repeated or not failed.has_ended:
                raise
            return once()

    def call_together(
        self, keys: tuple[str, ...], argument: Any, *, seconds: float, memory: int, answers: Answers | None = None
    ) -> Any:
        """Call an object in the child with functions that it knows.

        Returns its result; None if the child knows one of them no more.

        Args:
            keys: of the functions.
            argument: a picklable object that is called with the list of them; it does not return None.
            seconds, memory, answers: see `call`.

        Raises:
            CallFailed: as of `call`.
        """
        return self._called_once(keys, None, argument, seconds, memory, answers)

    def _called_once(
        self,
        key: str | tuple[str, ...],
        payload: Callable[[], bytes] | None,
        argument: Any,
        seconds: float,
        memory: int,
        answers: Answers | None,
    ) -> Any:
        connection = self._connected()
        limits = _Limits(self._process, seconds, memory, yields=self._yields)
        try:
            connection.settimeout(EVERY)
            sent = None if payload is None or key in self._known else payload()
            _send(connection, (key, sent, argument, memory), limits)
            kind, found = self._answer(connection, limits, answers)
            if kind == UNKNOWN:  # it has evicted the function from its cache
                self._known.difference_update(key if isinstance(key, tuple) else (key,))
                if payload is None:
                    return None
                return self._called_once(key, payload, argument, seconds, memory, answers)
            if limits.has_yielded:
                self.close()  # a lowered priority cannot be raised again
            return self._finished(key, kind, found, memory)
        except (EOFError, ConnectionError):
            raise CallFailed(f"its process ended: {_cause(self._ended(), memory)}", has_ended=True) from None
        except BaseException as error:
            if not isinstance(error, CallFailed) or error.error is None:
                self.close()
            raise

    @staticmethod
    def _answer(connection: socket.socket, limits: _Limits, answers: Answers | None) -> tuple[str, Any]:
        """Return the outcome of a call, after answering its questions."""
        while True:
            kind, found = receive(connection, limits.check)
            if kind != QUESTION:
                return kind, found
            limits.check()  # a function that asks without a pause is never waited for
            _send(connection, _answered(answers, found), limits)

    def knows(self, *keys: str) -> bool:
        """Return True if the process has run functions before."""
        return self._connection is not None and self._known.issuperset(keys) and _is_idle(self._connection)

    def close(self) -> None:
        """End the process."""
        self._ended()

    def _finished(self, key: str | tuple[str, ...], kind: str, found: Any, memory: int) -> Any:
        if kind == RESULT:
            self._known.update(key if isinstance(key, tuple) else (key,))
            return found
        if kind == MEMORY:
            raise CallFailed(_too_much(memory))
        assert kind == RAISED
        raise CallFailed(f"{found['kind']}: {found['text']}", found)

    def _connected(self) -> socket.socket:
        if self._connection is not None and not _is_idle(self._connection):
            self.close()  # killed by others, or by a thread that a function left
        if self._connection is None:
            self._process, self._connection = self._server.fork()
            self._known.clear()
        return self._connection

    def _ended(self) -> int:
        if self._connection is None:
            return 0
        self._connection.close()
        self._connection = None
        return self._server.end(self._process)


class _Limits:
    def __init__(self, process: int, seconds: float, memory: int, *, yields: bool) -> None:
        self._process, self._memory, self._yields = process, memory, yields
        self.seconds, self._begun = seconds, time.monotonic()
        self._before: int | None = None
        self.has_yielded = False

    def check(self) -> None:
        spent = time.monotonic() - self._begun
        if spent > self.seconds:
            raise CallFailed(f"it took longer than {self.seconds:g} s", is_timeout=True)
        if self._yields and spent > SLOW and not self.has_yielded:
            self.has_yielded = True
            with suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, self._process, LOW)
        size = resident(self._process)
        self._before = size if self._before is None else min(size, self._before)
        if size - self._before > self._memory:
            raise CallFailed(_too_much(self._memory))


def _is_idle(connection: socket.socket) -> bool:
    """Return True if the other side has neither closed nor sent anything."""
    connection.settimeout(0)
    try:
        connection.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False


def _send(connection: socket.socket, message: Any, limits: _Limits) -> None:
    connection.settimeout(limits.seconds + 1)  # a large message, to a process that reads it at once or not at all
    try:
        send(connection, message)
    except TimeoutError:
        limits.check()
        raise CallFailed("its process reads no arguments", is_timeout=True) from None
    finally:
        connection.settimeout(EVERY)


def _answered(answers: Answers | None, question: Any) -> tuple[bool, Any]:
    if answers is None:
        return True, NotSupported("this cannot be called inside a user function")
    try:
        return False, answers(question)
    except UmbelError as error:
        return True, error


def _too_much(memory: int) -> str:
    return f"it took more than {memory // MEGABYTE} MiB of memory"


def _kill(child: int) -> None:
    """Kill a child and its descendants.

    It has not been reaped yet, so that the number is its own.
    """
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)


def _cause(code: int, memory: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    with suppress(ValueError):
        cause = f"killed by {signal.Signals(-code).name}"
        refused = f", as native code may be where it is refused more than {memory // MEGABYTE} MiB of memory"
        return cause + refused * (-code in NATIVE)
    return f"killed by signal {-code}"
