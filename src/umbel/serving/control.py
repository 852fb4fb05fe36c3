"""Routes for operators: commit, health, progress and metrics."""

from __future__ import annotations

import asyncio
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from umbel.catalog.tokens import Role
from umbel.definitions.credentials import without_credentials
from umbel.definitions.records import Definitions
from umbel.definitions.serde import dump, load
from umbel.errors import InvalidValue, Transient, UmbelError
from umbel.request_errors import Unhealthy
from umbel.runtime.commit import commit as put_into_force
from umbel.runtime.commit_plan import CommitPlan
from umbel.runtime.commit_plan import plan as plan_of
from umbel.runtime.freshness import Lag, lags
from umbel.runtime.health import as_plain, health
from umbel.runtime.processed import processed
from umbel.serving.branches import BranchStatus
from umbel.serving.headers import branch_of
from umbel.serving.refusals import described, refusal
from umbel.serving.requests import PROTOBUF, REVISION_HEADER, TEXT, Parameters, answer
from umbel.serving.service import Service

PATIENCE = 5.0
"""Seconds within which the catalog and the store must answer for the server to be ready."""


class CommitParameters(Parameters, frozen=True):
    """The options of a commit."""

    message: str = ""
    preview: Annotated[bool, Meta(description="Only return the difference.")] = False
    incremental: Annotated[bool, Meta(description="The definitions are added to those in force.")] = False
    backfill: Annotated[bool, Meta(description="Pipelines may be computed from history.")] = True
    base: Annotated[
        int | None,
        Meta(description="The revision that an incremental commit was made from; refused if there is a later one."),
    ] = None
    env: Annotated[str | None, Meta(description="For which the client selected the definitions.")] = None


class PlanParameters(Parameters, frozen=True):
    """The options of the commit that is planned; they are those of a commit."""

    incremental: Annotated[bool, Meta(description="The definitions are added to those in force.")] = False
    backfill: Annotated[bool, Meta(description="Pipelines may be computed from history.")] = True
    base: Annotated[int | None, Meta(description="The revision that an incremental commit was made from.")] = None


class CommitReport(msgspec.Struct, frozen=True):
    """The result of a commit: revision (null for a preview), differences and backfills."""

    revision: int | None
    new: list[str]
    changed: list[str]
    removed: list[str]
    unchanged: list[str]
    recomputed: list[str]
    serving: int
    status: list[BranchStatus]


class DefinitionParameters(Parameters, frozen=True):
    """The commit whose definitions are requested."""

    serving: Annotated[bool, Meta(description="The one that serves, while the last one is being backfilled.")] = False


class ProgressParameters(Parameters, frozen=True):
    """The webhook's endpoint whose rows are reported; both or neither."""

    webhook: str | None = None
    endpoint: str | None = None


class ProgressReport(msgspec.Struct, frozen=True):
    """The progress of processing: running and serving revision, backfill, rows, worker."""

    revision: int
    serving: int
    backfill: str | None
    rows: int | None
    status: BranchStatus
    worker: str
    worker_reason: str


class Liveness(msgspec.Struct, frozen=True):
    """The process is alive."""

    status: str = "ok"


class ReadinessParameters(Parameters, frozen=True):
    """The depth of the check."""

    deep: Annotated[bool | None, Meta(description="Also check the worker and the lag; `?deep` alone is true.")] = None


class WorkerHealth(msgspec.Struct, frozen=True):
    """The health of the worker; instants are seconds since the epoch, null for never."""

    state: str
    reason: str
    process: int | None
    seen_at: float | None
    batch: int | None
    batch_at: float | None
    doing: str
    restarts: int
    last_failure: str
    is_needed: bool
    is_healthy: bool


class EndpointLag(msgspec.Struct, frozen=True):
    """Accepted events that are not processed, and how long the oldest has waited."""

    rows: int
    bytes: int
    seconds: float


class TotalLag(EndpointLag, frozen=True):
    """The lag of all endpoints together, and of each."""

    endpoints: dict[str, EndpointLag]


class Readiness(msgspec.Struct, frozen=True):
    """The readiness of the server, with `deep` also of the worker."""

    status: str
    revision: int
    backfilling: list[str] | UnsetType = UNSET
    worker: WorkerHealth | UnsetType = UNSET
    lag: TotalLag | UnsetType = UNSET
    code: str | UnsetType = UNSET
    message: str | UnsetType = UNSET
    hint: str | UnsetType | None = UNSET


async def commit(request: Request, parameters: CommitParameters, body: bytes) -> CommitReport:
    """Commit definitions; with `preview=true` only return the difference."""
    service: Service = request.app.state.service
    branch = branch_of(request)

    def run() -> CommitReport:
        report = put_into_force(
            service.deployment,
            _loaded(body),
            branch=branch,
            message=parameters.message,
            preview=parameters.preview,
            incremental=parameters.incremental,
            backfill=parameters.backfill,
            base=parameters.base,
        )
        service.refresh()
        return CommitReport(**{**report, "status": [BranchStatus(**each) for each in report["status"]]})

    return await asyncio.to_thread(run)


