"""Reading a table by a cursor column, with one statement per `every`.

    SELECT columns FROM table WHERE cursor >= low ORDER BY cursor

`low` lies before the highest cursor read: rows that committed late with an earlier cursor are found, and so are rows with the
very same one. What was read before is recognised by a digest of the row and left out. For instants and dates `low` is `disorder`
before the highest; for other types, whose values are no times, it is the highest cursor as of the last statement since which all
transactions have ended that were open then.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import polars as pl

from umbel.connectors.polling import Poller
from umbel.connectors.postgres.columns import DATE, FLOAT, INT, NUMERIC, TEXT, TIMES, Column, typed
from umbel.connectors.postgres.copying import parse, pieces
from umbel.connectors.postgres.rows import IDENTITY, TableSource
from umbel.connectors.postgres.server import TableDescription, describe
from umbel.connectors.staging import StagedPart
from umbel.errors import InvalidValue
from umbel.state.keys import encode_columns

if TYPE_CHECKING:
    import psycopg

ORDERED = frozenset({INT, FLOAT, NUMERIC, TEXT})
NEWER = "_newer"
SNAPSHOT = "SELECT txid_snapshot_xmin(txid_current_snapshot())::text, txid_snapshot_xmax(txid_current_snapshot())::text"


@dataclass(frozen=True)
class CursorSource(TableSource):
    """A table read by a cursor column.

    Args:
        cursor: the column.
    """

    cursor: str

    def examine(self) -> None:
        with self.server.connect() as connection:
            self._columns(table := describe(connection, self.title, self.table))
            from psycopg import sql

            names = sql.SQL(", ").join(map(sql.Identifier, self.names(table, self.cursor)))
            connection.execute(sql.SQL("SELECT {} FROM {} LIMIT 0").format(names, sql.SQL(table.name)))

    def read_on(self, poller: Poller) -> float:
        """Read the new rows if it is time to; return the seconds until then."""
        state, every = self.stage.state(), self.options.every / 1e6
        wait: float = min(every, state.get("polled_at", 0.0) + every - time.time())
        if wait > 0 and state.get("loaded"):
            return wait
        with self.server.connect() as connection:
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            table = describe(connection, self.title, self.table)
            columns = self._columns(table)
            oldest, next_one = connection.execute(SNAPSHOT).fetchone() or ("0", "0")
            state["polled_at"] = time.time()
            self.stage.save(state)
            low = self._low(columns[self.cursor], state.get("polls", []))
            is_complete = self._copy(connection, table, columns, low, poller)
        if is_complete:
            last = self._last_data()
            done = {
                "oldest": oldest,
                "next": next_one,
                "high": last and last.facts["high"],
                "part": last.number if last else 0,
            }
            state |= {"loaded": True, "polls": _relevant([*state.get("polls", []), done])}
            self.stage.save(state)
            self.stage.expire(min(poller.consumed + 1, *(number for number in self._covering(low)), 1 << 62))
        return every

    def _columns(self, table: TableDescription) -> dict[str, Column]:
        """Return the columns to read; refuse a cursor that cannot be one."""
        names = self.names(table, self.cursor)
        table.require(self.title, names)
        cursor = table.columns[self.cursor]
        if cursor.is_array or cursor.kind not in TIMES | ORDERED:
            raise InvalidValue(
                f"{self.title}: column '{self.cursor}' of type {cursor.type} cannot be a cursor",
                hint="a cursor is a timestamp, a date, a number or text that grows with every change of a row",
            )
        return {name: table.columns[name] for name in names}

    # ---- where to begin --------------------------------------------------------------------------------------------

    def _last_data(self) -> StagedPart | None:
        return next(self._parts(), None)

    def _parts(self) -> Iterator[StagedPart]:
        """Yield the parts that have rows, last ones first."""
        parts = (self.stage.part(number) for number in reversed(self.stage.numbers()))
        return (part for part in parts if "high" in part.facts)

    def _low(self, cursor: Column, polls: Sequence[Mapping[str, Any]]) -> Low:
        last = self._last_data()
        high = last.facts["high"] if last else None
        if cursor.kind in TIMES:
            return Low(cursor, high, high, lookback=self.options.disorder)
        closed = _closed(polls)
        if closed is None:
            return Low(cursor, high, None)
        return Low(cursor, high, polls[closed]["high"], part=polls[closed]["part"])

    def _covering(self, low: Low) -> list[int]:
        """Return the numbers of the parts that may have rows from `low` on."""
        found = list[int]()
        for part in self._parts():
            if not low.reaches(part):
                break
            found.append(part.number)
        return found

    # ---- reading ---------------------------------------------------------------------------------------------------

    def _copy(
        self,
        connection: psycopg.Connection[Any],
        table: TableDescription,
        columns: Mapping[str, Column],
        low: Low,
        poller: Poller,
    ) -> bool:
        """Stage the new rows; return whether all of them were read."""
        seen = _Seen.of(self.stage.read(number, [IDENTITY])[IDENTITY] for number in self._covering(low))
        high, facts = low.high, {"columns": [column.plain for column in columns.values()]}
        with connection.cursor() as cursor, cursor.copy(self._statement(table, columns, low)) as copy:
            for data in pieces(copy):
                rows = parse(data, (*columns, NEWER))
                newer = rows.filter(pl.col(NEWER) == "t")[self.cursor]
                high = newer[-1] if len(newer) else high
                fresh = seen.fresh(rows.drop(NEWER).with_columns(self._identity(rows, columns)))
                if fresh.height:
                    self.stage.append(fresh, {**facts, "high": high})
                if not self.has_room(poller):
                    return False
        return True

    def _statement(self, table: TableDescription, columns: Mapping[str, Column], low: Low) -> Any:
        from psycopg import sql

        cursor, high = sql.Identifier(self.cursor), sql.Literal(low.high)
        newer = sql.SQL("true") if low.high is None else sql.SQL("{} > {}").format(cursor, high)
        names = sql.SQL(", ").join(map(sql.Identifier, columns))
        select = sql.SQL("SELECT {}, {} FROM {} WHERE {} ORDER BY {}").format(
            names, newer, sql.SQL(table.name), low.condition(cursor), cursor
        )
        return sql.SQL("COPY ({}) TO STDOUT (FORMAT csv)").format(select)

    def _identity(self, rows: pl.DataFrame, columns: Mapping[str, Column]) -> pl.Series:
        """Return the digest that tells each row from all others.

        A keyless dataset takes each row of a table once for each value of the cursor; a keyed one whenever it differs.
        """
        keys = [name for name, column in columns.items() if column.is_primary]
        names = [*keys, self.cursor] if keys and not self.options.is_keyed else list(columns)
        encoded = encode_columns(rows, sorted(names)).to_list()
        digests = (int.from_bytes(blake2b(each, digest_size=8).digest(), "little") for each in encoded)
        return pl.Series(IDENTITY, digests, dtype=pl.UInt64)


@dataclass(frozen=True)
class Low:
    """The cursor from which on rows are read.

    Args:
        cursor: the column.
        high: the highest cursor read so far, None for none.
        start: the cursor that the read begins at or before; None for the beginning of the table.
        lookback: how far before `start` it begins, in µs; for times.
        part: the last part staged when `start` was the highest cursor; for other types.
    """

    cursor: Column
    high: str | None
    start: str | None
    lookback: int = 0
    part: int = 0

    def condition(self, cursor: Any) -> Any:
        """Return the SQL condition on a cursor column."""
        from psycopg import sql

        is_time = self.cursor.kind in TIMES
        if self.start is None:
            return sql.SQL("isfinite({})" if is_time else "{} IS NOT NULL").format(cursor)
        if not is_time:
            return sql.SQL("{} >= {}").format(cursor, sql.Literal(self.start))
        kind, back = sql.Identifier(self.cursor.type), sql.Literal(f"{self.lookback} microseconds")
        low = sql.SQL("({start}::{kind} - {back}::interval)::{kind}").format(
            start=sql.Literal(self.start), kind=kind, back=back
        )
        return sql.SQL("{cursor} >= {low} AND isfinite({cursor})").format(cursor=cursor, low=low)

    def reaches(self, part: StagedPart) -> bool:
        """Return whether a part may have rows that are read again.

        All later parts may.
        """
        if self.start is None or part.number > self.part > 0:
            return True
        if self.cursor.kind not in TIMES:
            return bool(part.facts["high"] == self.start)
        return self._instant(part.facts["high"]) >= self._first

    @cached_property
    def _first(self) -> datetime:
        day = timedelta(days=1) if self.cursor.kind == DATE else timedelta()
        first = self._instant(self.start) if self.start else datetime.min.replace(tzinfo=UTC)
        return first - min(timedelta(microseconds=self.lookback) + day, first - datetime.min.replace(tzinfo=UTC))

    def _instant(self, text: str) -> datetime:
        value = typed(pl.Series([text], dtype=pl.String), self.cursor, None)[0]
        return value if isinstance(value, datetime) else datetime(value.year, value.month, value.day, tzinfo=UTC)


class _Seen:
    """The digests of the rows read before, each as often as it was read.

    Args:
        left: digests with counts.
    """

    def __init__(self, left: pl.DataFrame) -> None:
        self._left = left

    @classmethod
    def of(cls, parts: Iterator[pl.Series]) -> _Seen:
        """Return the digests of some parts."""
        found = list(parts)
        rows = pl.concat(found) if found else pl.Series(IDENTITY, [], dtype=pl.UInt64)
        return cls(rows.to_frame(IDENTITY).group_by(IDENTITY).len("_times"))

    def fresh(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the rows that were not read before."""
        if not self._left.height:
            return rows
        numbered = rows.with_columns(pl.int_range(pl.len()).over(IDENTITY).alias("_before"))
        known = numbered.join(self._left, on=IDENTITY, how="left", maintain_order="left")
        again = rows.group_by(IDENTITY).len("_again")
        left = self._left.join(again, on=IDENTITY, how="left").with_columns(pl.col("_again").fill_null(0))
        left = left.filter(pl.col("_times") > pl.col("_again"))
        self._left = left.select(IDENTITY, pl.col("_times") - pl.col("_again"))
        return known.filter(pl.col("_before") >= pl.col("_times").fill_null(0)).drop("_before", "_times")


def _closed(polls: Sequence[Mapping[str, Any]]) -> int | None:
    """Return the place of the newest statement that the last one closed.

    All transactions that were open at a closed statement had ended at the last one, which so has read their rows.
    """
    found = [at for at, each in enumerate(polls) if int(each["next"]) <= int(polls[-1]["oldest"])]
    return found[-1] if found else None


def _relevant(polls: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the statements that a later one may begin at."""
    return list(polls[_closed(polls) or 0 :])
