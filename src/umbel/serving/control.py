"""Routes of control: commits, health, metrics."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from umbel.errors import InvalidValue, Transient, UmbelError
from umbel.plan.definitions import Definitions
from umbel.plan.graph import MAIN
from umbel.plan.serde import dump, load
from umbel.runtime.commit import commit as put_into_force
from umbel.serving.requests import BRANCH_HEADER, PROTOBUF, answer, body_of, flag
from umbel.serving.service import Service

PATIENCE = 5.0
"""Seconds within which the catalog and the store must answer for the server to be ready."""


async def commit(request: Request) -> Response:
    """Put definitions into force; with `preview=true` only say what would change."""
    service: Service = request.app.state.service
    data = await body_of(request, PROTOBUF, "application/octet-stream")
    message = request.query_params.get("message", "")
    preview, incremental = flag(request, "preview", default=False), flag(request, "incremental", default=False)
    backfill = flag(request, "backfill", default=True)

    branch = request.headers.get(BRANCH_HEADER, MAIN)

    def run() -> dict[str, object]:
        told = put_into_force(
            service.deployment,
            _loaded(data),
            branch=branch,
            message=message,
            preview=preview,
            incremental=incremental,
            backfill=backfill,
        )
        service.refresh()
        return told

    return answer(await asyncio.to_thread(run))


def _loaded(data: bytes) -> Definitions:
    """Return the definitions in a body."""
    try:
        return load(data)
    except UmbelError:
        raise
    except Exception as error:
        told = f"{type(error).__name__}: {error}"
        raise InvalidValue(
            f"these bytes are not definitions: {told:.500}",
            hint="commit by umbel.client.Client or `umbel commit`, with the server's versions of umbel and Python",
        ) from error


async def definitions(request: Request) -> Response:
    """Return what is in force, as `commit` takes it."""
    service: Service = request.app.state.service
    in_force = await service.of(request)
    data = await asyncio.to_thread(dump, in_force.definitions)
    return Response(data, media_type=PROTOBUF, headers={"X-UMBEL-REVISION": str(in_force.revision)})


async def healthz(_: Request) -> Response:
    """Say that the process lives."""
    return answer({"status": "ok"})


async def readyz(request: Request) -> Response:
    """Say that requests can be answered: the catalog and the store can be reached."""
    service: Service = request.app.state.service

    def reach() -> int:
        service.refresh()
        with service.deployment.store.snapshot(0):
            return service.current.revision

    try:
        async with asyncio.timeout(PATIENCE):
            revision = await service.threads.following.do(reach)
    except TimeoutError:
        raise Transient(f"the catalog or the store did not answer within {PATIENCE:.0f} s") from None
    return answer({"status": "ready" if revision else "ready, nothing is committed", "revision": revision})


async def metrics(request: Request) -> Response:
    """Return everything measured, in Prometheus' text format."""
    state = request.app.state
    text = await asyncio.to_thread(state.metrics.text, state.service)
    return Response(text, media_type="text/plain; version=0.0.4")
