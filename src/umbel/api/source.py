"""`@source`: sources of a dataset's rows."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from umbel.api.caller import caller, location
from umbel.api.dataset import Dataset, record_of, redefined
from umbel.api.flags import check_flags
from umbel.api.incoming import Eval, Ref, Sample
from umbel.api.preproc import Incoming
from umbel.api.undecorated import note
from umbel.connectors.table import TableConnector
from umbel.definitions.arguments import DataConnector, DataSource
from umbel.definitions.env import selector
from umbel.definitions.records import DatasetDefinition, SourceDefinition
from umbel.errors import InvalidAttribute, InvalidType, InvalidValue, did_you_mean
from umbel.types import epochs
from umbel.types.arguments import checked_call
from umbel.types.dtypes import Datetime
from umbel.types.durations import parse_duration

if TYPE_CHECKING:
    from umbel.transform.configuration import Configuration
    from umbel.transform.incoming import TransformedRows

CDCS = ("append", "upsert", "debezium", "native")
EVERY = "30m"
OLDER = {"lateness": "disorder", "tier": "env", "cursor": "the cursor= of .table(...)"}
Env = str | Sequence[str] | None
T = TypeVar("T")


@checked_call
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
    transform: str | Path | Configuration | None = None,
    **older: Any,
) -> Callable[[T], T]:
    """Declare a source of a dataset's rows.

    With several sources on one dataset, all of them feed it.

    Args:
        conn: a connector: `kafka.topic("t")`.
        disorder: the maximum lag of a row behind the newest timestamp; older rows may be dropped.
        cdc: the meaning of rows: "append" (keyless), "upsert" (keyed), "debezium", or "native" (the format's own; if it
            has none, "append" or "upsert").
        every: the polling period.
        since, until: rows before `since`, and at or after `until`, are ignored.
        env: the environments that select it.
        preproc: column builders by name: `ref(...)`, `eval(...)`, or a constant.
        bounded: True if the source ends.
        idleness: the time without rows after which a bounded source has ended.
        where: a function from a frame to a Series of bools, or `eval(...)`; rows where it is false or null are left out.
        sample: the share of rows ingested.
        transform: a configuration of `umbel transform`, or its file, for rows before preproc.
    """
    _refuse_older(older)
    record = _record(conn, disorder, cdc, every, since, until, env, preproc, bounded, idleness, where, sample)
    if transform is not None:
        record = replace(record, transform=_transform(record, transform))
    return lambda dataset: cast("Any", _applied(dataset, lambda made: _fed(made, record)))


def _record(
    conn: Any,
    disorder: str,
    cdc: Any,
    every: str | None = None,
    since: Any = None,
    until: Any = None,
    env: Env = None,
    preproc: Mapping[str, Any] | None = None,
    bounded: bool = False,
    idleness: str | None = None,
    where: Any = None,
    sample: Any = None,
) -> SourceDefinition:
    _check_connector(conn)
    subject = f"source {conn.title}"
    if cdc not in CDCS:
        raise InvalidValue(
            f"{subject}: cdc must be one of {', '.join(map(repr, CDCS))}, found {cdc!r}",
            hint='"append" for keyless datasets, "upsert" for keyed ones',
        )
    conn.check_source(cdc)
    _check_bounds(subject, bounded, idleness)
    if not isinstance(preproc, Mapping | None):
        raise InvalidType(f"{subject}: preproc must be a dict, found {preproc!r:.80}", hint='{"uid": ref("id")}')
    _check_references(subject, conn, preproc or {})
    start, end = period(subject, since, until)
    return SourceDefinition(
        connector=conn,
        disorder=duration(subject, "disorder", disorder),
        cdc=cdc,
        every=duration(subject, "every", EVERY if every is None else every),
        idleness=None if idleness is None else duration(subject, "idleness", idleness),
        location=location(caller()),
        env=selector(env, subject),
        declared=Incoming(dict(preproc or {}), where, _sample(sample)),
        since=start,
        until=end,
    )


def _transform(record: SourceDefinition, config: Any) -> TransformedRows:
    """Return the transformation of a source's rows.

    Raises:
        UmbelError: the configuration is faulty, or cannot be that of a source.
    """
    from umbel.transform.incoming import TransformedRows

    subject = f"source {record.connector.title}: transform"
    if record.cdc == "debezium":
        raise InvalidValue(f"{subject}: it cannot be used with cdc 'debezium'", hint='cdc="upsert", or preproc')
    return TransformedRows.of(config, subject)


def _check_references(subject: str, conn: DataConnector, preproc: Mapping[str, Any]) -> None:
    for name, value in preproc.items():
        if not isinstance(value, Ref):
            continue
        value.check(f"{subject}: preproc of field '{name}'")
        if len(value.path) > 1 and not conn.nests:
            raise InvalidValue(
                f"{subject}: preproc of field '{name}': ref('{value.name}') leads into nested data, which {conn.title} "
                "has none of",
                hint="S3, Kinesis and PubSub with json, Kafka with json, Avro or Protobuf have",
            )


def _refuse_older(older: Iterable[str]) -> None:
    known = [name for name in signature(source).parameters if name != "older"]
    for name in older:
        instead, close = OLDER.get(name), did_you_mean(name, known)
        raise InvalidType(
            f"source: unknown argument '{name}'{'' if instead else close}",
            hint=f"use {instead}" if instead else f"arguments: {', '.join(known)}",
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
    """Declare a source in the older spelling, of `umbel.sources`.

    Args:
        conn: a connector; a table's cursor is optional.
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
    _check_cursor(conn, cursor)
    _refuse_older(options.keys() - signature(source).parameters)
    read = conn if cursor is None else _read_by(conn, cursor)
    options |= {"every": every, "env": env if env is not None else tier}
    known = _record(_read_by(read, "?"), disorder or lateness or "1h", cdc or "upsert", **options)

    def completed(dataset: Any) -> Dataset:
        schema = _checked(dataset).schema
        meant = cdc or ("upsert" if schema.is_keyed else "append")
        return _fed(dataset, replace(known, connector=_read_by(read, schema.timestamp), cdc=meant))

    return lambda dataset: cast("Any", _applied(dataset, completed))


