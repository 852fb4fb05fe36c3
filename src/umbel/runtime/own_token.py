"""The admin token of a local server, for commands and clients of its account.

A server on the loopback address makes it.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from umbel.catalog.audit import AuditLog
from umbel.catalog.tokens import Role, Tokens
from umbel.client.localtoken import local_server, publish, withdraw
from umbel.runtime.deployment import Deployment

PATIENCE = 3.0
"""Seconds in which the catalog must forget the token when the server stops."""

log = logging.getLogger("umbel")


@contextmanager
def own_token(deployment: Deployment, url: str) -> Iterator[None]:
    """Authorise clients of this account at a server's URL during a block.

    Each start makes another token; it is invalid afterwards. If a parent process has made one already, nothing happens.

    Args:
        deployment: of the server.
        url: on the loopback address.
    """
    if local_server(url) is not None:
        yield
        return
    tokens, audit = Tokens(deployment.catalog), AuditLog(deployment.catalog)
    name = f"local {socket.gethostname()[:60]} {url.rpartition(':')[2]}"
    with audit.recorded("token create", f"{name} admin"):
        token = tokens.create(name, Role.ADMIN, is_local=True)
    try:
        publish(url, token, deployment.directory)
    except OSError as error:
        log.warning("clients of this account will not find their token: %s", error)
    try:
        yield
    finally:
        withdraw(url, deployment.directory)
        discarding = threading.Thread(target=_discard, args=(tokens, name), daemon=True)
        discarding.start()
        discarding.join(PATIENCE)


def _discard(tokens: Tokens, name: str) -> None:
    try:
        tokens.discard_local(name)
    except Exception as error:  # noqa: BLE001  its file is deleted, and the next start replaces it
        log.warning("the server's own token cannot be revoked: %s", type(error).__name__)
