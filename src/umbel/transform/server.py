"""The fork server of the transformation: it loads what workers need while its user loads the same."""

from __future__ import annotations

from umbel.isolation.process import ForkServer

MODULES = ("umbel.transform.workers", "umbel.transform.steps")
"""Modules loaded before workers are forked."""


def started() -> ForkServer:
    """Return a fork server that has begun to load its modules."""
    server = ForkServer(MODULES)
    server.start()
    return server
