"""User functions that do what they should not, for the row that says so."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sys
import time
from datetime import UTC, datetime, timedelta
from typing import Any

from umbel import connectors
from umbel.connectors import Webhook, source
from umbel.datasets import Count, Dataset, dataset, field, index, pipeline
from umbel.dtypes import Continuous
from umbel.lib import inputs

__owner__ = "tests@example.com"
webhook = Webhook(name="web")
FATAL = ("os_exit", "abort", "segv", "spin", "memory", "limit")
KINDS = ("raise", "exit", "interrupt", "cancel", "mute", *FATAL)


class Mute(Exception):
    """An exception that has no text."""

    def __str__(self) -> str:
        raise KeyError("text")


def act(what: str) -> int:
    """Return the length of a text, unless it is the name of a misdeed."""
    if what == "raise":
        raise LookupError("no such thing")
    if what == "exit":
        sys.exit(3)
    if what == "interrupt":
        raise KeyboardInterrupt
    if what == "cancel":
        raise asyncio.CancelledError("too late")
    if what == "mute":
        raise Mute
    if what == "os_exit":
        os._exit(7)
    if what == "abort":
        os.abort()
    if what == "segv":
        os.kill(os.getpid(), signal.SIGSEGV)
    while what == "spin":
        pass
    while what == "sleep":
        time.sleep(1)
    if what == "memory":
        return len(bytearray(8 << 30))
    if what == "limit":
        resource.setrlimit(resource.RLIMIT_DATA, (8 << 30, 8 << 30))
    return len(what)


def acts(values: Any) -> Any:
    return values.map(act).astype("Int64")


@source(webhook.endpoint("events"), disorder="1d", cdc="append")
@dataset
class Event:
    id: int
    what: str
    at: datetime


@index
@dataset
class Calm:
    id: int = field(key=True)
    events: int
    at: datetime

    @pipeline
    @inputs(Event)
    def calm(cls, events: Dataset):
        return events.groupby("id").aggregate(events=Count(window=Continuous("forever")))


def in_assign() -> Any:
    @dataset
    class Acted:
        id: int
        what: str
        length: int
        at: datetime

        @pipeline
        @inputs(Event)
        def act(cls, events: Dataset):
            return events.assign("length", int, lambda df: acts(df["what"]))

    return Acted


def in_transform() -> Any:
    @dataset
    class Acted:
        id: int
        what: str
        length: int
        at: datetime

        @pipeline
        @inputs(Event)
        def act(cls, events: Dataset):
            return events.transform(
                lambda df: df.assign(length=acts(df["what"])),
                schema={"id": int, "what": str, "length": int, "at": datetime},
            )

    return Acted


def in_filter() -> Any:
    @dataset
    class Acted:
        id: int
        what: str
        at: datetime

        @pipeline
        @inputs(Event)
        def act(cls, events: Dataset):
            return events.filter(lambda df: acts(df["what"]) >= 0)

    return Acted


def in_late() -> Any:
    """Return a dataset that calls it behind a keyed operator, in a later stage."""

    @index
    @dataset
    class Acted:
        what: str = field(key=True)
        id: int
        length: int
        at: datetime

        @pipeline
        @inputs(Event)
        def act(cls, events: Dataset):
            return events.groupby("what").latest().assign("length", int, lambda df: acts(df["what"]))

    return Acted


def in_preproc() -> Any:
    length = connectors.eval(lambda df: acts(df["what"]), schema={"what": str})

    @source(webhook.endpoint("events"), disorder="1d", cdc="append", preproc={"length": length})
    @dataset
    class Acted:
        id: int
        what: str
        length: int
        at: datetime

    return Acted


PLACES = {
    "assign": in_assign,
    "transform": in_transform,
    "filter": in_filter,
    "late": in_late,
    "preproc": in_preproc,
}


def definitions(where: str = "assign") -> list[Any]:
    """Return a dataset of events, one that has nothing to do with `act`, and one that calls it in the place named."""
    return [Event, Calm, PLACES[where]()]


def with_last(definitions: list[Any]) -> list[Any]:
    """Return definitions with a dataset whose pipeline calls `act` behind a keyed operator and before it."""

    @index
    @dataset
    class Last:
        what: str = field(key=True)
        id: int
        length: int
        at: datetime

        @pipeline
        @inputs(Event)
        def last(cls, events: Dataset):
            shown = events.filter(lambda df: df["what"].map(lambda what: what == "os_exit" or act(what) >= 0))
            return shown.groupby("what").latest().assign("length", int, lambda df: acts(df["what"]))

    return [*definitions, Last]


def events(*whats: str, first: int = 0) -> list[dict[str, Any]]:
    """Return one event for each text."""
    start = datetime(2024, 1, 1, tzinfo=UTC)
    return [{"id": first + n, "what": what, "at": start + timedelta(minutes=first + n)} for n, what in enumerate(whats)]