def _check_cursor(conn: Any, cursor: str | None) -> None:
    if cursor is not None and not isinstance(conn, TableConnector):
        raise InvalidType(f"source: cursor is for tables, found {conn!r}", hint="leave it out")


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


def _check_bounds(subject: str, bounded: bool, idleness: Any) -> None:
    check_flags(subject, bounded=bounded)
    if bounded and idleness is None:
        raise InvalidAttribute(f"{subject}: a bounded source needs idleness", hint='bounded=True, idleness="1h"')
    if idleness is not None and not bounded:
        raise InvalidAttribute(f"{subject}: idleness is for bounded sources", hint="bounded=True")


def _sample(sample: Any) -> Sample | None:
    return sample if sample is None or isinstance(sample, Sample) else Sample(sample)


def duration(subject: str, name: str, text: Any) -> int:
    """Return a duration argument in µs; an error names the argument."""
    try:
        return parse_duration(text)
    except (InvalidType, InvalidValue) as error:
        raise error.restated(f"{subject}: {name}: {error.message}", hint=error.hint) from error


def period(subject: str, since: Any, until: Any) -> tuple[datetime | None, datetime | None]:
    """Return a checked period; times without a zone are UTC."""
    for name, value in {"since": since, "until": until}.items():
        if value is not None and not isinstance(value, datetime):
            raise InvalidType(f"{subject}: {name} must be a datetime, found {value!r}", hint="datetime(2024, 1, 31)")
        if value is not None and Datetime().convert_objects([value]).errors:
            raise InvalidValue(f"{subject}: {name} {value}: {epochs.YEARS}", hint="leave it out, or give another")
    start, end = (None if each is None else epochs.in_utc(each) for each in (since, until))
    if start is not None and end is not None and start > end:
        raise InvalidValue(
            f"{subject}: since {start} is after until {end}", hint="rows from since up to until are taken"
        )
    return start, end


def _applied(decorated: Any, feed: Callable[[Any], Dataset]) -> Any:
    return note(decorated, "source", feed) if isinstance(decorated, type) else feed(decorated)


def _fed(dataset: Any, record: SourceDefinition) -> Dataset:
    return redefined(dataset, sources=(record, *_checked(dataset).sources))


def _checked(dataset: Any) -> DatasetDefinition:
    if not isinstance(dataset, Dataset):
        raise InvalidType(f"@source needs a dataset, found {dataset!r}", hint="put @source on a class with @dataset")
    return record_of(dataset)
