"""Row ingestion: preproc, where, validation, since, until and sample.

It is the same in every runner.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

import polars as pl

from umbel.definitions.preproc import Evaluated, ReferenceColumn
from umbel.definitions.records import DatasetDefinition, Sampling, SourceDefinition
from umbel.ingestion.debezium import INSTANT, open_messages, validate_deletions
from umbel.state.keys import encode_keys, shard_of
from umbel.types.dtype import nulls
from umbel.types.dtypes import Bool, DType, Optional
from umbel.types.raw import TOMBSTONE, Raw, rejects
from umbel.types.schema import AT, REPLACING, TRUNCATION, WEIGHT
from umbel.types.validate import Validated, validate

_FED_BY_OTHERS = (
    "the table was truncated: its rows stay, since the dataset also has rows from elsewhere; commit it as a new version to "
    "begin anew"
)
SAMPLES = 1 << 20
"""The number of equal hash buckets of rows; a sample consists of the rows in the first buckets."""


def requested(source: SourceDefinition, dataset: DatasetDefinition) -> dict[str, DType]:
    """Return the columns to read for a source, with their types.

    Empty for all columns, untyped.
    """
    return {} if _is_unknown(source) else _typed(source, dataset)


def needed(source: SourceDefinition, dataset: DatasetDefinition) -> set[str]:
    """Return the columns that are read of a source's rows; empty where it is unknown."""
    if _is_unknown(source):
        return set()
    copied = {how.path[0] for _, how in source.preproc if isinstance(how, ReferenceColumn)}
    return copied | set(_typed(source, dataset))


def _is_unknown(source: SourceDefinition) -> bool:
    """Return True if the columns of incoming rows do not follow from the dataset."""
    return source.cdc == "debezium" or source.transform is not None


def _typed(source: SourceDefinition, dataset: DatasetDefinition) -> dict[str, DType]:
    """Return the columns that preproc, where and validation read, with their types."""
    hows = [how for _, how in source.preproc if isinstance(how, Evaluated)]
    if source.where is not None:
        hows.append(source.where)
    made_here = dict(source.preproc)
    reads = {name: dtype for how in hows for name, dtype in how.reads if name not in made_here}
    return {**reads, **_untouched(source, dataset)}


def _key_columns(source: SourceDefinition, dataset: DatasetDefinition) -> Iterator[str]:
    """Yield the columns of which preproc makes the keys."""
    made_here = dict(source.preproc)
    for name in dataset.schema.key_names:
        how = made_here.get(name)
        if isinstance(how, Evaluated):
            yield from (each for each, _ in how.reads)
        else:
            yield how.path[0] if isinstance(how, ReferenceColumn) else name


def prepare(raw: Raw, source: SourceDefinition, dataset: DatasetDefinition) -> Validated:
    """Convert raw rows of a source to rows of its dataset.

    Args:
        raw: the raw rows; they are not modified, so that other datasets can read them too.
        source: the source, with its preproc, where and sample.
        dataset: the dataset whose schema they must fit.

    Returns:
        The accepted rows, with `_at` and `_weight` if some are deletions. Rows that are filtered out are in neither
        part: rows that do not satisfy `where` whether they are valid or not, others if they are valid.
    """
    if source.transform is None:
        return _prepared(raw, source, dataset)
    made, numbers = source.transform.made(raw, _typed(source, dataset), list(_key_columns(source, dataset)))
    found = _prepared(made, source, dataset)
    origins = numbers.gather(found.rejects["row"]).cast(pl.Int64)
    return replace(
        found, accepted=numbers.gather(found.accepted), rejects=found.rejects.with_columns(origins.alias("row"))
    )


def _prepared(raw: Raw, source: SourceDefinition, dataset: DatasetDefinition) -> Validated:
    opened = _opened(raw, source, dataset)
    found = _judged(opened, source, dataset)
    return found if opened.numbers is None else _by_message(found, opened.numbers)


def _judged(opened: _Rows, source: SourceDefinition, dataset: DatasetDefinition) -> Validated:
    rows = _preprocessed(opened, source, dataset)
    rows, condition = _condition_columns(rows, source, dataset)
    rows, condition = _without_left(rows, condition, source)
    validated = _in_sample(_validated(rows, dataset), rows, source, dataset)
    chosen = pl.all_horizontal(*_conditions(validated, condition, source, dataset))
    mask = validated.frame.select(chosen.alias("mask"))["mask"]
    found = _of_chosen(validated.rejects, rows, condition, source)
    if source.cdc == "debezium":  # each deletion is followed by a tombstone, for compaction: nothing is lost with it
        found = found.filter(pl.col("reason") != TOMBSTONE)
    if mask.all():
        return Validated(validated.frame, validated.accepted, found)
    return Validated(validated.frame.filter(mask), validated.accepted.filter(mask), found)


