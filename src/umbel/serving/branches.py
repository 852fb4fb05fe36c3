"""Routes of branches, and of erasure, which each branch does for itself."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from umbel.errors import InvalidType
from umbel.plan.graph import MAIN
from umbel.query.encode import columns_from_json, columns_of
from umbel.runtime.branches import branches
from umbel.runtime.branches import delete as delete_branch
from umbel.runtime.branches import init as make_branch
from umbel.runtime.erasures import erase as erase_rows
from umbel.serving.requests import BRANCH_HEADER, answer, object_of, text
from umbel.serving.service import Service


async def names(request: Request) -> Response:
    """Return the names of all branches."""
    service: Service = request.app.state.service
    return answer({"branches": await asyncio.to_thread(branches, service.deployment)})


async def init(request: Request) -> Response:
    """Make a branch: empty, or a clone of another, with its data."""
    service: Service = request.app.state.service
    body = await object_of(request, ("branch",))
    origin = text(body, "clone_from") if body.get("clone_from") is not None else None
    return await _changed(service, make_branch, text(body, "branch"), origin)


async def delete(request: Request) -> Response:
    """Delete a branch."""
    service: Service = request.app.state.service
    body = await object_of(request, ("branch",))
    return await _changed(service, delete_branch, text(body, "branch"))


async def erase(request: Request) -> Response:
    """Erase rows of a dataset by its erase keys."""
    service: Service = request.app.state.service
    in_force, name = await service.of(request), request.path_params["name"]
    definition = in_force.engine.dataset(name)
    body = await object_of(request, ("erase_keys",))
    if not body["erase_keys"]:
        raise InvalidType("'erase_keys' must be a list of row objects or an object of columns", hint='[{"uid": 1}]')
    given, owner = columns_of(body["erase_keys"], "erase_keys"), f"erase on dataset '{name}'"
    definition.check_erase_keys(list(given))
    types = {each: definition.dtypes[each] for each in definition.erase_keys}
    keys = columns_from_json(given, types, owner)
    branch = request.headers.get(BRANCH_HEADER, MAIN)
    return await _changed(service, erase_rows, branch, name, keys)


async def _changed(service: Service, change: Any, *args: Any) -> Response:
    def run() -> int:
        revision: int = change(service.deployment, *args)
        service.refresh()
        return revision

    return answer({"revision": await asyncio.to_thread(run)})
