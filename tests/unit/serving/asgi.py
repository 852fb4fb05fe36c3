"""The application as a transport of httpx: no sockets, one event loop in a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
from starlette.applications import Starlette


class InProcess(httpx.BaseTransport):
    """Carries requests to an application whose lifespan is running on `loop`."""

    def __init__(self, app: Starlette, loop: asyncio.AbstractEventLoop) -> None:
        self._inner, self._loop = httpx.ASGITransport(app, raise_app_exceptions=False), loop

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return asyncio.run_coroutine_threadsafe(self._handle(request), self._loop).result(60)

    async def _handle(self, request: httpx.Request) -> httpx.Response:
        content = b"".join(request.stream)
        copy = httpx.Request(request.method, request.url, headers=request.headers, content=content)
        answer = await self._inner.handle_async_request(copy)
        body = b"".join([part async for part in answer.stream])
        return httpx.Response(answer.status_code, headers=answer.headers, content=body)


@contextmanager
def serving(app: Starlette) -> Iterator[InProcess]:
    """Run an application for the length of a block."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    def on_loop(coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result(60)

    lifespan = app.router.lifespan_context(app)
    on_loop(lifespan.__aenter__())
    try:
        yield InProcess(app, loop)
    finally:
        on_loop(lifespan.__aexit__(None, None, None))
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
