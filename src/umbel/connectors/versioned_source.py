"""Tables made of versions, such as those of Delta, Hudi and Iceberg.

The rows of one version are read, then the changes of later ones.

A version that only adds files has their rows. One that changes or deletes rows has changes: rows that went and rows that came.
Positions are versions, and a file and a row within one.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import polars as pl

from umbel.connectors.polling import Poller
from umbel.connectors.sql.columns import Column
from umbel.connectors.sql.following import ANEW, PART_ROWS, FollowedSource
from umbel.connectors.sql.rows import AT, DELETE, INSERT, OP, START, UPDATE
from umbel.connectors.staging import OWN
from umbel.errors import InvalidValue
from umbel.types.dtype import DType

KIND = "_change_type"
"""The column of rows that says what became of them."""
_ROW, _AGAIN = f"{OWN}row", f"{OWN}again"
LONGEST_DELAY = 2.0
"""Seconds after which rows are staged while further versions are read."""
_GONE = frozenset({"delete", "update_preimage"})


class Version(Protocol):
    """One version of a table."""

    @property
    def at(self) -> int | None:
        """Its instant in µs, None if it has none."""

    @property
    def files(self) -> Sequence[Any]:
        """The files that it adds, removes, or has changes in."""

    @property
    def position(self) -> Mapping[str, Any]:
        """Its place in the table, for the state behind it."""

    @property
    def has_changes(self) -> bool:
        """True if rows changed or were deleted."""


class TablePlace(Protocol):
    """The location of a table."""

    @property
    def title(self) -> str:
        """Its description, for messages."""

    def rows(self, file: Any, types: Mapping[str, Any]) -> Iterator[pl.DataFrame]:
        """Yield the rows of a file in order, with the column `KIND`.

        Args:
            file: of the table.
            types: the columns to read, with their types.

        Raises:
            FileNotFoundError: it was deleted.
        """


@dataclass(frozen=True)
class VersionedSource(FollowedSource):
    """A table whose versions are read."""

    server: TablePlace
    position_fact: ClassVar[str] = "version"
    deleted: ClassVar[str] = "were deleted"
    """How files of a version come to be missing, for messages."""

    @abstractmethod
    def first_state(self) -> dict[str, Any]:
        """Return the state to begin with: `version`, `types`, and more.

        `primary` has the columns of the key of the table, if it has one.
        """

    @abstractmethod
    def first_files(self, state: Mapping[str, Any]) -> Sequence[Any]:
        """Return the files of the version to begin with, ordered."""

    @abstractmethod
    def versions(self, state: Mapping[str, Any]) -> Iterator[tuple[int, Version]]:
        """Yield the versions after a state, in order.

        Raises:
            InvalidValue: one of them is missing, or the table is another one.
        """

    @abstractmethod
    def check_version(self, version: int, commit: Any, state: dict[str, Any]) -> None:
        """Note what a version sets; refuse one that cannot be read."""

    @property
    def title(self) -> str:
        return self.server.title

    def examine(self) -> None:
        self.first_state()

    def read_on(self, poller: Poller) -> float:
        is_first = self.is_loading
        super().read_on(poller)
        return 0.0 if is_first else self.options.every / 1e6

    def typed(self, text: pl.Series, column: Column, requested: DType | None) -> pl.Series:
        """Return a staged column: it has the type of the table."""
        return text

    def columns_in(self, present: Mapping[str, Any]) -> dict[str, Any]:
        """Return the requested columns with their types; refuse missing ones.

        Args:
            present: the columns of the table with their types.
        """
        if missing := [name for name in self.options.columns or () if name not in present]:
            listed = ", ".join(f"'{name}'" for name in missing)
            raise InvalidValue(
                f"{self.title}: the table has no column {listed}", hint="it has " + ", ".join(present)[:300]
            )
        if self.options.is_keyed and self.options.keys is None:
            raise InvalidValue(
                f"{self.title}: a key of the dataset is computed, so that deletions cannot be followed",
                hint="read the keys from columns",
            )
        return {name: present[name] for name in self.options.columns or present}

    # ---- the rows that are there at first --------------------------------------------------------------------------

    def load(self, poller: Poller) -> None:
        """Stage the rows of the latest version; resume an interrupted copy."""
        state = self.stage.state()
        if "version" not in state:
            state = self.first_state()
            self.stage.save(state)
        version = int(state["version"])
        parts = (self.stage.part(number).facts for number in reversed(self.stage.numbers()))
        begin = next((facts for facts in parts if "file" in facts), {"file": 0, "row": 0})
        staging = _Staging(self, state, {})
        try:
            for number, row, rows in self._rows(self.first_files(state), begin, state["types"]):
                staging.add(_inserted(rows, None, None), {"file": number, "row": row})
                if staging.is_full and not (staging.flush() and self._goes_on(poller)):
                    return
        except FileNotFoundError:
            raise InvalidValue(
                f"{self.title}: files of version {version} {self.deleted} before they were read", hint=ANEW
            ) from None
        staging.flush()
        self.stage.save({**state, "loaded": True})

    def _rows(
        self, files: Sequence[Any], begin: Mapping[str, Any], types: Mapping[str, Any]
    ) -> Iterator[tuple[int, int, pl.DataFrame]]:
        """Yield the rows of files behind a position, with their own positions."""
        for number in range(int(begin["file"]), len(files)):
            row, skipped = 0, int(begin["row"]) if number == begin["file"] else 0
            for rows in self.server.rows(files[number], types):
                row += rows.height
                if row > skipped:
                    yield number, row, rows.tail(min(row - skipped, rows.height))

    def _goes_on(self, poller: Poller) -> bool:
        self.stage.expire(poller.consumed + 1)
        return not poller.is_stopping and self.has_room(poller)

    # ---- the versions after that -----------------------------------------------------------------------------------

    def follow(self, poller: Poller) -> None:
        """Stage the versions that are new."""
        state = self._reached()
        staging = _Staging(self, state, state)
        version = int(state["version"])
        try:
            for version, commit in self.versions(state):
                self.check_version(version, commit, staging.state)
                if not self._stage(version, commit, staging, poller):
                    return
        except FileNotFoundError:
            staging.flush()
            raise InvalidValue(
                f"{self.title}: files of version {version} {self.deleted} before they were read", hint=ANEW
            ) from None
        except InvalidValue:
            staging.flush()
            raise
        staging.flush()
        self.stage.save({**staging.state, "loaded": True})

    def _reached(self) -> dict[str, Any]:
        """Return the state after the last staged rows."""
        state, last = self.stage.state(), self.last_changes()
        facts = {} if last is None else last.facts
        if int(facts.get("version", -1)) >= int(state["version"]):
            state |= {name: value for name, value in facts.items() if name != "columns"}
        return state

    def _stage(self, version: int, commit: Version, staging: _Staging, poller: Poller) -> bool:
        """Stage one version; return whether to read on."""
        state = staging.state
        at = max(commit.at or 0, int(state.get("at", 0)) + 1)
        if commit.has_changes:
            frames = [rows for *_, rows in self._rows(commit.files, {"file": 0, "row": 0}, state["types"])]
            if frames:
                staging.add(self.changed(pl.concat(frames), at), {})
        else:
            begin = {"file": state.get("file", 0), "row": state.get("row", 0)}
            for number, row, rows in self._rows(commit.files, begin, state["types"]):
                staging.add(_inserted(rows, at, self._starts(rows, at)), {"file": number, "row": row})
                if staging.is_full and not (staging.flush() and self._goes_on(poller)):
                    return False
        staging.passed({**commit.position, "version": version, "at": at})
        return not staging.is_full or (staging.flush() and self._goes_on(poller))

    def changed(self, rows: pl.DataFrame, at: int) -> pl.DataFrame:
        """Return the changes of one version, deletions first."""
        is_gone = pl.col(KIND).is_in(sorted(_GONE))
        gone, new = rows.filter(is_gone), rows.filter(~is_gone)
        keys = list(self.options.keys or ())
        if not self.options.is_keyed:
            deleted, ops = gone.filter(pl.col(KIND) == "delete"), {"insert": INSERT, "update_postimage": UPDATE}
            new = _inserted(new.with_columns(pl.col(KIND).replace(ops).alias(OP)), at, None)
            return pl.concat([_deleted(deleted, [at] * deleted.height), new])
        deleted = gone.join(new, on=keys, how="anti", nulls_equal=True).unique(keys, maintain_order=True)
        former = gone.select(keys).unique().with_columns(pl.lit(UPDATE).alias(OP))
        new = new.join(former, on=keys, how="left", nulls_equal=True, maintain_order="left")
        new = new.with_columns(pl.col(OP).fill_null(INSERT))
        starts = self._starts(new, at)
        if starts is None:
            starts = pl.Series(START, [None] * new.height, dtype=pl.Int64)
        starts = new.select(
            pl.when(pl.col(OP) == UPDATE).then(pl.max_horizontal(starts, pl.lit(at))).otherwise(starts).alias(START)
        )[START]
        instants = [self.deletions.add(key, at) for key in deleted.select(keys).rows()]
        return pl.concat([_deleted(deleted, instants), _inserted(new, at, starts)])

    def _starts(self, rows: pl.DataFrame, at: int) -> pl.Series | None:
        """Return the instants before which rows are not in force.

        These are of earlier deletions.
        """
        if not self.options.is_keyed or not self.deletions.is_used:
            return None
        keys: list[tuple[Hashable, ...]] = rows.select(self.options.keys or ()).rows()
        return pl.Series(START, [self.deletions.undone(key, at) for key in keys], dtype=pl.Int64)


class _Staging:
    """Rows that wait to be staged, and the position behind them.

    Args:
        source: stages them.
        table: the state of the source, which has the types of the columns, and which are the table's key.
        state: the position before them.
    """

    def __init__(self, source: VersionedSource, table: Mapping[str, Any], state: Mapping[str, Any]) -> None:
        self.state = dict(state)
        self._source, self._frames, self._rows, self._since = source, list[pl.DataFrame](), 0, 0.0
        types, primary = table["types"], table.get("primary", ())
        columns = (Column(each, "table", False, str(types[each]), is_primary=each in primary) for each in types)
        self._columns = [each.plain for each in columns]

    @property
    def is_full(self) -> bool:
        """True if many rows wait, or some for a while."""
        return self._rows >= PART_ROWS or (self._rows > 0 and time.monotonic() - self._since > LONGEST_DELAY)

    def add(self, rows: pl.DataFrame, within: Mapping[str, int]) -> None:
        """Add rows, and note the place within the files that are read."""
        self._since = self._since if self._rows else time.monotonic()
        self._frames.append(rows)
        self._rows += rows.height
        self.state |= within

    def passed(self, reached: Mapping[str, Any]) -> None:
        """Note that a version was added whole."""
        self.state |= {**reached, "file": 0, "row": 0}

    def flush(self) -> bool:
        """Stage the rows with the position behind them; always true."""
        if self._rows:
            facts = {name: value for name, value in self.state.items() if name not in ("loaded", "columns")}
            self._source.stage.append(
                pl.concat(self._frames, how="vertical_relaxed"), {**facts, "columns": self._columns}
            )
        self._frames, self._rows = [], 0
        return True


def key_in(types: Mapping[str, Any], key: Collection[str]) -> list[str]:
    """Return the columns of a table's key, none if not all of them are read.

    Args:
        types: of the columns that are read.
        key: the names of the key's columns.
    """
    return sorted(key) if types.keys() >= {*key} else []


def _inserted(rows: pl.DataFrame, at: int | None, starts: pl.Series | None) -> pl.DataFrame:
    op = pl.col(OP) if OP in rows.columns else pl.lit(INSERT).alias(OP)
    begin = pl.lit(None, pl.Int64).alias(START) if starts is None else starts
    return rows.with_columns(op, pl.lit(at, pl.Int64).alias(AT), begin).select(_ordered(rows))


def _deleted(rows: pl.DataFrame, instants: Sequence[int]) -> pl.DataFrame:
    at = pl.Series(AT, instants, dtype=pl.Int64)
    made = rows.with_columns(pl.lit(DELETE).alias(OP), at, pl.lit(None, pl.Int64).alias(START))
    return made.select(_ordered(rows))


def _ordered(rows: pl.DataFrame) -> list[str]:
    return [*(name for name in rows.columns if name not in (KIND, OP)), OP, AT, START]


def moved_removed(rows: pl.DataFrame) -> pl.DataFrame:
    """Return rows without pairs that are equal but for their kind."""
    names = [name for name in rows.columns if name != KIND]
    compared = rows.with_columns(
        pl.Series(name, list(map(repr, rows[name].to_list())), pl.String)
        if rows[name].dtype.is_nested()
        else rows[name]
        for name in names
    ).with_row_index(_ROW)
    compared = compared.with_columns(pl.int_range(pl.len()).over([*names, KIND]).alias(_AGAIN))
    gone, new = (compared.filter(pl.col(KIND) == kind) for kind in ("delete", "insert"))
    same = gone.join(new, on=[*names, _AGAIN], how="inner", nulls_equal=True)
    places = pl.concat([same[_ROW], same[f"{_ROW}_right"]])
    return rows.with_row_index(_ROW).filter(~pl.col(_ROW).is_in(places.implode())).drop(_ROW)
