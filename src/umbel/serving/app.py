"""The HTTP application."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from umbel.errors import UmbelError
from umbel.runtime.deployment import Deployment
from umbel.serving import control, data
from umbel.serving.metrics import Metrics
from umbel.serving.requests import answer, refusal
from umbel.serving.service import Service

DEPLOYMENT = "UMBEL_DEPLOYMENT"
"""The environment variable by which a server process finds its deployment, as `Deployment.encode` wrote it."""

Handler = Callable[[Request], Awaitable[Response]]
V1 = "/api/v1"
ROUTES: tuple[tuple[str, str, Handler], ...] = (
    ("POST", f"{V1}/commit", control.commit),
    ("POST", f"{V1}/log", data.log),
    ("POST", f"{V1}/query", data.query),
    ("POST", f"{V1}/query_offline", data.query_offline),
    ("POST", f"{V1}/dataset/{{name}}/lookup", data.lookup),
    ("GET", f"{V1}/dataset/{{name}}/dead_letters", control.dead_letters),
    ("GET", f"{V1}/metrics", control.metrics),
    ("GET", "/healthz", control.healthz),
    ("GET", "/readyz", control.readyz),
)


def application(deployment: Deployment) -> Starlette:
    """Return the application over a deployment."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        app.state.service, app.state.metrics = Service(deployment), Metrics()
        yield
        app.state.service.close()

    routes = [Route(path, _measured(path, handler), methods=[method]) for method, path, handler in ROUTES]
    refusals: Any = {UmbelError: _refused, HTTPException: _unknown, Exception: _broken}
    return Starlette(routes=routes, lifespan=lifespan, exception_handlers=refusals)


def from_environment() -> Starlette:
    """Return the application over the deployment named by the environment; what server processes load."""
    return application(Deployment.decode(os.environ[DEPLOYMENT]))


def _measured(path: str, handler: Handler) -> Handler:
    async def measured(request: Request) -> Response:
        begun = time.perf_counter()
        try:
            response = await handler(request)
        except UmbelError as error:
            response = refusal(error)
        request.app.state.metrics.answered(path, response.status_code, time.perf_counter() - begun)
        return response

    return measured


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, UmbelError)
    return refusal(error)


async def _unknown(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    known = ", ".join(f"{method} {path}" for method, path, _ in ROUTES)
    message = f"{request.method} {request.url.path}: {error.detail}"
    return answer({"code": "no-such-route", "message": message, "hint": f"known: {known}"}, error.status_code)


async def _broken(_: Request, error: Exception) -> Response:
    told = f"{type(error).__name__}: {error}"
    return answer({"code": "internal", "message": told, "hint": "see the server's log"}, 500)
