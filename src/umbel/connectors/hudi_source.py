"""Reading a Hudi table: the rows as of one commit, then what later ones change.

A commit replaces data files by new ones that have the same rows but for its changes. The rows that differ are the changes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

import polars as pl

from umbel.connectors.sql.following import ANEW
from umbel.connectors.versioned_source import KIND, VersionedSource, moved_removed
from umbel.errors import InvalidValue, PackageError, Transient, UmbelError

AT_ONCE = 65_536
_LIBRARY_ERROR = "HudiCoreError"
"""The error of the library, which has no name to import."""
_NONE = (None, "", "null")
_DROPPED = "hoodie.datasource.write.drop.partition.columns"


@dataclass(frozen=True, slots=True)
class HudiFile:
    """A data file of a table.

    Args:
        path: below the table.
        schema: of the columns to read, in Arrow.
        kind: insert for a file whose rows came, delete for one whose rows went.
    """

    path: str
    schema: Any
    kind: str = "insert"


@dataclass(frozen=True, slots=True)
class HudiCommit:
    """One commit of a table.

    Args:
        instant: its name.
        at: its instant in µs.
        files: those that it adds and removes.
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
class HudiPlace:
    """A table in a folder or a bucket.

    Args:
        title: of it, for messages.
        address: returns its address and storage options.
    """

    title: str
    address: Callable[[], tuple[str, dict[str, str]]] = field(repr=False)

    def opened(self) -> Any:
        """Return the table as it is now.

        Raises:
            InvalidValue: there is none, or it cannot be read.
            Transient: its storage does not answer.
        """
        from hudi import HudiTableBuilder

        uri, options = self.address()
        lower = {name.lower(): value for name, value in options.items() if name.startswith("AWS_")}
        with self.described():
            table = HudiTableBuilder.from_base_uri(uri).with_storage_options(lower).build()
        if table.is_mor:
            raise InvalidValue(
                f"{self.title}: a table of type MERGE_ON_READ is not read", hint="use COPY_ON_WRITE, or read a copy"
            )
        if str(table.hudi_options().get(_DROPPED, "")).lower() == "true":
            raise InvalidValue(f"{self.title}: its files lack the partition columns", hint=f"{_DROPPED} = false")
        return table

    def instants(self, table: Any) -> dict[str, tuple[Any, bool]]:
        """Return the complete commits in order, by their names, and whether they only move rows."""
        listed = table.get_timeline()
        with self.described():
            clustering = {each.timestamp for each in listed.get_completed_clustering_commits()}
            found = [*listed.get_completed_commits(), *listed.get_completed_replacecommits()]
        known = {each.timestamp: (each, each.timestamp in clustering) for each in found}
        return dict(sorted(known.items()))

    def check_files(self, table: Any, instant: Any, before: set[str], after: set[str]) -> None:
        """Check that the files that a commit replaced and wrote are there.

        Args:
            table: the table.
            instant: of the commit.
            before: the data files as of the commit before.
            after: those as of this one.

        Raises:
            FileNotFoundError: some were deleted.
        """
        with self.described():
            record = json.loads(table.get_timeline().get_instant_metadata_in_json(instant))
        groups = {path.rpartition("/")[2].rpartition(".")[0] for path in before}
        names = {(name.partition("_")[0], name.rpartition("_")[2]) for name in groups}
        written = [each for stats in (record.get("partitionToWriteStats") or {}).values() for each in stats]
        replaced = {each for ids in (record.get("partitionToReplaceFileIds") or {}).values() for each in ids}
        former = {(each["fileId"], each["prevCommit"]) for each in written if each.get("prevCommit") not in _NONE}
        is_there = {each["path"] for each in written if each.get("path")} <= after and former <= names
        if not is_there or not replaced <= {group for group, _ in names}:
            raise FileNotFoundError

    def files(self, table: Any, instant: str) -> set[str]:
        """Return the data files as of a commit."""
        from hudi import HudiReadOptions

        with self.described():
            slices = table.get_file_slices(HudiReadOptions().with_as_of_timestamp(instant))
        if any(each.has_log_files() for each in slices):
            raise InvalidValue(f"{self.title}: it has log files, which are not read", hint="compact the table")
        return {each.base_file_relative_path() for each in slices}

    def schema(self, table: Any) -> Any:
        """Return the columns of the table, in Arrow."""
        with self.described():
            return table.get_schema()

    def rows(self, file: HudiFile, types: Mapping[str, Any]) -> Iterator[pl.DataFrame]:
        """Yield the rows of a file in order, with their kind.

        Args:
            file: of the table.
            types: the columns to read.

        Raises:
            FileNotFoundError: it was deleted.
        """
        import pyarrow as pa
        import pyarrow.dataset as ds
        from deltalake.fs.fs_handler import DeltaStorageHandler
        from pyarrow import fs

        with self.described():
            fragment = ds.ParquetFileFormat().make_fragment(
                file.path, fs.PyFileSystem(DeltaStorageHandler(*self.address()))
            )
            schema = pa.schema([file.schema.field(name) for name in types])
            for batch in fragment.to_batches(schema=schema, batch_size=AT_ONCE, use_threads=False, batch_readahead=1):
                yield pl.DataFrame(pl.from_arrow(pa.Table.from_batches([batch]))).with_columns(
                    pl.lit(file.kind).alias(KIND)
                )

    @contextmanager
    def described(self) -> Iterator[None]:
        """Turn errors of the storage and the library into umbel's; their text may quote credentials."""
        import pyarrow as pa

        try:
            yield
        except FileNotFoundError:
            raise
        except pa.ArrowInvalid as error:
            reason = str(error).partition("\n")[0][:200]
            raise InvalidValue(f"{self.title}: a file cannot be read: {reason}", hint="see what wrote it") from None
        except OSError:
            raise Transient(f"{self.title}: its storage cannot be read", hint="see that it can be reached") from None
        except Exception as error:
            if type(error).__name__ != _LIBRARY_ERROR:
                raise
            raise self._translated(str(error)) from None

    def _translated(self, text: str) -> UmbelError:
        if "hoodie.properties" in text and "not found" in text:
            return InvalidValue(f"{self.title}: there is no Hudi table", hint="create it first")
        if text.startswith("Storage error"):
            return Transient(f"{self.title}: its storage cannot be read", hint="see that it can be reached")
        return InvalidValue(f"{self.title}: it cannot be read: {text[:200]}", hint="see what wrote it")


