"""The HTTP application."""

from __future__ import annotations

import asyncio
import gc
import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from umbel.catalog.audit import AuditLog
from umbel.catalog.tokens import Role, Tokens
from umbel.log.features import FeatureLog
from umbel.offline.runner import OfflineRunner
from umbel.processes.process_tree import end_with_parent
from umbel.request_errors import NoSuchRoute, WrongMethod
from umbel.runtime.deployment import Deployment
from umbel.serving import (
    branches,
    control,
    feature_log,
    ingestion,
    inspection,
    offline,
    openapi,
    queries,
    replaying,
    secrets,
    tracing,
)
from umbel.serving.coalesce import Coalescer
from umbel.serving.connection import connection_limit
from umbel.serving.endpoint import Endpoint, failed
from umbel.serving.environment import DeploymentLocation
from umbel.serving.feature_log import FeatureLogWriter
from umbel.serving.gate import Gate
from umbel.serving.metrics import Metrics
from umbel.serving.policy import Policy
from umbel.serving.processes import note_start_failure
from umbel.serving.refusals import refusal
from umbel.serving.requests import BodyRoom
from umbel.serving.service import Service
from umbel.state.durable import DurableStore
from umbel.state.passwords import log_redacted
from umbel.state.secrecy import conceal

V1 = "/api/v1"
READER, WRITER, ADMIN = Role.READER, Role.WRITER, Role.ADMIN
ROUTES: tuple[Endpoint, ...] = (
    Endpoint("POST", f"{V1}/query", queries.query, READER),
    Endpoint("POST", f"{V1}/log", ingestion.log, WRITER, needs_folder=True),
    Endpoint("POST", f"{V1}/dataset/{{name}}/lookup", queries.lookup, READER),
    Endpoint("POST", f"{V1}/trace", tracing.trace, READER, needs_folder=True),
    Endpoint("POST", f"{V1}/dataset/{{name}}/trace", tracing.trace_of_row, READER, needs_folder=True),
    Endpoint("POST", f"{V1}/query_offline", queries.query_offline, READER, needs_folder=True),
    Endpoint("GET", f"{V1}/query_offline/status", offline.status, READER, needs_folder=True),
    Endpoint("POST", f"{V1}/query_offline/cancel", offline.cancel, READER, needs_folder=True),
    Endpoint("GET", f"{V1}/dataset/{{name}}/inspect", inspection.inspect, READER, needs_folder=True),
    Endpoint("GET", f"{V1}/dataset/{{name}}/dead_letters", inspection.dead_letters, READER),
    Endpoint("POST", f"{V1}/dataset/{{name}}/dead_letters/replay", replaying.replay_dead_letters, ADMIN, "replay"),
    Endpoint("GET", f"{V1}/dataset/{{name}}/expectations", inspection.expectations, READER),
    Endpoint("POST", f"{V1}/dataset/{{name}}/erase", branches.erase, ADMIN, "erase"),
    Endpoint("POST", f"{V1}/commit", control.commit, ADMIN, "commit"),
    Endpoint("GET", f"{V1}/commit", control.definitions, READER),
    Endpoint("POST", f"{V1}/plan", control.plan, ADMIN, needs_folder=True),
    Endpoint("GET", f"{V1}/branch/status", branches.status, READER),
    Endpoint("GET", f"{V1}/branch/list", branches.names, READER),
    Endpoint("POST", f"{V1}/init", branches.init, ADMIN, "branch init"),
    Endpoint("POST", f"{V1}/delete", branches.delete, ADMIN, "branch delete"),
    Endpoint("GET", f"{V1}/lineage", inspection.lineage, READER),
    Endpoint("GET", f"{V1}/xray", inspection.xray, READER),
    Endpoint("POST", f"{V1}/secret/{{name}}", secrets.add_secret, ADMIN, "secret add"),
    Endpoint("PATCH", f"{V1}/secret/{{name}}", secrets.update_secret, ADMIN, "secret update"),
    Endpoint("DELETE", f"{V1}/secret/{{name}}", secrets.delete_secret, ADMIN, "secret delete"),
    Endpoint("GET", f"{V1}/feature_log", feature_log.feature_log, READER, needs_folder=True),
    Endpoint("GET", f"{V1}/progress", control.progress, READER, needs_folder=True),
    Endpoint("GET", f"{V1}/metrics", control.metrics, READER),
    Endpoint("GET", "/healthz", control.healthz, None),
    Endpoint("GET", "/readyz", control.readyz, None),
    Endpoint("GET", "/openapi.json", openapi.description, READER),
    Endpoint("GET", "/docs", openapi.page, None),
)

