"""Routes of secrets."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from umbel.serving.requests import answer, object_of, text
from umbel.serving.service import Service


async def get_secret(request: Request) -> Response:
    """Return a secret."""
    service: Service = request.app.state.service
    value = await asyncio.to_thread(service.vault.get, request.path_params["name"])
    return answer({"value": value}, headers={"Cache-Control": "no-store"})


async def add_secret(request: Request) -> Response:
    """Keep a secret under a new name."""
    service: Service = request.app.state.service
    value = text(await object_of(request, ("value",)), "value")
    await asyncio.to_thread(service.vault.add, request.path_params["name"], value)
    return answer({})


async def update_secret(request: Request) -> Response:
    """Change a secret."""
    service: Service = request.app.state.service
    value = text(await object_of(request, ("value",)), "value")
    await asyncio.to_thread(service.vault.update, request.path_params["name"], value)
    return answer({})


async def delete_secret(request: Request) -> Response:
    """Forget a secret."""
    service: Service = request.app.state.service
    await asyncio.to_thread(service.vault.delete, request.path_params["name"])
    return answer({})