def _by_message(found: Validated, numbers: pl.Series) -> Validated:
    """Return rows by the numbers of their messages.

    A message has none if one of its rows is rejected.
    """
    refused = numbers.gather(found.rejects["row"])
    accepted = numbers.gather(found.accepted)
    is_whole = ~accepted.is_in(refused.implode())
    letters = found.rejects.with_columns(refused.cast(pl.Int64).alias("row")).unique(maintain_order=True)
    return Validated(found.frame.filter(is_whole), accepted.filter(is_whole), letters)


@dataclass(frozen=True)
class _Rows:
    """Rows being ingested.

    Args:
        frame: their columns.
        rejects: the rejected records.
        deletions: row number of a deletion to its instant.
        updates: row number of an update of a key's row to its instant, if rows may be left out.
        starts: instants before which rows are not in force, null for none.
        replaces: mask of the changes that end what their key had before them; None for none.
        truncations: row number of a truncation to its instant.
        is_sparse: True if an absent column is null.
        has_keys: True if a deletion is one of a key, else of a whole row.
        numbers: the number of the message of each row; None where each is one.
    """

    frame: pl.DataFrame
    rejects: pl.DataFrame
    deletions: Mapping[int, datetime | None] = field(default_factory=dict)
    updates: Mapping[int, datetime | None] = field(default_factory=dict)
    starts: pl.Series | None = None
    replaces: pl.Series | None = None
    truncations: Mapping[int, datetime] = field(default_factory=dict)
    is_sparse: bool = False
    has_keys: bool = True
    numbers: pl.Series | None = None

    def blaming(self, field: str, errors: Mapping[int, str]) -> _Rows:
        """Return the rows with further rejected records.

        Deletions by key, truncations and records that are no rows are left out. Of such deletions only the keys are checked.
        """
        out = set(self.rejects.filter(pl.col("field") == "")["row"].to_list()) if errors else ()
        found = {row: why for row, why in errors.items() if row not in self.endings and row not in out}
        return replace(self, rejects=pl.concat([self.rejects, rejects(found, field)])) if found else self

    @property
    def endings(self) -> Mapping[int, datetime | None]:
        """The deletions by key, and the truncations."""
        deletions = self.deletions if self.has_keys else {}
        return {**deletions, **self.truncations} if self.truncations else deletions


def _opened(raw: Raw, source: SourceDefinition, dataset: DatasetDefinition) -> _Rows:
    has_keys = dataset.schema.is_keyed
    may_end = has_keys and (source.where is not None or source.sample is not None)
    if source.cdc != "debezium":
        is_fed_alone = len(dataset.sources) == 1 and dataset.output is None
        rows = _Rows(
            raw.frame, raw.rejects, raw.deletions, starts=raw.starts, is_sparse=raw.is_sparse, has_keys=has_keys
        )
        rows = replace(rows, updates=raw.updates()) if may_end else rows
        if is_fed_alone:
            is_ordered = has_keys and source.cdc == "native" and raw.replaces is not None and raw.replaces.any()
            rows = replace(rows, truncations=raw.truncations, replaces=raw.replaces if is_ordered else None)
        return rows if is_fed_alone else rows.blaming("", dict.fromkeys(raw.truncations, _FED_BY_OTHERS))
    opened, before = open_messages(raw.frame, dataset.schema), raw.rejects
    if opened.numbers is not None:  # of a message that is no record there is one row
        before = before.with_columns(
            opened.numbers.search_sorted(before["row"], side="left").cast(pl.Int64).alias("row")
        )
    out = set(before["row"].to_list())
    errors = {row: why for row, why in opened.errors.items() if row not in out}
    rows = _Rows(
        opened.frame,
        before,
        opened.deletions,
        opened.updates if may_end else {},
        opened.starts,
        is_sparse=True,
        has_keys=has_keys,
        numbers=opened.numbers,
    )
    return replace(rows, rejects=pl.concat([before, rejects(errors)]).sort("row", maintain_order=True))


def _preprocessed(rows: _Rows, source: SourceDefinition, dataset: DatasetDefinition) -> _Rows:
    known, frame = _untouched(source, dataset), rows.frame
    if rows.is_sparse:
        absent = {how.path[0] for _, how in source.preproc if isinstance(how, ReferenceColumn)} - set(frame.columns)
        frame = frame.with_columns(nulls(frame.height, pl.Null()).alias(name) for name in sorted(absent))
    columns = {name: how.column(frame, dataset.dtypes[name], known) for name, how in source.preproc}
    for name, each in columns.items():
        rows = rows.blaming(name, each.errors)
    return replace(rows, frame=rows.frame.with_columns(each.values.alias(name) for name, each in columns.items()))


