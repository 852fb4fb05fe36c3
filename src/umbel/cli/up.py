"""Run everything in one process tree."""

from __future__ import annotations

import errno
import os
import socket
from contextlib import nullcontext
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
    RequireToken,
    Servers,
    Shards,
    Store,
    TlsCert,
    TlsKey,
    Workers,
    open_deployment,
    policy,
)

if TYPE_CHECKING:
    from umbel.runtime.deployment import Deployment
    from umbel.serving.policy import Policy

WORKER = "worker"


def command(
    directory: Directory = DIRECTORY,
    port: Port = PORT,
    workers: Workers = 2,
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
) -> None:
    """Run the server and the worker for the committed definitions, until Ctrl-C.

    Definitions are committed with `umbel commit`.

    Examples:
        umbel up

        umbel up --dir /var/lib/umbel --servers 2 -w 4
    """
    from umbel.processes.locks import alone

    check(host, port)
    deployment = open_deployment(directory, catalog, store, shards, accuracy, exact_instants)
    answers = policy(host, allowed_host, require_token, behind_proxy, tls_cert, tls_key)
    answers.check(deployment)
    with alone(deployment.directory, "supervisor"):
        up(deployment, answers, port, workers, servers)


def check(host: str, port: int) -> None:
    """Refuse a port that is taken.

    Raises:
        Transient: the port is taken.
    """
    from umbel.cli.checks import holder
    from umbel.errors import Transient

    try:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as lookup:
            lookup.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            lookup.bind((host, port))
            lookup.listen(1)
    except OSError as error:
        by = holder(port) if error.errno == errno.EADDRINUSE else None
        is_host = isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL
        hint = "name an address of this machine: --host" if is_host else f"choose another port: --port {port + 1}"
        raise Transient(
            f"cannot listen on {host}:{port}: {error.strerror}{f'; process {by} does' if by else ''}",
            hint=f"stop it, or {hint}" if by else hint,
        ) from None


def up(deployment: Deployment, answers: Policy, port: int, workers: int, servers: int) -> None:
    """Run a server and a worker until stopped.

    The caller is the only supervisor of the folder.
    """
    from umbel.cli.watching import Watch
    from umbel.processes.allocation import retaining
    from umbel.processes.status import forget_status, note_failure
    from umbel.processes.supervision import SupervisedProcess, Supervisor
    from umbel.runtime.own_token import own_token

    deployment.check_state()
    common, urls = (
        ["--dir", str(deployment.directory)],
        {"UMBEL_CATALOG": deployment.catalog_url, "UMBEL_STORE": deployment.store_url},
    )
    logs = deployment.directory / "logs"
    serve = ["serve", *common, *answers.arguments(), "--port", str(port), "--servers", str(servers)]
    children = [
        SupervisedProcess.umbel("server", serve, logs / "server.log"),
        SupervisedProcess.umbel(WORKER, ["work", *common, "-w", str(workers)], logs / "worker.log"),
    ]
    for child in children:
        child.environment = {**child.environment, **urls}  # no arguments: they may have passwords
        if child.name == WORKER:
            child.environment = retaining({**os.environ, **child.environment})

    def note(child: SupervisedProcess, reason: str, ran_for: float) -> None:
        if child.name == WORKER:
            note_failure(deployment.directory, reason, ran_for)

    with own_token(deployment, answers.url(port)) if answers.is_local else nullcontext():
        forget_status(deployment.directory)
        with Watch(deployment, answers.host, port, answers.scheme) as watch:
            Supervisor(children, watch.record_event, on_end=note).run(watch.look)
        watch.record_event("stopped")
