"""Run the HTTP server."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from dataclasses import astuple
from pathlib import Path
from typing import TYPE_CHECKING

from umbel.cli.options import (
    DIRECTORY,
    LOOPBACK,
    PORT,
    Accuracy,
    AllowedHosts,
    BehindProxy,
    Catalog,
    Directory,
    ExactInstants,
    Host,
    Port,
    QueriesOnly,
    RequireToken,
    Servers,
    Shards,
    Store,
    TlsCert,
    TlsKey,
    open_deployment,
    policy,
)

if TYPE_CHECKING:
    from umbel.serving.environment import DeploymentLocation
    from umbel.serving.policy import Policy


def command(
    directory: Directory = DIRECTORY,
    port: Port = PORT,
    servers: Servers = 1,
    host: Host = LOOPBACK,
    allowed_host: AllowedHosts = None,
    require_token: RequireToken = False,
    behind_proxy: BehindProxy = False,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    catalog: Catalog = None,
    store: Store = None,
    shards: Shards = None,
    accuracy: Accuracy = None,
    exact_instants: ExactInstants = None,
    queries_only: QueriesOnly = False,
) -> None:
    """Run only the HTTP server, without a worker, until stopped.

    Examples:
        umbel serve --servers 4

        UMBEL_CATALOG=postgresql://… umbel serve --queries-only --store s3://bucket/state

        UMBEL_CATALOG=postgresql://… umbel serve --host 0.0.0.0 --tls-cert cert.pem --tls-key key.pem
    """
    from umbel.cli.up import check
    from umbel.processes.process_tree import PARENT, die_with_parent
    from umbel.runtime.limits import Limits
    from umbel.serving.environment import DeploymentLocation
    from umbel.serving.server import serve

    die_with_parent()
    check(host, port)
    Limits.from_environment()  # a wrong one is refused now, not by each process
    location = DeploymentLocation(str(directory), catalog, store, shards, accuracy, exact_instants)
    answers = policy(host, allowed_host, require_token, behind_proxy, tls_cert, tls_key, queries_only=queries_only)
    # a supervisor has checked, and has a token, for the servers that it starts
    with nullcontext() if PARENT in os.environ else _admitted(location, answers, port):
        serve(location, answers, port, servers)


def _admitted(location: DeploymentLocation, answers: Policy, port: int) -> AbstractContextManager[None]:
    """Check the policy; return the context in which a local server has its own token."""
    from umbel.runtime.own_token import own_token

    deployment = open_deployment(Path(location.directory), *astuple(location)[1:])
    deployment.catalog.check_decisive()
    answers.check(deployment)
    return own_token(deployment, answers.url(port)) if answers.is_local else nullcontext()
