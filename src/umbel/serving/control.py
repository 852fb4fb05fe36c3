"""Routes of control: commit, health, metrics, dead letters, secrets."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from umbel.plan.serde import load
from umbel.runtime.commit import commit as put_into_force
from umbel.serving.requests import answer, body_of
from umbel.serving.service import Service


async def commit(request: Request) -> Response:
    """Put definitions into force; with `preview=true` only say what would change."""
    service: Service = request.app.state.service
    data = await body_of(request)
    options = request.query_params

    def run() -> dict[str, object]:
        return put_into_force(
            service.deployment,
            load(data),
            message=options.get("message", ""),
            preview=_is_true(options.get("preview")),
            incremental=_is_true(options.get("incremental")),
            backfill=options.get("backfill", "true") != "false",
        )

    told = await asyncio.to_thread(run)
    service.refresh()
    return answer(told)


async def healthz(_: Request) -> Response:
    """Say that the process lives."""
    return answer({"status": "ok"})


async def readyz(request: Request) -> Response:
    """Say whether queries can be answered."""
    service: Service = request.app.state.service
    service.refresh()
    revision = service.current.revision
    return answer(
        {"status": "ready" if revision else "nothing committed", "revision": revision}, 200 if revision else 503
    )


async def dead_letters(request: Request) -> Response:
    """Return the newest refused records of a dataset."""
    service: Service = request.app.state.service
    limit = min(int(request.query_params.get("n", "100")), 10_000)
    letters = service.deployment.catalog.dead_letters(request.path_params["name"], limit)
    return answer(
        [
            {
                "position": each.position,
                "field": each.field,
                "reason": each.reason,
                "raw": each.raw.decode("utf-8", "backslashreplace"),
                "size": each.size,
                "at": each.at and each.at.isoformat(),
            }
            for each in letters
        ]
    )


async def metrics(request: Request) -> Response:
    """Return everything measured, in Prometheus' text format."""
    return Response(request.app.state.metrics.text(request.app.state.service), media_type="text/plain; version=0.0.4")


def _is_true(text: str | None) -> bool:
    return text is not None and text.lower() in {"1", "true", "yes"}
