"""The fork server of isolated children: `python -m umbel.isolation.forkserver FD MODULE...`.

It has imported the modules that user functions need and does nothing else, so a child costs some milliseconds. It has one
thread of Python and uses neither Polars nor Arrow itself: a fork of it finds no lock of a thread that no longer exists. When the
process that started it ends, it ends too, and its children with it.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import os
import resource
import signal
import socket
import sys
import warnings

from umbel.isolation.child import answer_calls

FORK, WAIT = b"F", b"W"
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals for the process that started this one, which come here too: of a process group, or of systemd."""
PDEATHSIG = 1
REFUSED = 1
"""In place of the number of a child: that of a process which is no child of this one."""


def main(descriptor: int, modules: list[str]) -> None:
    """Fork a child for each connection received, until the other side closes."""
    for each in ENDING:
        signal.signal(each, signal.SIG_IGN)
    control = socket.socket(fileno=descriptor)
    for name in modules:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    # Python 3.12 and later warn of the threads of libraries: those of an allocator that is safe to fork, and of pools at rest.
    warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
    children: set[int] = set()
    while True:
        order, received, _, _ = socket.recv_fds(control, 9, 1)
        if not order:
            _end(children)
        elif order == FORK:
            child = _forked()
            if child == 0:
                control.close()
                _become_child(received[0])
            os.close(received[0])
            if child != REFUSED:
                children.add(child)
            control.sendall(child.to_bytes(8, "big"))
        else:
            child = int.from_bytes(order[1:], "big")
            _, status = os.waitpid(child, 0)
            children.discard(child)
            control.sendall((os.waitstatus_to_exitcode(status) + 256).to_bytes(8, "big"))


def _forked() -> int:
    """Return the number of a new child, and 0 in the child; `REFUSED` without one."""
    try:
        return os.fork()
    except OSError:
        return REFUSED


def _become_child(descriptor: int) -> None:
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(PDEATHSIG, signal.SIGKILL)
    os.setsid()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # no core dumps: nobody would read them
    for each in ENDING:
        signal.signal(each, signal.SIG_DFL)
    try:
        answer_calls(socket.socket(fileno=descriptor))
    finally:
        os._exit(0)


def _end(children: set[int]) -> None:
    for child in children:
        os.killpg(child, signal.SIGKILL)
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
