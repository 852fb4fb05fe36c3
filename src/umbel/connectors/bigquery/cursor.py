"""Reading a table of BigQuery by a cursor column."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import polars as pl

from umbel.connectors.bigquery.columns import of_instant, parameter, staged, typed
from umbel.connectors.bigquery.server import (
    LONGEST,
    PATIENCE,
    BigQueryDescription,
    BigQueryServer,
    describe,
    driver,
    retries,
)
from umbel.connectors.sql.columns import TEXT, TIMES, Column
from umbel.connectors.sql.cursor import NEWER, Low
from umbel.connectors.sql.ranges import Range
from umbel.connectors.sql.server import TableDescription
from umbel.connectors.sql.statement import StatementCursor, StatementSnapshot
from umbel.errors import InvalidValue
from umbel.types.dtype import DType

LABELS = {"application": "umbel"}
"""The labels of jobs, by which bills and logs can be searched."""


@dataclass(frozen=True)
class BigQueryStatement(StatementSnapshot):
    """A table as one query reads it."""

    table: BigQueryDescription

    def rows(self, columns: Mapping[str, Column], low: Low, within: Range | None = None) -> Iterator[pl.DataFrame]:
        """Yield the rows from a cursor on, by cursor, with the column `NEWER`."""
        job = self.query(columns, low)
        fields = [self.table.fields[name] for name in columns]
        for page in job.result(retry=retries(), job_retry=None, timeout=LONGEST).pages:
            rows = [[cell["v"] for cell in row["f"]] for row in page.raw_page.get("rows", ())]
            if rows:
                *values, newer = zip(*rows, strict=True)
                found = zip(values, columns.values(), fields, strict=True)
                made = [staged(each, column, field) for each, column, field in found]
                yield pl.DataFrame([*made, pl.Series(NEWER, newer, dtype=pl.String) == "true"])

    def query(self, columns: Mapping[str, Column], low: Low, *, is_dry: bool = False) -> Any:
        """Return the job of the one query.

        Args:
            columns: those to read.
            low: the cursor to read from.
            is_dry: whether to check it only, which reads nothing.
        """
        client, cursor = driver(), self._name(low.cursor.name)
        written, values = low.cursor.type, list[Any]()
        newer, start = "TRUE", ""
        if low.high is not None:
            newer = f"{cursor} > @high"
            values.append(client.ScalarQueryParameter("high", written, parameter(low.cursor, low.high, low.instant)))
        if low.start is not None:
            start = f" AND {cursor} >= @start"
            values.append(client.ScalarQueryParameter("start", written, _start(low)))
        chosen = ", ".join(f"{self._name(name)} AS c{place}" for place, name in enumerate(columns))
        config = client.QueryJobConfig(
            query_parameters=values, labels=LABELS, job_timeout_ms=LONGEST * 1000, dry_run=is_dry
        )
        return self.connection.query(
            f"SELECT {chosen}, {newer} AS newer FROM {self.table.name} AS t WHERE {cursor} IS NOT NULL{start} ORDER BY {cursor}",  # noqa: S608
            job_config=config,
            location=self.table.location,
            retry=retries(),
            job_retry=None,
            timeout=PATIENCE,
        )

    def _name(self, name: str) -> str:
        return f"t.`{self.table.fields[name].name}`"


@dataclass(frozen=True)
class BigQueryCursor(StatementCursor):
    """A table read by a cursor column."""

    server: BigQueryServer

    reading: ClassVar[type[StatementSnapshot]] = BigQueryStatement

    def typed(self, text: pl.Series, column: Column, requested: DType | None) -> pl.Series:
        return typed(text, column, requested)

    def described(self, connection: Any) -> BigQueryDescription:
        return describe(connection, self.server, self.table, self.fields)

    def columns_of(self, table: TableDescription) -> dict[str, Column]:
        found = super().columns_of(table)
        cursor = found[self.cursor]
        if cursor.kind == TEXT and cursor.type != "STRING":
            raise InvalidValue(
                f"{self.title}: column '{self.cursor}' of type {cursor.type} cannot be a cursor",
                hint="a cursor is a timestamp, a date, an exact number or text that grows with every change of a row",
            )
        return found

    def examine(self) -> None:
        with self.server.connect() as connection:
            table = self.described(connection)
            columns = self.columns_of(table)
            BigQueryStatement(connection, table, 0.0).query(columns, Low(columns[self.cursor], None, None), is_dry=True)


def _start(low: Low) -> Any:
    """Return the first cursor to be read, as the value of a parameter."""
    if low.cursor.kind in TIMES:
        return of_instant(low.cursor, low.begin)
    return parameter(low.cursor, str(low.start), None)
