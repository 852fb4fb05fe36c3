"""Routes of branches, and of erasure, which is per branch."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import msgspec
from starlette.requests import Request

from umbel.query.encode import columns_from_json, columns_of
from umbel.runtime.branches import branches
from umbel.runtime.branches import delete as delete_branch
from umbel.runtime.branches import init as make_branch
from umbel.runtime.erasures import erase as erase_rows
from umbel.runtime.switching import branch_status
from umbel.serving.headers import branch_of
from umbel.serving.requests import DatasetName, JsonBody, OptionalText, Rows, Text
from umbel.serving.service import Service


class InitRequest(JsonBody, frozen=True):
    """A new branch; it is a clone of another, or empty."""

    branch: Text
    clone_from: OptionalText = None

    example: ClassVar = {"branch": "dev", "clone_from": "main"}


class DeleteRequest(JsonBody, frozen=True):
    """The branch to delete."""

    branch: Text

    example: ClassVar = {"branch": "dev"}


class EraseRequest(JsonBody, frozen=True):
    """The erase keys of the rows to erase."""

    erase_keys: Rows

    example: ClassVar = {"erase_keys": [{"tailnum": "N1"}]}


class BranchNames(msgspec.Struct, frozen=True):
    """The names of all branches."""

    branches: list[str]


class RevisionResponse(msgspec.Struct, frozen=True):
    """The revision that the change made."""

    revision: int


class DatasetBackfill(msgspec.Struct, frozen=True):
    """A dataset that is being backfilled: the version to come, and the one that serves."""

    name: str
    version: int
    serving: int | None


class BranchStatus(msgspec.Struct, frozen=True):
    """The serving revision of a branch, its last commit and its backfill progress."""

    branch: str
    state: str
    serving: int
    committed: int
    share: float
    datasets: list[DatasetBackfill]
    message: str
    error: str
    failures: int
    rows_done: int
    rows_total: int
    rows_per_second: float | None
    seconds_left: float | None


async def names(request: Request) -> BranchNames:
    """Return the names of all branches."""
    service: Service = request.app.state.service
    return BranchNames(await asyncio.to_thread(branches, service.deployment))


async def status(request: Request) -> BranchStatus:
    """Return a branch's serving revision, committed revision and backfill progress."""
    service: Service = request.app.state.service
    branch = branch_of(request)

    def run() -> dict[str, Any]:
        service.refresh()
        return branch_status(service.deployment, branch)

    return BranchStatus(**await asyncio.to_thread(run))


async def init(request: Request, body: InitRequest) -> RevisionResponse:
    """Make a branch: empty, or a clone of another, with its data."""
    service: Service = request.app.state.service
    request.state.subject = body.branch
    return await _changed(service, make_branch, body.branch, body.clone_from)


async def delete(request: Request, body: DeleteRequest) -> RevisionResponse:
    """Delete a branch."""
    service: Service = request.app.state.service
    request.state.subject = body.branch
    return await _changed(service, delete_branch, body.branch)


async def erase(request: Request, name: DatasetName, body: EraseRequest) -> RevisionResponse:
    """Erase rows of a dataset by its erase keys."""
    service: Service = request.app.state.service
    in_force = await service.of(request)
    definition = in_force.dataset(name)
    rows, owner = body.values("erase_keys", definition.dtypes), f"erase on dataset '{name}'"
    provided = columns_of(rows, "erase_keys")
    definition.check_erase_keys(list(provided))
    types = {each: definition.dtypes[each] for each in definition.erase_keys}
    keys = columns_from_json(provided, types, owner)
    branch = branch_of(request)
    return await _changed(service, erase_rows, branch, name, keys)


async def _changed(service: Service, change: Any, *args: Any) -> RevisionResponse:
    def run() -> int:
        revision: int = change(service.deployment, *args)
        service.refresh()
        return revision

    return RevisionResponse(await asyncio.to_thread(run))
