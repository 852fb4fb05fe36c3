"""Routes that trace values: to tiles, rows and positions in sources."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, ClassVar

import msgspec
import polars as pl
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from umbel.errors import InvalidValue
from umbel.query.encode import columns_from_json, requested_columns
from umbel.query.session import QueryMode
from umbel.query.trace import MOST_SHOWN, SHOWN, Tracer, trace_query, trace_row
from umbel.runtime.provenance import DeploymentProvenance
from umbel.serving.queries import instant_of, planned
from umbel.serving.refusals import JSON
from umbel.serving.requests import DatasetName, Instant, JsonBody, Names, Rows
from umbel.serving.service import InForce, Service

Shown = Annotated[
    int,
    Meta(
        description="The largest number of rows, and of tiles, in one list.",
        ge=0,
        le=MOST_SHOWN,
        extra={"must be": f"a number from 0 to {MOST_SHOWN}", "hint": f"leave it out for {SHOWN}"},
    ),
]


class FeatureTraceRequest(JsonBody, frozen=True):
    """A query of features for one row, whose values are traced."""

    inputs: Names
    outputs: Names
    data: Rows
    as_of: Instant = None
    rows: Shown = SHOWN

    example: ClassVar = {
        "inputs": ["Origin.origin"],
        "outputs": ["Origin.departures"],
        "data": {"Origin.origin": ["JFK"]},
    }


class RowTraceRequest(JsonBody, frozen=True):
    """The key of a row that is traced."""

    keys: Rows
    as_of: Instant = None
    rows: Shown = SHOWN

    example: ClassVar = {"keys": [{"origin": "JFK"}]}


class TracedTiles(msgspec.Struct, frozen=True):
    """The newest of the tiles of a window: their spans, numbers of rows, and values.

    Of a tile that the instant cuts, the rows up to the instant count.
    """

    window: str
    count: int
    first: list[str]
    last: list[str]
    rows: list[int]
    is_cut: list[bool]
    values: dict[str, list[Any]]


class TracedChanges(msgspec.Struct, frozen=True):
    """The newest of some changes.

    Columns of rows, and for each row its instant, weight, micro-batch and positions.
    """

    of: str
    count: int
    data: dict[str, list[Any]]
    at: list[str]
    weight: list[int]
    batch: list[int | None]
    source: list[list[str]]


class TracedLookup(msgspec.Struct, frozen=True):
    """A looked-up row, with what it is made of."""

    dataset: str
    keys: dict[str, Any]
    at: str | None
    found: bool
    values: dict[str, Any]
    tiles: list[TracedTiles]
    rows: list[TracedChanges]
    computed: list[str]
    joined: list[str]


class TraceResponse(msgspec.Struct, frozen=True):
    """Values of features as of an instant, with a trace of each lookup."""

    at: str
    values: dict[str, Any]
    lookups: list[TracedLookup]


async def trace(request: Request, body: FeatureTraceRequest) -> Annotated[Response, TraceResponse]:
    """Answer a query of one row, and return what its values are made of."""
    in_force, plan = await planned(request, body.inputs, body.outputs, QueryMode.ONLINE)
    at = instant_of(body.as_of)

    def run() -> dict[str, Any]:
        provided = columns_from_json(
            requested_columns(body.values("data", plan.inputs), plan.inputs), plan.inputs, "data"
        )
        height = len(body.data) if isinstance(body.data, list) else len(next(iter(provided.values()), [0]))
        _check_one(height)
        return trace_query(in_force.engine, _tracer(request, in_force, body.rows), plan, provided, at)

    service: Service = request.app.state.service
    return await _answered(service.threads.answering.do, run)  # user code may not return


async def trace_of_row(
    request: Request, name: DatasetName, body: RowTraceRequest
) -> Annotated[Response, TraceResponse]:
    """Look up the row of one key, and return what it is made of."""
    service: Service = request.app.state.service
    in_force = await service.of(request)
    types, at = dict(in_force.dataset(name).schema.keys), instant_of(body.as_of)

    def run() -> dict[str, Any]:
        provided = requested_columns(body.values("keys", types), types, "keys")
        keys = pl.DataFrame(columns_from_json(provided, types, "keys"))
        if types:  # a dataset without keys is refused with its own words
            _check_one(keys.height)
        return trace_row(in_force.engine, _tracer(request, in_force, body.rows), name, keys, at)

    return await _answered(service.threads.reading.do, run)


async def _answered(do: Callable[..., Any], run: Callable[[], dict[str, Any]]) -> Response:
    return Response(msgspec.json.encode(await do(run)), media_type=JSON)


def _tracer(request: Request, in_force: InForce, shown: int) -> Tracer:
    service: Service = request.app.state.service
    provenance = DeploymentProvenance(service.deployment, in_force.revision)
    return Tracer(in_force.graph, service.deployment.store, provenance, in_force.erased, shown)


def _check_one(height: int) -> None:
    if height != 1:
        raise InvalidValue(f"a trace is of one row, found {height}", hint="send one row; query answers many")
