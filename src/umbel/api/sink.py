"""`@sink`: destinations of a dataset's changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar, cast

from umbel.api.caller import caller, location
from umbel.api.dataset import Dataset, record_of, redefined
from umbel.api.source import Env, duration, period
from umbel.api.undecorated import note
from umbel.definitions.arguments import ISOLATE, WAIT, DataConnector, DataSource, Delivery
from umbel.definitions.env import selector
from umbel.definitions.records import SinkDefinition
from umbel.errors import InvalidType, InvalidValue
from umbel.types.arguments import checked_call

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SnapshotData:
    """Write a complete snapshot each time.

    Args:
        marker: the name of the file that marks a snapshot as complete.
        num_retain: the number of snapshots retained.
    """

    marker: str
    num_retain: int


@checked_call
def sink(
    conn: DataConnector,
    cdc: str | None = None,
    every: str | None = None,
    how: str | SnapshotData | None = None,
    renames: Mapping[str, str] | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    env: Env = None,
    refused: str = ISOLATE,
) -> Callable[[T], T]:
    """Declare a sink for a dataset's changes; several sinks each receive all of them.

    Args:
        conn: a connector: `kafka.topic("t")`. A server writes to Kafka, Postgres, Snowflake, Delta on S3 and HTTP endpoints.
        cdc: the form of the changes.
        every: the period.
        how: "incremental".
        renames: the sink's column name by dataset column.
        since: changes before it are not sent.
        until: changes at or after it are not sent.
        env: the environments that select it.
        refused: "isolate" to make dead letters of rows that the destination refuses, "wait" to wait for it.

    Raises:
        InvalidValue: the connector's kind does not support an argument.
    """
    owner = _checked(conn, refused, renames)
    options: dict[str, Any] = {"cdc": cdc} | dict(zip(("since", "until"), period(owner, since, until), strict=True))
    conn.check_sink(Delivery(**options, every=every, how=how, renames=dict(renames or {})))
    record = SinkDefinition(
        **options,
        connector=conn,
        every=None if every is None else duration(owner, "every", every),
        renames=tuple((renames or {}).items()),
        env=selector(env, owner),
        location=location(caller()),
        refused=None if refused == ISOLATE else refused,
    )
    return lambda dataset: cast("Any", _drained(dataset, record))


def _checked(conn: Any, refused: str, renames: Any) -> str:
    if isinstance(conn, DataSource):
        kind = type(conn).__name__
        raise InvalidValue(
            f"sink: {kind} '{conn.name}' is not a connector: it lacks {conn.needs}", hint="call it on the source"
        )
    if not isinstance(conn, DataConnector):
        raise InvalidValue(f"sink: expected a connector, found {conn!r}", hint='kafka.topic("name")')
    if refused not in {ISOLATE, WAIT}:
        reason = f"refused must be '{ISOLATE}' or '{WAIT}', found {refused!r}"
        raise InvalidValue(f"sink to {conn.title}: {reason}", hint='refused="wait"')
    if not isinstance(renames, Mapping | None):
        message = f"sink to {conn.title}: renames must be a dict, found {renames!r:.80}"
        raise InvalidType(message, hint='renames={"field": "column"}')
    return f"sink to {conn.title}"


def _drained(dataset: Any, record: SinkDefinition) -> Any:
    if isinstance(dataset, type):
        return note(dataset, "sink", lambda made: cast("Dataset", _drained(made, record)))
    if not isinstance(dataset, Dataset):
        raise InvalidType(f"@sink needs a dataset, found {dataset!r}", hint="put @sink on a class with @dataset")
    own = record_of(dataset)
    if wrong := _misnamed(own.schema.names, dict(record.renames)):
        raise InvalidValue(
            f"dataset '{own.name}', sink to {record.connector.title}: {wrong}",
            hint='renames={"a field of the dataset": "a column of the sink"}',
        )
    return redefined(dataset, sinks=(record, *own.sinks))


def _misnamed(names: Sequence[str], renames: Mapping[str, Any]) -> str:
    """Return what is wrong with the names of a sink's columns; empty if nothing is."""
    for name, column in renames.items():
        if name not in names:
            return f"unknown column '{name}'"
        if not isinstance(column, str) or not column:
            return f"column '{name}' cannot be named {column!r}"
    twice = [column for column, count in Counter(renames.get(name, name) for name in names).items() if count > 1]
    return f"two fields would be the column '{twice[0]}'" if twice else ""
