"""`@sink`: where a dataset's changes go."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypeVar, cast

from umbel.api.dataset import Dataset, record_of
from umbel.api.env import Selector, selector
from umbel.api.place import caller, place
from umbel.api.source import Env, duration, period
from umbel.connectors.declared import DataConnector, DataSource, Delivery
from umbel.errors import InvalidType, InvalidValue

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SnapshotData:
    """Write a whole snapshot each time.

    Args:
        marker: the name of the file that says a snapshot is complete.
        num_retain: how many snapshots are kept.
    """

    marker: str
    num_retain: int


@dataclass(frozen=True, kw_only=True)
class SinkRecord:
    """What `@sink` was given; see `sink`."""

    connector: DataConnector
    cdc: str | None
    every: int | None
    how: str
    renames: Mapping[str, str]
    since: datetime | None
    until: datetime | None
    env: Selector
    place: str


def sink(
    conn: DataConnector,
    cdc: str | None = None,
    every: str | None = None,
    how: str | SnapshotData | None = None,
    renames: Mapping[str, str] | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    env: Env = None,
) -> Callable[[T], T]:
    """Let a dataset's changes go to a sink. Several of them on one dataset all get them.

    Args:
        conn: a connector: `kafka.topic("t")`.
        cdc: the form of the changes.
        every: the period.
        how: "incremental".
        renames: the sink's column for a dataset's column.
        since: changes before it are not sent.
        until: changes at or after it are not sent.
        env: the environments it is for.

    Raises:
        InvalidValue: the connector's kind does not support an argument.
    """
    _check_connector(conn)
    owner = f"sink to {conn.title}"
    times = period(owner, since, until)
    conn.check_sink(Delivery(cdc=cdc, every=every, how=how, renames=dict(renames or {}), **times))
    record = SinkRecord(
        connector=conn,
        cdc=cdc,
        every=None if every is None else duration(owner, "every", every),
        how="incremental",
        renames=dict(renames or {}),
        env=selector(env, owner),
        place=place(caller()),
        **times,
    )
    return lambda dataset: cast("Any", _drained(dataset, record))


def _check_connector(conn: Any) -> None:
    if isinstance(conn, DataSource):
        kind = type(conn).__name__
        raise InvalidValue(
            f"sink: {kind} '{conn.name}' is not a connector: it lacks {conn.needs}", hint="call it on the source"
        )
    if not isinstance(conn, DataConnector):
        raise InvalidValue(f"sink: expected a connector, found {conn!r}", hint='kafka.topic("name")')


def _drained(dataset: Any, record: SinkRecord) -> Dataset:
    if not isinstance(dataset, Dataset):
        raise InvalidType(f"@sink needs a dataset, found {dataset!r}", hint="put @sink above @dataset")
    own = record_of(dataset)
    for name in record.renames:
        if name not in own.schema.names:
            raise InvalidValue(
                f"dataset '{own.name}', sink to {record.connector.title}: unknown column '{name}'",
                hint='renames={"a field of the dataset": "a column of the sink"}',
            )
    return Dataset(replace(own, sinks=(record, *own.sinks)))
