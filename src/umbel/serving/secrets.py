"""Routes of secrets: add, update, delete; none returns a value.

Only user code on the server reads values.
"""

from __future__ import annotations

import asyncio
from typing import ClassVar

import msgspec
from starlette.requests import Request

from umbel.serving.requests import JsonBody, SecretName, Text
from umbel.serving.service import Service


class SecretRequest(JsonBody, frozen=True):
    """The value of a secret."""

    value: Text

    example: ClassVar = {"value": "open sesame"}


class EmptyResponse(msgspec.Struct, frozen=True):
    """Nothing: the request was executed."""


async def add_secret(request: Request, name: SecretName, body: SecretRequest) -> EmptyResponse:
    """Store a secret under a new name."""
    service: Service = request.app.state.service
    await asyncio.to_thread(service.vault.add, name, body.value)
    return EmptyResponse()


async def update_secret(request: Request, name: SecretName, body: SecretRequest) -> EmptyResponse:
    """Change a secret."""
    service: Service = request.app.state.service
    await asyncio.to_thread(service.vault.update, name, body.value)
    return EmptyResponse()


async def delete_secret(request: Request, name: SecretName) -> EmptyResponse:
    """Delete a secret."""
    service: Service = request.app.state.service
    await asyncio.to_thread(service.vault.delete, name)
    return EmptyResponse()
