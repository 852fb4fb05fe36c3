"""Rows on their way in: preproc, where, validation, since, until, sample; the same in every runner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

import polars as pl

from umbel.plan.debezium import open_envelopes, validate_deletions
from umbel.plan.definitions import DatasetDefinition, Evaluated, Sampling, SourceDefinition
from umbel.state.keys import encode_keys, shard_of
from umbel.types.dtypes import Bool, DType, Optional
from umbel.types.raw import Raw, rejects
from umbel.types.schema import AT, WEIGHT
from umbel.types.validate import Validated, validate

SAMPLES = 1 << 20
"""Rows are put in so many equal parts by the hash of their values; a sample takes the first of them."""


def wanted(source: SourceDefinition, dataset: DatasetDefinition) -> dict[str, DType]:
    """Return the columns to read for a source with the types they should have; none for all columns as they are."""
    if source.cdc == "debezium":
        return {}
    hows = [how for _, how in source.preproc if isinstance(how, Evaluated)]
    if source.where is not None:
        hows.append(source.where)
    made_here = dict(source.preproc)
    reads = {name: dtype for how in hows for name, dtype in how.reads if name not in made_here}
    return {**reads, **_untouched(source, dataset)}


def prepare(raw: Raw, source: SourceDefinition, dataset: DatasetDefinition) -> Validated:
    """Bring raw rows of a source into the form of its dataset.

    Args:
        raw: as they came; they are not changed, so that other datasets can take them too.
        source: says what is made of them.
        dataset: whose columns they must fit.

    Returns:
        The rows taken, with `_at` and `_weight` if some are deletions. Rows that fit and are not asked for are in
        neither part.
    """
    rows = _preprocessed(_opened(raw, source, dataset), source, dataset)
    rows, asked = _asked(rows, source, dataset)
    validated = _validated(rows, dataset)
    chosen = pl.all_horizontal(*_conditions(validated, asked, source, dataset))
    mask = validated.frame.select(chosen.alias("mask"))["mask"]
    return replace(validated, frame=validated.frame.filter(mask), kept=validated.kept.filter(mask))


@dataclass(frozen=True)
class _Rows:
    """Rows on their way.

    Args:
        frame: their columns.
        rejects: of rows that are out.
        deletions: row number of a deletion to its instant.
    """

    frame: pl.DataFrame
    rejects: pl.DataFrame
    deletions: Mapping[int, datetime | None] = field(default_factory=dict)

    def blaming(self, field: str, faults: Mapping[int, str]) -> _Rows:
        """Return them with further rows out, except for deletions, of which keys alone are looked at."""
        found = {row: why for row, why in faults.items() if row not in self.deletions}
        return replace(self, rejects=pl.concat([self.rejects, rejects(found, field)])) if found else self


def _opened(raw: Raw, source: SourceDefinition, dataset: DatasetDefinition) -> _Rows:
    if source.cdc != "debezium":
        return _Rows(raw.frame, raw.rejects)
    out = set(raw.rejects["row"].to_list())
    opened = open_envelopes(raw.frame, dataset.dtypes)
    faults = {row: why for row, why in opened.faults.items() if row not in out}
    return _Rows(opened.frame, raw.rejects, opened.deletions).blaming("", faults)


def _preprocessed(rows: _Rows, source: SourceDefinition, dataset: DatasetDefinition) -> _Rows:
    known = _untouched(source, dataset)
    columns = {name: how.column(rows.frame, dataset.dtypes[name], known) for name, how in source.preproc}
    for name, each in columns.items():
        rows = rows.blaming(name, each.faults)
    return replace(rows, frame=rows.frame.with_columns(each.values.alias(name) for name, each in columns.items()))


def _untouched(source: SourceDefinition, dataset: DatasetDefinition) -> dict[str, DType]:
    made_here = dict(source.preproc)
    return {name: dtype for name, dtype in dataset.dtypes.items() if name not in made_here}


def _asked(rows: _Rows, source: SourceDefinition, dataset: DatasetDefinition) -> tuple[_Rows, pl.Series]:
    """Return which rows `where` takes; it sees what preproc has made, and lets deletions pass."""
    everything = pl.Series([True], dtype=pl.Boolean).new_from_index(0, rows.frame.height)
    if source.where is None:
        return rows, everything
    checked = source.where.column(rows.frame, Optional(Bool()), dataset.dtypes)
    rows = rows.blaming("", {row: f"where: {why}" for row, why in checked.faults.items()})
    deleted = pl.Series(range(rows.frame.height), dtype=pl.Int64).is_in(list(rows.deletions))
    return rows, checked.values.fill_null(value=False) | deleted


def _validated(rows: _Rows, dataset: DatasetDefinition) -> Validated:
    if not rows.deletions:
        return validate(rows.frame, dataset.dtypes, refused=rows.rejects)
    out = set(rows.rejects["row"].to_list())
    set_aside = rejects({row: "" for row in rows.deletions if row not in out})
    judged = validate(rows.frame, dataset.dtypes, refused=pl.concat([rows.rejects, set_aside]))
    deleted = validate_deletions(rows.frame, rows.deletions, out, dataset.schema)
    inserted = judged.frame.with_columns(pl.col(dataset.schema.timestamp).alias(AT), pl.lit(1, pl.Int64).alias(WEIGHT))
    ended = deleted.frame.with_columns(pl.lit(-1, pl.Int64).alias(WEIGHT)).select(inserted.columns)
    kept = pl.concat([judged.kept, deleted.kept])
    order = kept.arg_sort()
    faults = judged.rejects.filter(~pl.col("row").is_in(set_aside["row"].implode()))
    frame = pl.concat([inserted, ended])
    return Validated(frame[order], kept.gather(order), pl.concat([faults, deleted.rejects]).sort("row"))


def _conditions(
    validated: Validated, asked: pl.Series, source: SourceDefinition, dataset: DatasetDefinition
) -> list[pl.Expr | pl.Series]:
    """Return what must hold for a valid row to be taken."""
    at = pl.col(AT if AT in validated.frame.columns else dataset.schema.timestamp)
    conditions: list[pl.Expr | pl.Series] = [asked.gather(validated.kept)]
    if source.since is not None:
        conditions.append(at >= source.since)
    if source.until is not None:
        conditions.append(at < source.until)
    if source.sample is not None:
        conditions.append(_sampled(validated.frame, source.sample))
    return conditions


def _sampled(frame: pl.DataFrame, sample: Sampling) -> pl.Series:
    """Return which rows a sample takes: always those with the same values."""
    part = shard_of(encode_keys(frame.select(sample.using)), SAMPLES)
    return part < round(sample.rate * SAMPLES)
