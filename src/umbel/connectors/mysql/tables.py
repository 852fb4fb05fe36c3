"""The descriptions of a table in the binary log: what its rows consist of."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import polars as pl

from umbel.connectors.mysql.charsets import reading
from umbel.connectors.mysql.columns import BIT, SINGLE
from umbel.connectors.mysql.server import MySQLDescription
from umbel.connectors.mysql.stream import lenenc
from umbel.connectors.mysql.values import (
    BINARY,
    CHARACTER_TYPES,
    ENUM,
    METADATA_BYTES,
    NUMERIC_TYPES,
    SET,
    STRING,
    Decode,
    StreamColumn,
    decoder,
    real_type,
)
from umbel.connectors.sql.changes import Relation, Values
from umbel.connectors.sql.columns import BYTES, FLOAT, INT, Column
from umbel.errors import Terminal

SIGNS, DEFAULT_COLLATION, COLLATIONS, NAMES, SETS, ENUMS, DEFAULT_OF_NAMES, COLLATIONS_OF_NAMES = (
    1,
    2,
    3,
    4,
    5,
    6,
    10,
    11,
)
"""The kinds of further metadata that are read."""
ROW_END = re.compile(
    r"[`\"]?(\w+)[`\"]?\s+timestamp\s*\(6\)\s+(?:generated\s+always\s+)?as\s+row\s+end\b", re.IGNORECASE
)
"""The declaration of the column of a table WITH SYSTEM VERSIONING that tells when a row ended."""
IMPLICIT = ["row_start", "row_end"]
"""The last columns of a table that does not declare them; the catalog does not show them."""
CURRENT = frozenset({None, "2038-01-19 03:14:07.999999", "2106-02-07 06:28:15.999999"})
"""The ends of rows that have not ended: of MariaDB up to 11.4, and from 11.5 on."""
_DTYPES = {BIT: pl.UInt64, FLOAT: pl.Float64, SINGLE: pl.Float64, BYTES: pl.Binary}


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns of the rows of an event.

    Args:
        width: the number of columns of the table.
        readers: the places and decoders of the columns that are there.
        is_complete: whether all requested columns are.
    """

    width: int
    readers: Sequence[tuple[int, Decode]]
    is_complete: bool

    @property
    def null_bytes(self) -> int:
        """The bytes that say which values are null."""
        return (len(self.readers) + 7) // 8

    def filled(self, former: Values, values: Values) -> Values:
        """Return the values of a changed row; former values fill absent columns."""
        there = {place for place, _ in self.readers}
        return [new if place in there else old for place, (old, new) in enumerate(zip(former, values, strict=True))]


@dataclass(frozen=True, eq=False)
class MappedTable(Relation):
    """A table as the stream describes it.

    Args:
        described: the columns that are requested, by name.
        decoders: of all columns, in order.
        requested: the places of those that are requested.
        ended: the place of the end of the row in a table with system versioning, None for others.
    """

    described: Mapping[str, Column]
    decoders: Sequence[Decode]
    requested: frozenset[int]
    ended: int | None = None
    _layouts: dict[bytes, Layout] = field(default_factory=dict, repr=False)

    def is_past(self, values: Values) -> bool:
        """Return whether a row has ended, and is retained by system versioning."""
        return self.ended is not None and values[self.ended] not in CURRENT

    def layout(self, present: bytes) -> Layout:
        """Return the layout of rows.

        Args:
            present: a bit for each column, which is set if rows have it.
        """
        if present not in self._layouts:
            bits = int.from_bytes(present, "little")
            readers = [(place, decode) for place, decode in enumerate(self.decoders) if bits >> place & 1]
            is_complete = all(bits >> place & 1 for place in self.requested)
            self._layouts[present] = Layout(len(self.decoders), readers, is_complete)
        return self._layouts[present]


