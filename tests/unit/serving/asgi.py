"""The application as a transport of httpx: no sockets, one event loop in a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import httpx
from starlette.applications import Starlette

from umbel.catalog.tokens import Role, Tokens
from umbel.runtime.deployment import Deployment
from umbel.serving.app import application
from umbel.serving.policy import Policy


class InProcess(httpx.BaseTransport):
    """Carries requests to an application whose lifespan is running on `loop`; those without a token get one."""

    def __init__(self, app: Starlette, loop: asyncio.AbstractEventLoop, token: str) -> None:
        self._inner, self._loop, self._token = httpx.ASGITransport(app, raise_app_exceptions=False), loop, token

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return asyncio.run_coroutine_threadsafe(self._handle(request), self._loop).result(60)

    async def _handle(self, request: httpx.Request) -> httpx.Response:
        content = b"".join(request.stream)
        if self._token:
            request.headers.setdefault("Authorization", f"Bearer {self._token}")
        copy = httpx.Request(request.method, request.url, headers=request.headers, content=content)
        answer = await self._inner.handle_async_request(copy)
        body = b"".join([part async for part in answer.stream])
        return httpx.Response(answer.status_code, headers=answer.headers, content=body)


def serving_admin(deployment: Deployment) -> AbstractContextManager[InProcess]:
    """Run the application over a deployment, as `http://umbel`, for clients that have an admin's token."""
    token = Tokens(deployment.catalog).create("tests", Role.ADMIN)
    return serving(application(deployment, policy=Policy(allowed_hosts=("umbel",))), token)


@contextmanager
def serving(app: Starlette, token: str = "") -> Iterator[InProcess]:
    """Run an application for the length of a block, for clients that have a token."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    def on_loop(coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result(60)

    lifespan = app.router.lifespan_context(app)
    on_loop(lifespan.__aenter__())
    try:
        yield InProcess(app, loop, token)
    finally:
        on_loop(lifespan.__aexit__(None, None, None))
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