FOLLOWED_EVERY = 0.1
"""Seconds between two looks at state that another machine writes."""
LAST_WAIT = 5.0
"""Seconds that threads get to finish after everything is answered."""

log = logging.getLogger("umbel.serve")


def application(
    deployment: Deployment, ended: Callable[[], None] = lambda: None, policy: Policy | None = None
) -> Starlette:
    """Return the ASGI application of a deployment.

    Args:
        deployment: the deployment to serve.
        ended: called once all requests are answered and all files are closed.
        policy: the access policy; by default that of a server on the loopback address.
    """
    conceal(deployment.directory)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        asyncio.get_running_loop().set_exception_handler(connection_limit().handle)
        try:
            service = await asyncio.to_thread(Service, deployment)
        except Exception as error:
            note_start_failure(error)
            raise
        app.state.gate = gate = Gate(policy or Policy(), Tokens(deployment.catalog))
        app.state.audit, app.state.bodies = AuditLog(deployment.catalog), BodyRoom()
        app.state.service, app.state.metrics = service, Metrics()
        app.state.coalescer = Coalescer(service.vault, service.threads)
        app.state.runner = runner = OfflineRunner(deployment)
        usage = app.state.metrics.usage
        feature_log = FeatureLog(deployment.directory / "features")
        app.state.feature_log_writer = feature_log_writer = FeatureLogWriter(feature_log, usage.retained)
        loops = (service.follow(), service.backlog.follow(), runner.run(), usage.follow(), gate.follow())
        tasks = [asyncio.create_task(each) for each in loops]
        yield
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.to_thread(feature_log_writer.close)
        gate.close()
        service.close()
        ended()

    return RoutedApplication(lifespan)


def _opened() -> Deployment:
    """Open the deployment; where only queries are answered, look for new state in the background."""
    deployment = DeploymentLocation.handed_on().opened()
    if Policy.handed_on().queries_only and isinstance(deployment.store, DurableStore):
        deployment.store.follow(FOLLOWED_EVERY)
    return deployment


class RoutedApplication(Starlette):
    """The endpoints; those of a fixed path are found without the router and its middleware.

    These match one path after the other and wrap `send` for each request, which costs as much as the rest of a small request.

    Args:
        lifespan: starts and ends the service.
    """

    def __init__(self, lifespan: Callable[[Starlette], AbstractAsyncContextManager[None]]) -> None:
        refusals: Any = {HTTPException: _unknown, Exception: _broken}
        super().__init__(routes=ROUTES, lifespan=lifespan, exception_handlers=refusals)
        self._fixed = {(each.method, each.path): each for each in ROUTES if not each.param_convertors}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or run the lifespan."""
        endpoint = self._fixed.get((scope["method"], scope["path"])) if scope["type"] == "http" else None
        if endpoint is None:
            await super().__call__(scope, receive, send)
            return
        scope["app"], scope["path_params"] = self, {}
        request = Request(scope, receive, send)
        try:
            response = await endpoint.respond(request)
        except Exception as error:
            await (await _broken(request, error))(scope, receive, send)
            raise  # the server logs it
        await response(scope, receive, send)


def from_environment() -> Starlette:
    """Return the application of the deployment named by environment variables.

    It is the factory that server processes load.
    """
    import pandas as pd  # noqa: F401  now: the first query would wait for it

    log_redacted(logging.WARNING)
    parent = multiprocessing.parent_process()
    if parent is not None and parent.pid is not None:
        end_with_parent(parent.pid)
        # a terminal that is closed sends it to the parent as well, which stops this process
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    gc.freeze()  # loaded objects are permanent: garbage collections need not traverse them while requests wait
    try:
        return application(_opened(), _end_soon, Policy.handed_on())
    except Exception as error:
        note_start_failure(error)
        raise


def _end_soon() -> None:
    """End this process even if some of its threads are blocked."""
    timer = threading.Timer(LAST_WAIT, os._exit, (1,))
    timer.daemon = True
    timer.start()


async def _unknown(request: Request, error: Exception) -> Response:
    """Answer 404 for an unknown path, 405 for an unsupported method."""
    assert isinstance(error, HTTPException)
    message = f"{request.method} {request.url.path}: {error.detail}"
    if error.status_code == 405:
        path = request.scope["route"].path
        allowed = ", ".join(sorted({method for each in ROUTES if each.path == path for method in each.methods or ()}))
        refused = WrongMethod(message, hint=f"this path takes {allowed}")
        refused.headers = {"Allow": allowed}
        return refusal(refused)
    known = ", ".join(f"{each.method} {each.path}" for each in ROUTES)
    return refusal(NoSuchRoute(message, hint=f"known: {known}"))


async def _broken(_: Request, error: Exception) -> Response:
    return refusal(failed(error))