class TableMaps:
    """The descriptions of one table.

    Args:
        title: of the source, for messages.
        table: the table, as its server describes it now.
        names: the names of the requested columns; None for all.
        codecs: the character sets, as `charsets.reading` takes them, by the number of the collation; bytes have none.
        is_folded: whether names of tables are the same in upper and lower case.
    """

    def __init__(
        self,
        title: str,
        table: MySQLDescription,
        names: Sequence[str] | None,
        codecs: Mapping[int, str],
        *,
        is_folded: bool = False,
    ) -> None:
        self._title, self._table, self._codecs, self._is_folded = title, table, codecs, is_folded
        self._names = None if names is None else frozenset(names)
        self._ends = {*ROW_END.findall(table.definition)}
        self._by_id: dict[bytes, MappedTable] = {}
        self._by_content: dict[bytes, MappedTable] = {}

    def forget(self) -> None:
        """Forget which numbers tables have: a server counts anew when it starts."""
        self._by_id = {}

    def table(self, data: bytes) -> MappedTable | None:
        """Return the table of an event of rows, None for another one."""
        return self._by_id.get(data[:6])

    def add(self, data: bytes) -> None:
        """Note the description of a table."""
        at = 9 + data[8]
        database, name = data[9:at].decode(), data[at + 2 : at + 2 + data[at + 1]].decode()
        if not self._is_table(database, name):
            self._by_id.pop(data[:6], None)
            return
        body = data[at + 3 + data[at + 1] :]
        if body not in self._by_content:
            self._by_content[body] = self._mapped(body)
        self._by_id[data[:6]] = self._by_content[body]

    def note_versioning(self, sql: str, database: str) -> None:
        """Note the end of rows that a statement declares.

        Args:
            sql: the statement.
            database: where names without a database are.
        """
        if (found := ROW_END.findall(sql)) and self.is_named_in(sql, database):
            self._ends.update(found)

    def is_named_in(self, sql: str, database: str) -> bool:
        """Return whether a statement names the table, or its database to drop it.

        Args:
            sql: the statement.
            database: where names without a database are.
        """
        flags = re.IGNORECASE if self._is_folded else 0
        own, table = (re.escape(each.replace("`", "``")) for each in (self._table.database, self._table.table))
        prefix = (
            rf"[`\"]?{own}[`\"]?\s*\.\s*"
            if not self._is_table(database, self._table.table)
            else rf"(?:[`\"]?{own}[`\"]?\s*\.\s*)?"
        )
        names = rf"(?<![\w$`\".]){prefix}[`\"]?{table}[`\"]?(?![\w$`\"])"
        dropped = rf"drop\s+(?:database|schema)\s+(?:if\s+exists\s+)?[`\"]?{own}[`\"]?(?![\w$`\"])"
        return bool(re.search(names, sql, flags) or re.match(dropped, sql, flags | re.IGNORECASE))

    def _is_table(self, database: str, name: str) -> bool:
        here, there = (database, name), (self._table.database, self._table.table)
        return here == there or (self._is_folded and tuple(map(str.lower, here)) == tuple(map(str.lower, there)))

    def _mapped(self, body: bytes) -> MappedTable:
        try:
            columns = self._columns(body)
        except (LookupError, ValueError) as error:
            raise Terminal(f"{self._title}: the table cannot be read from the binary log: {error}") from None
        described, decoders, dtypes = dict[str, Column](), list[Decode](), list[Any]()
        names = tuple(name for name, _ in columns)
        ended = self._ended(names)
        for name, each in columns:
            kind, decode = self._decoder(name, each)
            if self._is_requested(name):
                known = self._table.columns.get(name)
                described[name] = replace(known, kind=kind) if known else Column(name, kind, False, "")
            elif name != ended:
                decode = _skipping(decode)
            decoders.append(decode)
            dtypes.append(
                (pl.UInt64 if each.is_unsigned else pl.Int64) if kind == INT else _DTYPES.get(kind, pl.String)
            )
        requested = frozenset(place for place, (name, _) in enumerate(columns) if self._is_requested(name))

        def series(place: int, values: Values) -> pl.Series:
            return pl.Series(values, dtype=dtypes[place])

        place = None if ended is None else names.index(ended)
        return MappedTable(names, series, True, described, decoders, requested, place)

    def _is_requested(self, name: str) -> bool:
        return self._names is None or name in self._names

    def _ended(self, names: Sequence[str]) -> str | None:
        """Return the name of the column with the end of rows, None for none."""
        is_implicit = [*names[-2:]] == IMPLICIT and not {*IMPLICIT} & {*self._table.columns}
        return IMPLICIT[1] if is_implicit else next((each for each in names if each in self._ends), None)

    def _decoder(self, name: str, column: StreamColumn) -> tuple[str, Decode]:
        try:
            return decoder(column)
        except LookupError as error:
            if not self._is_requested(name) and column.type in METADATA_BYTES:
                raise
            raise Terminal(f"{self._title}: column '{name}' cannot be read from the binary log: {error}") from None

    # ---- the metadata ----------------------------------------------------------------------------------------------

    def _columns(self, body: bytes) -> list[tuple[str, StreamColumn]]:
        count, at = lenenc(body, 0)
        types, at = body[at : at + count], at + count
        size, at = lenenc(body, at)
        end, metadata = at + size, list[bytes]()
        for each in types:
            width = METADATA_BYTES.get(each, 0)
            metadata.append(body[at : at + width])
            at += width
        further = dict(_further(body[end + (count + 7) // 8 :]))
        if NAMES not in further:
            raise Terminal(
                f"{self._title}: changes come without the names of columns, which only binlog_row_metadata = FULL logs",
                hint="SET GLOBAL binlog_row_metadata = 'FULL'; then commit the dataset as a new version",
            )
        real = [real_type(extra)[0] if each == STRING else each for each, extra in zip(types, metadata, strict=True)]
        unsigned = self._unsigned(real, further.get(SIGNS, b""))
        collations = _collations(real, CHARACTER_TYPES, further, DEFAULT_COLLATION, COLLATIONS)
        collations |= _collations(real, {ENUM, SET}, further, DEFAULT_OF_NAMES, COLLATIONS_OF_NAMES)
        names = [each.decode() for each in _strings(further[NAMES])]
        codecs = {place: self._codec(names[place], each) for place, each in collations.items()}
        values = {kind: _values(further.get(of, b"")) for kind, of in ((ENUM, ENUMS), (SET, SETS))}
        return [
            (
                name,
                StreamColumn(
                    types[place],
                    metadata[place],
                    place in unsigned,
                    codecs.get(place, "utf-8"),
                    list(map(reading(codecs.get(place) or "utf-8"), next(values[real[place]])))
                    if real[place] in values
                    else (),
                    self._declared(name),
                ),
            )
            for place, name in enumerate(names)
        ]

    def _declared(self, name: str) -> str:
        known = self._table.columns.get(name)
        return "" if known is None else "json" if known.kind == "json" else known.type.lower()

    def _codec(self, name: str, collation: int) -> str | None:
        if collation == BINARY:
            return None
        if collation not in self._codecs and self._is_requested(name):
            raise LookupError(f"column '{name}': collation {collation} is unknown")
        return self._codecs.get(collation, "latin-1")  # of a column that is passed over

    @staticmethod
    def _unsigned(types: Sequence[int], bits: bytes) -> set[int]:
        numbers = [place for place, each in enumerate(types) if each in NUMERIC_TYPES]
        return {place for at, place in enumerate(numbers) if at // 8 < len(bits) and bits[at // 8] << at % 8 & 0x80}


def _skipping(decode: Decode) -> Decode:
    return lambda data, at: (None, decode(data, at)[1])


def _further(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(data):
        size, begin = lenenc(data, at + 1)
        yield data[at], data[begin : begin + size]
        at = begin + size


def _numbers(data: bytes) -> list[int]:
    at, found = 0, list[int]()
    while at < len(data):
        number, at = lenenc(data, at)
        found.append(number)
    return found


def _strings(data: bytes) -> list[bytes]:
    at, found = 0, list[bytes]()
    while at < len(data):
        size, begin = lenenc(data, at)
        found.append(data[begin : begin + size])
        at = begin + size
    return found


def _values(data: bytes) -> Iterator[list[bytes]]:
    """Yield the values of each enumeration or set."""
    at = 0
    while at < len(data):
        count, at = lenenc(data, at)
        found = list[bytes]()
        for _ in range(count):
            size, at = lenenc(data, at)
            found.append(data[at : at + size])
            at += size
        yield found


def _collations(
    types: Sequence[int], of: frozenset[int] | set[int], further: Mapping[int, bytes], default: int, each: int
) -> dict[int, int]:
    """Return the numbers of the collations of columns: all of them, or one with exceptions."""
    places = [place for place, kind in enumerate(types) if kind in of]
    if each in further:
        return dict(zip(places, _numbers(further[each]), strict=False))
    if default not in further:
        return {}
    first, *rest = _numbers(further[default])
    exceptions = dict(zip(rest[::2], rest[1::2], strict=True))
    return {place: exceptions.get(at, first) for at, place in enumerate(places)}
