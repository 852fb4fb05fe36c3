"""What the application adds to a request: CPU beside that of a bare ASGI function which answers the same bytes.

Requests go into the application without a socket, so that neither the network nor the load generator counts. Both take
turns, and the least of some rounds is what each needs.
"""

from __future__ import annotations

import asyncio
import gc
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import orjson

from benchmarks.figure import Figure

FEATURES = "benchmarks.serving_features"
ROUNDS = 12
HEADERS = [(b"host", b"localhost"), (b"content-type", b"application/json")]
App = Callable[[dict[str, Any], Any, Any], Awaitable[None]]


def run() -> list[Figure]:
    """Measure."""
    with tempfile.TemporaryDirectory(prefix="umbel-requests-") as folder:
        return asyncio.run(_measured(Path(folder)))


async def _measured(folder: Path) -> list[Figure]:
    from umbel.cli.loading import definitions
    from umbel.runtime.commit import commit
    from umbel.runtime.deployment import Deployment
    from umbel.serving.app import application

    deployment = Deployment.at(folder / "umbel")
    committed = definitions(FEATURES)
    commit(deployment, committed)
    names = [each.fqn for each in committed.featuresets["Risk"].features]
    data = {names[0]: [1], names[1]: [2], names[2]: [3], names[3]: ["d4"]}
    query = orjson.dumps({"inputs": names[:4], "outputs": names[4:], "data": data})
    app = application(deployment)
    async with app.router.lifespan_context(app):
        gc.collect()
        gc.freeze()
        health = await _compared(app, "GET", "/healthz", b"", 2000)
        one = await _compared(app, "POST", "/api/v1/query", query, 300)
    deployment.store.close()
    deployment.catalog.close()
    return [
        Figure("/healthz, CPU", health[0], "µs", note=f"a bare function takes {health[1]:.1f} µs"),
        Figure("/healthz / bare function", health[0] / health[1], "×", at_most=8),
        Figure("query of 1 row and 20 features, nothing stored, CPU", one[0], "µs"),
        Figure("query / bare function", one[0] / one[1], "×", note=f"a bare function takes {one[1]:.1f} µs"),
    ]


async def _compared(app: App, method: str, path: str, body: bytes, count: int) -> tuple[float, float]:
    """Return the CPU per request of the application and of a bare function, in µs."""
    (_, answered) = await _request(app, method, path, body)

    async def bare(scope: dict[str, Any], receive: Any, send: Any) -> None:
        orjson.loads((await receive())["body"] or b"{}")
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
        await send({"type": "http.response.body", "body": answered})

    spent: dict[App, list[float]] = {app: [], bare: []}
    for _ in range(ROUNDS):
        for each, found in spent.items():
            begun = time.process_time()
            for _ in range(count):
                await _request(each, method, path, body)
            found.append((time.process_time() - begun) / count * 1e6)
    return min(spent[app]), min(spent[bare])


async def _request(app: App, method: str, path: str, body: bytes) -> tuple[int, bytes]:
    """Return the status and the body of an answer."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    client, server = ("127.0.0.1", 1), ("127.0.0.1", 8425)
    scope = {"type": "http", "http_version": "1.1", "scheme": "http", "method": method, "path": path}
    scope |= {"root_path": "", "query_string": b"", "headers": HEADERS, "client": client, "server": server}
    await app(scope, receive, send)
    if sent[0]["status"] != 200:
        raise RuntimeError(f"{method} {path} was answered {sent[0]['status']}: {sent[1]['body']!r:.500}")
    return sent[0]["status"], sent[1]["body"]