def _untouched(source: SourceDefinition, dataset: DatasetDefinition) -> dict[str, DType]:
    made_here = dict(source.preproc)
    return {name: dtype for name, dtype in dataset.dtypes.items() if name not in made_here}


def _condition_columns(rows: _Rows, source: SourceDefinition, dataset: DatasetDefinition) -> tuple[_Rows, pl.Series]:
    """Return a mask of the rows selected by `where`.

    The condition sees the columns built by preproc, and all deletions by key and truncations pass.
    """
    everything = pl.Series([True], dtype=pl.Boolean).new_from_index(0, rows.frame.height)
    if source.where is None:
        return rows, everything
    checked = _nullable(source.where, dataset).column(rows.frame, Optional(Bool()), dataset.dtypes)
    rows = rows.blaming("", {row: f"where: {why}" for row, why in checked.errors.items()})
    ended = pl.Series(range(rows.frame.height), dtype=pl.Int64).is_in(list(rows.endings))
    return rows, checked.values.fill_null(value=False) | ended


def _nullable(where: Evaluated, dataset: DatasetDefinition) -> Evaluated:
    """Return `where` for rows whose nulls have not been checked: any field may be null."""
    reads = tuple((name, Optional(dtype.base) if name in dataset.dtypes else dtype) for name, dtype in where.reads)
    try:
        inferred = where.computed.dtype(dict(reads))
    except (ValueError, TypeError):  # it does not take nulls: rows with one are rejected
        return where
    return where if inferred is None else replace(where, reads=reads)


def _of_chosen(found: pl.DataFrame, rows: _Rows, condition: pl.Series, source: SourceDefinition) -> pl.DataFrame:
    """Return the rejects without those of rows that do not satisfy `where`.

    Those remain for which it could not be known: records that are no rows, and fields that it reads.
    """
    if source.where is None or found.is_empty() or condition.all():
        return found
    undecided = _undecided(rows, source.where)
    is_chosen = condition.gather(found["row"]) | found["row"].is_in(undecided["row"].implode())
    return found.filter(is_chosen)


def _undecided(rows: _Rows, where: Evaluated) -> pl.DataFrame:
    """Return the rejects of rows of which it cannot be known whether they satisfy `where`."""
    reads = [name for name, _ in where.reads] if where.computed.reads is not None else None
    return rows.rejects if reads is None else rows.rejects.filter(pl.col("field").is_in(["", *reads]))


def _without_left(rows: _Rows, condition: pl.Series, source: SourceDefinition) -> tuple[_Rows, pl.Series]:
    """Return updates that `where` leaves out as deletions: the row before them must not stay.

    Of an inserted row that is left out, none is there before.
    """
    if source.where is None or not rows.updates or condition.all():
        return rows, condition
    undecided = set(_undecided(rows, source.where)["row"])
    left = [row for row in (~condition).arg_true() if row in rows.updates and row not in undecided]
    ended = pl.Series(range(rows.frame.height), dtype=pl.Int64).is_in(left)
    deletions = {**rows.deletions, **{row: rows.updates[row] for row in left}}
    accepted = rows.rejects.filter(~pl.col("row").is_in(left))
    return replace(rows, deletions=deletions, rejects=accepted), condition | ended


def _validated(rows: _Rows, dataset: DatasetDefinition) -> Validated:
    has_starts = rows.starts is not None and rows.starts.null_count() < len(rows.starts)
    if not rows.deletions and not rows.truncations and not has_starts and rows.replaces is None:
        return validate(rows.frame, dataset.dtypes, refused=rows.rejects)
    out = set(rows.rejects["row"].to_list())
    set_aside = rejects({row: "" for row in rows.endings if row not in out})
    judged = validate(rows.frame, dataset.dtypes, refused=pl.concat([rows.rejects, set_aside]))
    deleted = validate_deletions(rows.frame, rows.deletions if rows.has_keys else {}, out, dataset.schema)
    emptied = _truncations(rows.truncations, dataset)
    inserted = _in_force(rows, judged, dataset)
    ended = deleted.frame.with_columns(pl.lit(-1, pl.Int64).alias(WEIGHT)).select(inserted.columns)
    accepted = pl.concat([judged.accepted, deleted.accepted, pl.Series([*rows.truncations], dtype=pl.UInt32)])
    order = accepted.arg_sort()
    errors = judged.rejects.filter(~pl.col("row").is_in(set_aside["row"].implode()))
    frame = _marked(pl.concat([inserted, ended]), accepted, rows.replaces)
    frame = pl.concat([frame, emptied.select(inserted.columns)])
    return Validated(frame[order], accepted.gather(order), pl.concat([errors, deleted.rejects]).sort("row"))


