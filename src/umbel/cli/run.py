"""Commit a module and run everything."""

from __future__ import annotations

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
    Env,
    ExactInstants,
    Host,
    Module,
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
    from umbel.definitions.records import Definitions
    from umbel.runtime.deployment import Deployment


def command(
    module: Module,
    directory: Directory = DIRECTORY,
    port: Port = PORT,
    workers: Workers = 2,
    servers: Servers = 1,
    env: Env = None,
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
    """Commit MODULE, and run the server and the worker for it until Ctrl-C.

    All data is stored in one folder, .umbel unless --dir names another; the next run resumes from it.
    A server or worker process that ends is started again.

    Examples:
        umbel run examples.flights.features -w 2

        umbel run my_features.py:app --dir /var/lib/umbel --port 9000
    """
    from umbel.cli.up import check, up
    from umbel.processes.locks import alone

    check(host, port)
    found = _definitions(module, env)  # before the folder is made: a module that is refused leaves none behind
    deployment = open_deployment(directory, catalog, store, shards, accuracy, exact_instants)
    answers = policy(host, allowed_host, require_token, behind_proxy, tls_cert, tls_key)
    answers.check(deployment)
    with alone(deployment.directory, "supervisor"):  # before the commit: it would change a running deployment
        _commit(deployment, found, f"umbel run {module}")
        up(deployment, answers, port, workers, servers)


def _definitions(module: str, env: str | None) -> Definitions:
    """Return the definitions of a module, all of them supported by a server."""
    from umbel.cli.loading import definitions
    from umbel.runtime.supported import check_supported

    found = definitions(module, env)
    check_supported(found)
    return found


def _commit(deployment: Deployment, definitions: Definitions, message: str) -> None:
    """Commit definitions and print the difference."""
    from rich.console import Console

    from umbel.catalog.audit import AuditLog
    from umbel.cli.commit import outcome
    from umbel.runtime.commit import commit

    with AuditLog(deployment.catalog).recorded("commit", message):
        report = commit(deployment, definitions, message=message)
    console = Console(stderr=True, soft_wrap=True)
    for kind in ("new", "changed", "removed", "recomputed"):
        if report[kind]:
            console.print(f"umbel: {kind}: {', '.join(report[kind])}", highlight=False, markup=False)
    for line in outcome(report):
        console.print(f"umbel: {line}", highlight=False, markup=False)