@dataclass(frozen=True)
class HudiSource(VersionedSource):
    """A Hudi table whose commits are read."""

    server: HudiPlace
    deleted: ClassVar[str] = "were deleted (by cleaning)"

    def first_state(self) -> dict[str, Any]:
        table = self.server.opened()
        types = self.columns_in({each.name: str(each.type) for each in self.server.schema(table)})
        instants = list(self.server.instants(table))
        return {"version": 0, "instant": instants[-1] if instants else "", "instants": instants, "types": types}

    def first_files(self, state: Mapping[str, Any]) -> Sequence[HudiFile]:
        table = self.server.opened()
        if not state["instant"]:
            return []
        self._new(table, state)
        schema = self.server.schema(table)
        return [HudiFile(path, schema) for path in sorted(self.server.files(table, state["instant"]))]

    def versions(self, state: Mapping[str, Any]) -> Iterator[tuple[int, HudiCommit]]:
        new = self._new(self.server.opened(), state)
        if not new:
            return
        table = self.server.opened()  # one that knows those commits: the timeline is read anew, the files' view is not
        schema = self.server.schema(table)
        self._check_types(schema, state["types"])
        before = self.server.files(table, state["instant"]) if state["instant"] else set[str]()
        done = tuple(state["instants"])
        for number, (instant, (found, only_moves)) in enumerate(new.items(), int(state["version"]) + 1):
            after = self.server.files(table, instant)
            self.server.check_files(table, found, before, after)
            gone, came = ([] if only_moves else sorted(each) for each in (before - after, after - before))
            files = [HudiFile(path, schema, "delete") for path in gone] + [HudiFile(path, schema) for path in came]
            before, done = after, (*done, instant)
            yield number, HudiCommit(instant, found.epoch_mills * 1000, tuple(files), done)

    def _new(self, table: Any, state: Mapping[str, Any]) -> dict[str, tuple[Any, bool]]:
        """Return the commits after a state; refuse another history before it."""
        found, last, known = self.server.instants(table), state["instant"], {*state["instants"]}
        if last and last not in found:
            raise InvalidValue(
                f"{self.title}: commit {last}, which was read, is not in the table's timeline: it was archived before later "
                "ones were read, or rolled back, or the table was made anew",
                hint=ANEW,
            )
        late = [each for each in found if each <= last and each not in known]
        if late:
            raise InvalidValue(
                f"{self.title}: commit {late[0]} was completed after {last}, which is later and was read: two writers wrote at "
                "once",
                hint=ANEW,
            )
        return {each: facts for each, facts in found.items() if each > last}

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
