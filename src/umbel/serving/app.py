"""The HTTP application."""

from __future__ import annotations

import asyncio
import gc
import logging
import multiprocessing
import os
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from polars.exceptions import PanicException
from sqlalchemy.exc import OperationalError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from umbel.errors import Transient, UmbelError
from umbel.log.features import FeatureLog
from umbel.runtime.deployment import Deployment
from umbel.runtime.kinship import end_with_parent
from umbel.runtime.offline.runner import Runner
from umbel.serving import branches, control, featurelog, ingestion, inspection, offline, queries, secrets
from umbel.serving.coalesce import Coalescer
from umbel.serving.environment import Place
from umbel.serving.featurelog import Keeper
from umbel.serving.metrics import Metrics
from umbel.serving.requests import answer, refusal
from umbel.serving.service import Service

Handler = Callable[[Request], Awaitable[Response]]
V1 = "/api/v1"
ROUTES: tuple[tuple[str, str, Handler], ...] = (
    ("POST", f"{V1}/query", queries.query),
    ("POST", f"{V1}/log", ingestion.log),
    ("POST", f"{V1}/dataset/{{name}}/lookup", queries.lookup),
    ("POST", f"{V1}/query_offline", queries.query_offline),
    ("GET", f"{V1}/query_offline/status", offline.status),
    ("POST", f"{V1}/query_offline/cancel", offline.cancel),
    ("GET", f"{V1}/dataset/{{name}}/inspect", inspection.inspect),
    ("GET", f"{V1}/dataset/{{name}}/dead_letters", inspection.dead_letters),
    ("GET", f"{V1}/dataset/{{name}}/expectations", inspection.expectations),
    ("POST", f"{V1}/dataset/{{name}}/erase", branches.erase),
    ("POST", f"{V1}/commit", control.commit),
    ("GET", f"{V1}/commit", control.definitions),
    ("GET", f"{V1}/branch/list", branches.names),
    ("POST", f"{V1}/init", branches.init),
    ("POST", f"{V1}/delete", branches.delete),
    ("GET", f"{V1}/lineage", inspection.lineage),
    ("GET", f"{V1}/xray", inspection.xray),
    ("GET", f"{V1}/secret/{{name}}", secrets.get_secret),
    ("POST", f"{V1}/secret/{{name}}", secrets.add_secret),
    ("PATCH", f"{V1}/secret/{{name}}", secrets.update_secret),
    ("DELETE", f"{V1}/secret/{{name}}", secrets.delete_secret),
    ("GET", f"{V1}/feature_log", featurelog.feature_log),
    ("GET", f"{V1}/metrics", control.metrics),
    ("GET", "/healthz", control.healthz),
    ("GET", "/readyz", control.readyz),
)

LAST_WAIT = 5.0
"""Seconds that threads get to finish after everything is answered."""

log = logging.getLogger("umbel.serve")


def application(deployment: Deployment, ended: Callable[[], None] = lambda: None) -> Starlette:
    """Return the application over a deployment.

    Args:
        deployment: where things are.
        ended: called when everything is answered and closed.
    """

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        service = await asyncio.to_thread(Service, deployment)
        app.state.service, app.state.metrics = service, Metrics()
        app.state.coalescer = Coalescer(service.vault, service.threads)
        app.state.runner = runner = Runner(deployment)
        usage = app.state.metrics.usage
        app.state.keeper = keeper = Keeper(FeatureLog(deployment.directory / "features"), usage.kept)
        tasks = [asyncio.create_task(each) for each in (service.follow(), runner.run(), usage.follow())]
        yield
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.to_thread(keeper.close)
        service.close()
        ended()

    return Application(lifespan)


class Application(Starlette):
    """Routes requests; where the path of a route is fixed, without looking through all of them.

    Args:
        lifespan: what is there while it answers.
    """

    def __init__(self, lifespan: Callable[[Starlette], Any]) -> None:
        refusals: Any = {HTTPException: _unknown, Exception: _broken}
        super().__init__(routes=_routes(), lifespan=lifespan, exception_handlers=refusals)
        self._fixed = {(method, path): _measured(path, {method: handler}) for method, path, handler in ROUTES}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        handler = self._fixed.get((scope["method"], scope["path"])) if scope["type"] == "http" else None
        if handler is None:
            await super().__call__(scope, receive, send)
            return
        scope["app"] = self
        request = Request(scope, receive, send)
        try:
            response = await handler(request)
        except Exception as error:
            await (await _broken(request, error))(scope, receive, send)
            raise
        await response(scope, receive, send)


def from_environment() -> Starlette:
    """Return the application over the deployment named by the environment; what server processes load."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    parent = multiprocessing.parent_process()
    if parent is not None and parent.pid is not None:
        end_with_parent(parent.pid)
    gc.freeze()  # what is loaded stays: collections need not walk through it while requests wait
    return application(Place.handed_on().opened(), _end_soon)


def _end_soon() -> None:
    """End this process even if threads of it still wait for something."""
    timer = threading.Timer(LAST_WAIT, os._exit, (1,))
    timer.daemon = True
    timer.start()


def _routes() -> list[Route]:
    """Return one route for each path, so that another method on it is answered as such."""
    paths = dict.fromkeys(path for _, path, _ in ROUTES)
    handlers = {path: {method: handler for method, at, handler in ROUTES if at == path} for path in paths}
    return [Route(path, _measured(path, by_method), methods=list(by_method)) for path, by_method in handlers.items()]


def _measured(path: str, handlers: dict[str, Handler]) -> Handler:
    async def measured(request: Request) -> Response:
        begun, status = time.perf_counter(), 500
        try:
            response = await _answered(request, handlers.get(request.method) or handlers["GET"])
            status = response.status_code
        finally:
            request.app.state.metrics.answered(path, status, time.perf_counter() - begun)
        return response

    return measured


async def _answered(request: Request, handler: Handler) -> Response:
    try:
        return await handler(request)
    except UmbelError as error:
        return refusal(error)
    except ClientDisconnect:
        return Response(status_code=400)  # nobody is there to read it
    except PanicException as error:  # no Exception, and for nobody else than who has asked
        log.exception("%s %s", request.method, request.url.path)
        return await _broken(request, RuntimeError(f"Polars has panicked: {error}"))
    except (OSError, OperationalError) as error:
        log.exception("%s %s", request.method, request.url.path)
        told = f"{type(error).__name__}: {error}"
        return refusal(Transient(f"the server cannot reach what it needs: {told:.500}", hint="try again; see its log"))


async def _unknown(request: Request, error: Exception) -> Response:
    """Answer where there is no such path, or no such method on it."""
    assert isinstance(error, HTTPException)
    message = f"{request.method} {request.url.path}: {error.detail}"
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "")
        content = {"code": "wrong-method", "message": message, "hint": f"this path takes {allowed}"}
        return answer(content, 405, error.headers)
    known = ", ".join(f"{method} {path}" for method, path, _ in ROUTES)
    return answer({"code": "no-such-route", "message": message, "hint": f"known: {known}"}, error.status_code)


async def _broken(_: Request, error: Exception) -> Response:
    told = f"{type(error).__name__}: {error}"
    return answer({"code": "internal", "message": told, "hint": "see the server's log"}, 500)