async def plan(request: Request, parameters: PlanParameters, body: bytes) -> CommitPlan:
    """Return the effects of a commit, by its own rules, and change nothing."""
    service: Service = request.app.state.service
    branch = branch_of(request)

    def run() -> CommitPlan:
        options = msgspec.structs.asdict(parameters)
        return plan_of(service.deployment, _loaded(body), branch=branch, **options)

    return await asyncio.to_thread(run)


def _loaded(data: bytes) -> Definitions:
    """Return the definitions in a body."""
    try:
        return load(data)
    except UmbelError:
        raise
    except Exception as error:  # unpickled classes of the client's may raise anything
        report = f"{type(error).__name__}: {error}"
        raise InvalidValue(
            f"these bytes are not definitions: {report:.500}",
            hint="commit by umbel.client.Client or `umbel commit`, with the server's versions of umbel and Python",
        ) from error


async def definitions(request: Request, parameters: DefinitionParameters) -> Annotated[Response, PROTOBUF]:
    """Return the committed definitions, in the format that `commit` accepts.

    With `serving=true` return those that serve while the last commit is being backfilled. Credentials of sources are left out for
    who may not commit.
    """
    service: Service = request.app.state.service
    if not parameters.serving:
        await service.threads.following.do(service.refresh)  # a commit may be made from them
    in_force = await service.of(request)
    later = None if parameters.serving and in_force.revision else in_force.committed
    found = in_force.definitions if later is None else later.engine.definitions
    if request.scope["umbel.principal"].role < Role.ADMIN:
        found = without_credentials(found)
    data = await asyncio.to_thread(dump, found)
    revision = in_force.revision if later is None else later.revision
    headers = {REVISION_HEADER: str(revision), "X-UMBEL-SERVING": str(in_force.revision)}
    return Response(data, media_type=PROTOBUF, headers=headers)


async def healthz(_: Request) -> Liveness:
    """Report that the process is alive."""
    return Liveness()


async def readyz(request: Request, parameters: ReadinessParameters) -> Annotated[Response, Readiness]:
    """Check that requests can be answered: catalog and store are reachable.

    With `?deep` also check that events are processed: the health of the worker, and the lag. A server on another machine than
    the worker's cannot see these, and leaves them out.
    """
    service: Service = request.app.state.service

    def ping() -> tuple[int, list[str]]:
        service.refresh()
        with service.deployment.store.snapshot(0):
            return service.current.revision, service.backfilling()

    try:
        async with asyncio.timeout(PATIENCE):
            revision, report = await service.threads.following.do(ping)
    except TimeoutError:
        raise Transient(f"the catalog or the store did not answer within {PATIENCE:.0f} s") from None
    status = "ready" if revision or report else "ready, nothing is committed"
    ready = Readiness(status, revision, report or UNSET)
    if "deep" not in request.query_params or parameters.deep is False:
        return answer(ready)
    return await _deep(service, ready)


async def _deep(service: Service, ready: Readiness) -> Response:
    def look() -> tuple[Readiness, list[str]]:
        if service.deployment.is_away:
            return ready, []
        behind = lags(service.deployment)
        worker = health(service.deployment, service.limits, Lag.total(behind.values()))
        wrong = [] if worker.is_healthy else [f"the worker is {worker}"]
        deep = msgspec.structs.replace(
            ready, worker=WorkerHealth(**worker.plain), lag=msgspec.convert(as_plain(behind), TotalLag)
        )
        return deep, [*wrong, *service.backlog.reasons]

    try:
        async with asyncio.timeout(PATIENCE):
            content, wrong = await asyncio.to_thread(look)
    except TimeoutError:
        raise Transient(f"how the worker does could not be found out within {PATIENCE:.0f} s") from None
    if not wrong:
        return answer(content)
    error = Unhealthy("; ".join(wrong), hint="see the worker's log below logs/, and umbel doctor")
    return refusal(
        error, msgspec.structs.replace(content, status="not healthy", **msgspec.structs.asdict(described(error)))
    )


async def progress(request: Request, parameters: ProgressParameters) -> ProgressReport:
    """Return the progress of processing: running revision, backfill, rows of an endpoint."""
    service: Service = request.app.state.service
    webhook, endpoint = parameters.webhook, parameters.endpoint
    branch = branch_of(request)
    if (webhook is None) != (endpoint is None):
        raise InvalidValue("webhook and endpoint go together", hint="?webhook=…&endpoint=…, or neither")
    if webhook is not None and endpoint is not None:
        await service.endpoint(webhook, endpoint)  # refused where there is no such one

    def look() -> ProgressReport:
        found, worker = (
            processed(service.deployment, branch, webhook, endpoint),
            health(service.deployment, service.limits),
        )
        status = BranchStatus(**found["status"])
        return ProgressReport(**{**found, "status": status}, worker=worker.state, worker_reason=worker.reason)

    return await asyncio.to_thread(look)


async def metrics(request: Request) -> Annotated[Response, TEXT]:
    """Return all metrics, in Prometheus' text format."""
    state = request.app.state
    text = await asyncio.to_thread(state.metrics.text, state.service)
    return Response(text, media_type="text/plain; version=0.0.4")
