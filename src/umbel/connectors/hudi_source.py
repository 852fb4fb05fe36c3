"""Reading a Hudi table: the rows as of one commit, then what later ones change.

A commit changes file groups. The rows in which a group's slice before differs from the one after are the changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import polars as pl

from umbel.connectors.hudi_tables import HudiFile, HudiPlace
from umbel.connectors.sql.following import ANEW
from umbel.connectors.versioned_source import VersionedSource, key_in, moved_removed
from umbel.errors import InvalidValue, PackageError


@dataclass(frozen=True, slots=True)
class HudiCommit:
    """One commit of a table.

    Args:
        instant: its name.
        at: its instant in µs.
        files: the slices that it adds and removes.
        instants: all commits up to it.
    """

    instant: str
    at: int
    files: tuple[HudiFile, ...]
    instants: tuple[str, ...]

    @property
    def position(self) -> Mapping[str, Any]:
        """Its name, and those of all before."""
        return {"instant": self.instant, "instants": list(self.instants)}

    @property
    def has_changes(self) -> bool:
        """True if rows changed or were deleted."""
        return any(each.kind != "insert" for each in self.files)


@dataclass(frozen=True)
class HudiSource(VersionedSource):
    """A Hudi table whose commits are read."""

    server: HudiPlace
    deleted: ClassVar[str] = "were deleted (by cleaning)"

    def first_state(self) -> dict[str, Any]:
        table = self.server.opened()
        types = self.columns_in({each.name: str(each.type) for each in self.server.schema(table)})
        instants = list(self.server.instants(table))
        last, primary = instants[-1] if instants else "", key_in(types, self.server.key(table))
        return {"version": 0, "instant": last, "instants": instants, "types": types, "primary": primary}

    def first_files(self, state: Mapping[str, Any]) -> Sequence[HudiFile]:
        listed = self.server.opened()
        if not state["instant"]:
            return []
        instants = self.server.instants(listed)
        self._new(listed, instants, state)
        table = self.server.opened()  # one that knows those commits: the timeline is read anew, the files' view is not
        schema = self.server.schema(table)
        found = self.server.slices(table, state["instant"])
        self.server.check(table, instants, state["instant"], found)
        return [HudiFile(each, schema) for _, each in sorted(found.items())]

    def versions(self, state: Mapping[str, Any]) -> Iterator[tuple[int, HudiCommit]]:
        listed = self.server.opened()
        instants = self.server.instants(listed)
        new = self._new(listed, instants, state)
        if not new:
            return
        table = self.server.opened()
        schema = self.server.schema(table)
        self._check_types(schema, state["types"])
        last, done = state["instant"], tuple(state["instants"])
        before = self.server.slices(table, last) if last else {}
        for number, (instant, found) in enumerate(new.items(), int(state["version"]) + 1):
            record, after = self.server.record(table, found), self.server.slices(table, instant)
            record.check(after, instants)
            groups = [] if record.only_moves else sorted(record.groups)
            if groups:
                self.server.check(table, instants, last, before, {*groups})
                record.check_before(before, after)
            gone = (HudiFile(before[each], schema, "delete") for each in groups if each in before)
            came = (HudiFile(after[each], schema) for each in groups if each in after)
            files = (*gone, *came)
            before, last, done = after, instant, (*done, instant)
            yield number, HudiCommit(instant, found.epoch_mills * 1000, files, done)

    def _new(self, table: Any, found: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
        """Return the commits after a state; refuse another history before it."""
        last, known = state["instant"], {*state["instants"]}
        if last and last not in found:
            raise InvalidValue(
                f"{self.title}: commit {last}, which was read, is not in the table's timeline: it was archived before later "
                "ones were read, or rolled back, or the table was made anew",
                hint=ANEW,
            )
        late = [each for each in found if each <= last and each not in known]
        if late := [each for each in late if not self.server.record(table, found[each]).only_moves]:
            raise InvalidValue(
                f"{self.title}: commit {late[0]} was completed after {last}, which is later and was read: two writers wrote at "
                "once",
                hint=ANEW,
            )
        return {name: each for name, each in found.items() if name > last}

    def _check_types(self, schema: Any, types: Mapping[str, str]) -> None:
        now = {each.name: str(each.type) for each in schema}
        for name, kind in types.items():
            if name not in now:
                raise InvalidValue(f"{self.title}: column '{name}' was dropped, or renamed", hint=ANEW)
            if now[name] != kind:
                raise InvalidValue(
                    f"{self.title}: column '{name}' was of type {kind}, and is of {now[name]}", hint=ANEW
                )

    def check_version(self, version: int, commit: HudiCommit, state: dict[str, Any]) -> None:
        """Accept every commit: the table was checked when they were listed."""

    def changed(self, rows: pl.DataFrame, at: int) -> pl.DataFrame:
        """Return the changes of one commit, without rows that only moved."""
        return super().changed(moved_removed(rows), at)


def hudi() -> None:
    """Check that the package that reads Hudi tables is there.

    Raises:
        PackageError: it is not installed.
    """
    try:
        import hudi  # noqa: F401
    except ImportError as error:
        raise PackageError("Hudi tables need the package hudi", hint="pip install 'umbel[hudi]'") from error
