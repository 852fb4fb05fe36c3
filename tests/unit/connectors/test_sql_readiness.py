"""Sockets are waited for whatever the numbers of their descriptors."""

from __future__ import annotations

import fcntl
import os
import resource
import socket
from collections.abc import Iterator

import pytest

from umbel.connectors.sql.readiness import wait_readable, wait_writable

HIGH = 1500


@pytest.fixture
def pair() -> Iterator[tuple[int, socket.socket]]:
    """Yield a descriptor that `select` refuses, and the other end of its connection."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * HIGH), hard))
    one, other = socket.socketpair()
    found = fcntl.fcntl(one.fileno(), fcntl.F_DUPFD, HIGH)
    one.close()
    yield found, other
    os.close(found)
    other.close()
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_descriptors_of_any_number_are_waited_for(pair: tuple[int, socket.socket]) -> None:
    descriptor, other = pair
    assert descriptor >= HIGH
    assert wait_readable([descriptor], 0.0) == []
    assert wait_writable([descriptor], 1.0) == [descriptor]
    other.send(b"x")
    assert wait_readable([other, descriptor], 1.0) == [descriptor]
    assert wait_readable([], 0.0) == []
