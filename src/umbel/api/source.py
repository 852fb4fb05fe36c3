"""`@source`: where a dataset's rows come from."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from inspect import signature
from typing import Any, TypeVar, cast

from umbel.api.dataset import Dataset, record_of
from umbel.api.env import Selector, selector
from umbel.api.incoming import Eval, Sample
from umbel.api.place import caller, place
from umbel.connectors.declared import DataConnector, DataSource
from umbel.connectors.table import TableConnector
from umbel.errors import InvalidAttribute, InvalidType, InvalidValue
from umbel.types.durations import parse_duration

CDCS = ("append", "upsert", "debezium", "native")
EVERY = "30m"
OLDER = {"lateness": "disorder", "tier": "env", "cursor": "the cursor= of .table(...)"}
Env = str | Sequence[str] | None
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class SourceRecord:
    """What `@source` was given. Durations are microseconds; see `source`."""

    connector: DataConnector
    disorder: int
    cdc: str
    every: int
    since: datetime | None
    until: datetime | None
    env: Selector
    preproc: Mapping[str, Any]
    idleness: int | None
    where: Eval | Callable[..., Any] | None
    sample: Sample | None
    place: str


def source(
    conn: DataConnector,
    disorder: str,
    cdc: str,
    every: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    env: Env = None,
    preproc: Mapping[str, Any] | None = None,
    bounded: bool = False,
    idleness: str | None = None,
    where: Callable[..., Any] | Eval | None = None,
    sample: float | Sample | None = None,
    **older: Any,
) -> Callable[[T], T]:
    """Let a dataset be fed by a source. Several of them on one dataset all feed it.

    Args:
        conn: a connector: `kafka.topic("t")`.
        disorder: how much older than the newest a row may be; older ones may be dropped.
        cdc: what rows mean: "append" (keyless), "upsert" (keyed), "debezium", or "native" (delta, hudi).
        every: the polling period.
        since: rows before it are ignored.
        until: rows at or after it are ignored.
        env: the environments it is for.
        preproc: how columns are made, by name: `ref(...)`, `eval(...)`, or a constant.
        bounded: whether the source comes to an end.
        idleness: after how long without rows a bounded source is at its end.
        where: which rows are taken: a function from a pandas frame to a Series of bools, or `eval(...)`.
        sample: the share of rows taken.
    """
    _refuse_older(older)
    record = _record(conn, disorder, cdc, every, since, until, env, preproc, bounded, idleness, where, sample)
    return lambda dataset: cast("Any", _fed(dataset, record))


def _record(
    conn: Any,
    disorder: str,
    cdc: Any,
    every: str | None,
    since: Any,
    until: Any,
    env: Env,
    preproc: Mapping[str, Any] | None,
    bounded: bool,
    idleness: str | None,
    where: Any,
    sample: Any,
) -> SourceRecord:
    _check_connector(conn)
    owner = f"source {conn.title}"
    if cdc not in CDCS:
        raise InvalidValue(
            f"{owner}: cdc must be one of {', '.join(map(repr, CDCS))}, found {cdc!r}",
            hint='"append" for keyless datasets, "upsert" for keyed ones',
        )
    conn.check_source(cdc)
    _check_bounds(owner, bounded, idleness)
    if not isinstance(preproc, Mapping | None):
        raise InvalidType(f"{owner}: preproc must be a dict, found {preproc!r:.80}", hint='preproc={"uid": ref("id")}')
    return SourceRecord(
        connector=conn,
        disorder=duration(owner, "disorder", disorder),
        cdc=cdc,
        every=duration(owner, "every", every or EVERY),
        env=selector(env, owner),
        preproc=dict(preproc or {}),
        idleness=None if idleness is None else duration(owner, "idleness", idleness),
        where=where,
        sample=_sample(sample),
        place=place(caller()),
        **period(owner, since, until),
    )


def _refuse_older(older: Mapping[str, Any]) -> None:
    for name in older:
        instead = OLDER.get(name)
        raise InvalidType(
            f"source: unknown argument '{name}'",
            hint=f"use {instead}" if instead else f"arguments: {', '.join(signature(source).parameters)}",
        )


def older_source(
    conn: DataConnector,
    every: str | None = None,
    cursor: str | None = None,
    lateness: str | None = None,
    disorder: str | None = None,
    cdc: str | None = None,
    tier: Env = None,
    env: Env = None,
    **options: Any,
) -> Callable[[T], T]:
    """Let a dataset be fed by a source: the older spelling, of `umbel.sources`.

    Args:
        conn: a connector; a table may come without its cursor.
        every: the polling period.
        cursor: the table's cursor; by default the dataset's timestamp.
        lateness: the disorder.
        disorder: the same.
        cdc: by default "upsert" for keyed and "append" for keyless datasets.
        tier: the environments it is for.
        env: the same.
        options: those of `umbel.connectors.source`.
    """
    for old, value in {"lateness": lateness, "tier": tier, "cursor": cursor}.items():
        if value is not None:
            _deprecated(f"source({old}=)", OLDER[old])
    _deprecated("umbel.sources", "umbel.connectors")
    if cursor is not None and not isinstance(conn, TableConnector):
        raise InvalidType(f"source: cursor is for tables, found {conn!r}", hint="leave it out")
    read = conn if cursor is None else _read_by(conn, cursor)

    def decorate(dataset: T) -> T:
        schema = record_of(cast("Dataset", dataset)).schema
        meant = cdc or ("upsert" if schema.is_keyed else "append")
        disordered = disorder or lateness or "1h"
        chosen = env if env is not None else tier
        return source(_read_by(read, schema.timestamp), disordered, meant, every, env=chosen, **options)(dataset)

    return decorate


def _read_by(conn: DataConnector, cursor: str) -> DataConnector:
    return replace(conn, cursor=cursor) if isinstance(conn, TableConnector) and conn.cursor is None else conn


def _deprecated(old: str, new: str) -> None:
    warnings.warn(f"{old} is an older spelling: use {new}", DeprecationWarning, stacklevel=3)


def _check_connector(conn: Any) -> None:
    if isinstance(conn, DataSource):
        kind = type(conn).__name__
        raise InvalidType(
            f"source: {kind} '{conn.name}' is not a connector: it lacks {conn.needs}", hint="call it on the source"
        )
    if not isinstance(conn, DataConnector):
        raise InvalidType(
            f"source: expected a connector, found {conn!r}", hint='kafka.topic("name"), webhook.endpoint("name"), ...'
        )
    if not conn.is_source:
        raise InvalidType(f"source: {type(conn).__name__} ({conn.title}) cannot be a source", hint="it is for sinks")


def _check_bounds(owner: str, bounded: bool, idleness: Any) -> None:
    if bounded and idleness is None:
        raise InvalidAttribute(f"{owner}: a bounded source needs idleness", hint='bounded=True, idleness="1h"')
    if idleness is not None and not bounded:
        raise InvalidAttribute(f"{owner}: idleness is for bounded sources", hint="bounded=True")


def _sample(sample: Any) -> Sample | None:
    return sample if sample is None or isinstance(sample, Sample) else Sample(sample)


def duration(owner: str, name: str, text: Any) -> int:
    """Return a duration given as an argument; an error names the argument."""
    try:
        return parse_duration(text)
    except (InvalidType, InvalidValue) as error:
        raise type(error)(f"{owner}: {name}: {error.message}", hint=error.hint) from error


def period(owner: str, since: Any, until: Any) -> dict[str, datetime | None]:
    """Return a checked period; times without a zone are UTC."""
    for name, value in {"since": since, "until": until}.items():
        if value is not None and not isinstance(value, datetime):
            raise InvalidType(f"{owner}: {name} must be a datetime, found {value!r}", hint="datetime(2024, 1, 31)")
    start, end = _utc(since), _utc(until)
    if start is not None and end is not None and start > end:
        raise InvalidValue(f"{owner}: since {start} is after until {end}", hint="rows from since up to until are taken")
    return {"since": start, "until": end}


def _utc(instant: datetime | None) -> datetime | None:
    if instant is None:
        return None
    return instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant.astimezone(UTC)


def _fed(dataset: Any, record: SourceRecord) -> Dataset:
    if not isinstance(dataset, Dataset):
        raise InvalidType(f"@source needs a dataset, found {dataset!r}", hint="put @source above @dataset")
    own = record_of(dataset)
    return Dataset(replace(own, sources=(record, *own.sources)))