def _marked(changes: pl.DataFrame, rows: pl.Series, replaces: pl.Series | None) -> pl.DataFrame:
    """Return changes with the weights of those that replace others.

    Args:
        changes: +1 or −1 each.
        rows: the number of each one's row, and maybe more numbers.
        replaces: mask of the rows.
    """
    if replaces is None:
        return changes
    mask = replaces.gather(rows.head(changes.height))
    return changes.with_columns(pl.when(mask).then(pl.col(WEIGHT) * REPLACING).otherwise(WEIGHT).alias(WEIGHT))


def _in_force(rows: _Rows, judged: Validated, dataset: DatasetDefinition) -> pl.DataFrame:
    """Return valid rows as changes from their instants on.

    A whole row that is deleted is taken back.
    """
    instants: list[pl.Expr | pl.Series] = [pl.col(dataset.schema.timestamp)]
    if rows.starts is not None:
        instants.append(rows.starts.gather(judged.accepted))
    ends = {} if rows.has_keys else rows.deletions
    is_ended = judged.accepted.is_in([*ends])
    if ends:
        at = pl.Series([ends.get(row) for row in range(rows.frame.height)], dtype=INSTANT)
        instants.append(at.gather(judged.accepted))
    weight = pl.when(is_ended).then(-1).otherwise(1).cast(pl.Int64)
    return judged.frame.with_columns(pl.max_horizontal(instants).alias(AT), weight.alias(WEIGHT))


def _truncations(instants: Mapping[int, datetime], dataset: DatasetDefinition) -> pl.DataFrame:
    """Return truncations as changes: without values, at their instants."""
    schema = dataset.schema
    at = pl.Series(AT, [*instants.values()], dtype=pl.Datetime("us", "UTC"))
    nothing = [pl.Series(name, [None] * len(at), dtype=dtype) for name, dtype in schema.polars().items()]
    weight = pl.lit(TRUNCATION, pl.Int64).alias(WEIGHT)
    return pl.DataFrame([*nothing, at]).with_columns(pl.col(AT).alias(schema.timestamp), weight)


def _conditions(
    validated: Validated, condition: pl.Series, source: SourceDefinition, dataset: DatasetDefinition
) -> list[pl.Expr | pl.Series]:
    """Return the conditions a valid row must satisfy to be ingested."""
    at = pl.col(AT if AT in validated.frame.columns else dataset.schema.timestamp)
    conditions: list[pl.Expr | pl.Series] = [condition.gather(validated.accepted)]
    if source.since is not None:
        conditions.append(at >= source.since)
    if source.until is not None:
        conditions.append(at < source.until)
    return conditions


def _in_sample(validated: Validated, rows: _Rows, source: SourceDefinition, dataset: DatasetDefinition) -> Validated:
    """Return the rows of the sample.

    Where it is one by other columns than keys, a deletion by key may lack them, and an update that leaves it is a deletion.
    """
    if source.sample is None:
        return validated
    frame, mask = validated.frame, _sampled(validated.frame, source.sample)
    if WEIGHT in frame.columns:
        mask |= frame[WEIGHT] == TRUNCATION
    if rows.has_keys and not set(source.sample.using) <= set(dataset.schema.key_names):
        frame, ends = _ended(frame, validated.accepted, mask, rows, dataset.schema.timestamp)
        mask |= ends
    return replace(validated, frame=frame.filter(mask), accepted=validated.accepted.filter(mask))


def _ended(
    frame: pl.DataFrame, accepted: pl.Series, mask: pl.Series, rows: _Rows, timestamp: str
) -> tuple[pl.DataFrame, pl.Series]:
    """Return changes, with updates outside of a mask as deletions, and a mask of deletions."""
    if WEIGHT not in frame.columns:
        frame = frame.with_columns(pl.col(timestamp).alias(AT), pl.lit(1, pl.Int64).alias(WEIGHT))
    leaves = accepted.is_in([*rows.updates]) & ~mask & (frame[WEIGHT] > 0)
    at = pl.Series([rows.updates.get(row) for row in accepted], dtype=INSTANT)
    frame = frame.with_columns(
        pl.when(leaves).then(pl.max_horizontal(AT, at)).otherwise(AT).alias(AT),
        pl.when(leaves).then(-pl.col(WEIGHT)).otherwise(WEIGHT).alias(WEIGHT),
    )
    return frame, (frame[WEIGHT] < 0) & (frame[WEIGHT] != TRUNCATION)


def _sampled(frame: pl.DataFrame, sample: Sampling) -> pl.Series:
    """Return a mask of sampled rows; equal key values give equal results."""
    part = shard_of(encode_keys(frame.select(sample.using)), SAMPLES)
    return part < round(sample.rate * SAMPLES)
