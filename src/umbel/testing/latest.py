"""The latest mock client, used by `umbel.testing.log` and `Dataset.lookup`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from umbel.testing.client import MockClient

_scope: ContextVar[list[MockClient] | None] = ContextVar("umbel_mock_clients", default=None)
"""The clients created inside the innermost `@mock` test running in this context."""

_scoped: list[MockClient] = []
"""The clients of all running `@mock` tests."""

_by_hand: list[MockClient] = []
"""The latest client created outside `@mock` tests."""


def made(client: MockClient) -> None:
    """Register a new client."""
    scope = _scope.get()
    if scope is None:
        _by_hand[:] = [client]
    else:
        scope.append(client)
        _scoped.append(client)


@contextmanager
def scope() -> Iterator[None]:
    """Limit the lifetime of clients created inside the block.

    After it the clients created before are the latest again.
    """
    clients: list[MockClient] = []
    token = _scope.set(clients)
    try:
        yield
    finally:
        _scope.reset(token)
        for client in clients:
            _scoped.remove(client)


def latest() -> MockClient | None:
    """Return the latest mock client, or None.

    In a `@mock` test, and in the tasks it starts, it is that test's client; a thread started by a test uses any
    running test's client.
    """
    for clients in (_scope.get(), _scoped, _by_hand):
        if clients:
            return clients[-1]
    return None
