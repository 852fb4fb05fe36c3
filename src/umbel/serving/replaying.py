"""The route that processes dead letters again."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta
from starlette.requests import Request

from umbel.catalog.replays import LetterFilter
from umbel.errors import InvalidValue
from umbel.runtime.replays import ReplayReport, replay_letters
from umbel.serving.requests import DatasetName, JsonBody, OptionalText
from umbel.serving.service import Service
from umbel.types.epochs import in_utc


class ReplayRequest(JsonBody, frozen=True):
    """The dead letters to process again, of all reasons, sources and times unless given."""

    dry_run: Annotated[bool, Meta(extra={"must be": "true or false"})]
    reason: OptionalText = None
    source: Annotated[Annotated[int, Meta(ge=0, le=1000)] | None, Meta(extra={"must be": "an ordinal from 0 on"})] = (
        None
    )
    since: OptionalText = None
    until: OptionalText = None

    example: ClassVar = {"reason": "is ahead of", "dry_run": True}


class ReplayResponse(msgspec.Struct, frozen=True):
    """The number of the replay, of its records, and of those left out, by reason."""

    replay: int | None
    count: int
    left_out: dict[str, int]


async def replay_dead_letters(request: Request, name: DatasetName, body: ReplayRequest) -> ReplayResponse:
    """Process dead letters of a dataset again, each once, or count them."""
    service: Service = request.app.state.service
    in_force = await service.of(request)
    in_force.dataset(name)
    letters = LetterFilter(
        dataset=name,
        reason=body.reason,
        source=body.source,
        since=_instant(body.since),
        until=_instant(body.until),
    )

    def run() -> ReplayReport:
        return replay_letters(service.deployment, letters, in_force.names(name), dry_run=body.dry_run)

    report = await asyncio.to_thread(run)
    return ReplayResponse(report.number, report.count, dict(report.left_out))


def _instant(text: str | None) -> datetime | None:
    """Return an instant of a request in UTC; one without a zone is."""
    if text is None:
        return None
    try:
        return in_utc(datetime.fromisoformat(text))
    except (ValueError, OverflowError):
        raise InvalidValue(f"expected an instant, found {text!r:.100}", hint="2026-03-01T12:00:00Z") from None
