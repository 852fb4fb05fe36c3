"""Delta tables: where they are, their log, and their data files."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import polars as pl

from umbel.connectors.buckets import ENDPOINTS, LOCATION, REGION, REGIONS, check_name, folder_of
from umbel.connectors.object_stores import keys_of
from umbel.connectors.objects import CODE, LASTING
from umbel.connectors.versioned_source import KIND
from umbel.errors import InvalidValue, Transient
from umbel.types.arrow import check_texts

if TYPE_CHECKING:
    from umbel.connectors.s3 import S3, S3Connector

FEED = "delta.enableChangeDataFeed"
AT_ONCE = 65_536
_READABLE = frozenset({"timestampNtz", "v2Checkpoint", "vacuumProtocolCheck", "domainMetadata", "appendOnly"})
_LOG = "_delta_log"
_ELSEWHERE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/|/")
"""Matches an absolute path of a file; others are below the table."""
_REACH = (
    "see that the storage answers and the table can be read; in a bucket with the credentials of the process, such as "
    "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_REGION"
)


def options_of(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the storage options of tables on S3."""
    endpoint = next((environment[name] for name in ENDPOINTS if environment.get(name)), None)
    region = next((environment[name] for name in REGIONS if environment.get(name)), REGION)
    found = {"AWS_REGION": region, "timeout": "60s"}
    if endpoint is not None:
        found |= {"AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": str(endpoint.startswith("http:")).lower()}
    return found


def address_of(connector: S3Connector, environment: Mapping[str, str] = os.environ) -> tuple[str, dict[str, str]]:
    """Return the address of a connector's table, and its storage options.

    Raises:
        InvalidValue: its path would be that of another table in an address, which is cut and decoded.
    """
    check_name(connector.bucket, connector.title)
    path = connector.prefix.strip("/")
    if location := environment.get(LOCATION):
        return str(folder_of(location) / connector.bucket / path), {}
    if odd := sorted({*path} & {*("#?" if connector.format == "iceberg" else "#?%")}):
        raise InvalidValue(
            f"{connector.title}, path '{path}': it cannot have {odd}", hint="give the table another path"
        )
    return f"s3://{connector.bucket}/{path}", options_of(environment)


def readable_address(connector: S3Connector, source: S3) -> tuple[str, dict[str, str]]:
    """Return the address of a table, and storage options with the keys of its source."""
    address, options = address_of(connector)
    if options and (keys := keys_of(source)) is not None:
        names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
        options |= {name: value for name, value in zip(names, keys, strict=True) if value is not None}
    return address, options


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file of a table.

    Args:
        path: below the table.
        partition: the values of the partition columns, as the log has them.
        kind: of its rows: insert or delete; None for a file of changes, whose rows say it.
    """

    path: str
    partition: Mapping[str, Any]
    kind: str | None = "insert"


@dataclass(frozen=True, slots=True)
class TableVersion:
    """One version of a table as its log has it.

    Args:
        at: its instant in µs, None if it has none.
        files: those that it adds, removes, or has changes in.
        schema: the types of the columns by name, where it sets them.
        settings: the properties of the table, where it sets them.
        table: the identity of the table, where it sets it.
        features: what a reader must know, where it sets that.
    """

    at: int | None
    files: tuple[DataFile, ...]
    schema: Mapping[str, Any] | None
    settings: Mapping[str, str] | None
    table: str | None
    features: frozenset[str]

    @property
    def position(self) -> Mapping[str, Any]:
        """Nothing: its number is its place."""
        return {}

    @property
    def has_changes(self) -> bool:
        """True if rows changed or were deleted."""
        return any(each.kind != "insert" for each in self.files)


@dataclass(frozen=True)
class DeltaPlace:
    """A table in a folder or a bucket.

    Args:
        title: of it, for messages.
        address: returns its address and storage options.
    """

    title: str
    address: Callable[[], tuple[str, dict[str, str]]] = field(repr=False)

    def opened(self, version: int | None = None) -> Any:
        """Return the table as of a version, the latest for None.

        Raises:
            InvalidValue: there is none, or none with that version.
        """
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        uri, options = self.address()
        with self.described():
            try:
                return DeltaTable(uri, version=version, storage_options=options)
            except TableNotFoundError:
                shown = uri if "://" in uri else f"file:{uri}"
                raise InvalidValue(
                    f"{self.title}: there is no Delta table at {shown}", hint="create it first"
                ) from None

    def commit(self, version: int) -> TableVersion:
        """Return one version of the log.

        Raises:
            FileNotFoundError: the log does not have it any more.
        """
        path = f"{_LOG}/{version:020}.json"
        with self.described():
            found, files = with_size(self.address(), path)
            data = files.open_input_stream(path).read()
        actions = [json.loads(line) for line in data.splitlines() if line.strip()]
        made = _commit([next(iter(each.items())) for each in actions if each])
        if made.at is not None:
            return made
        # as the protocol has it, where a writer has left the instant out
        return replace(made, at=found.mtime_ns // 1000)

    def snapshot(self, version: int) -> list[DataFile]:
        """Return the files of a version, ordered."""
        import pyarrow as pa

        with self.described():
            added = pa.table(self.opened(version).get_add_actions(flatten=False))
        # not the statistics: least and largest values may be none of Python's
        actions = added.select([name for name in ("path", "partition") if name in added.column_names]).to_pylist()
        files = (DataFile(each["path"], each.get("partition") or {}) for each in actions)
        return sorted(files, key=lambda file: file.path)

    def rows(self, file: DataFile, types: Mapping[str, Any]) -> Iterator[pl.DataFrame]:
        """Yield the rows of a file in order, with their kind.

        Args:
            file: of the table.
            types: the columns to read, with their types as in the log.

        Raises:
            FileNotFoundError: it was deleted.
            InvalidValue: it is of another table.
        """
        import pyarrow as pa
        import pyarrow.dataset as ds

        if _ELSEWHERE.match(file.path):
            raise InvalidValue(
                f"{self.title}: the table is a shallow clone, with files of another table: {file.path}",
                hint="read that table, or make a deep clone",
            )
        schema = arrow_schema(types)
        stored = [each for each in schema if each.name not in file.partition]
        further = [pa.field(KIND, pa.string())] if file.kind is None else []
        with self.described():
            parquet = ds.ParquetFileFormat(coerce_int96_timestamp_unit="us")  # in ns they end in the year 2262
            path = unquote(file.path)
            fragment = parquet.make_fragment(path, with_size(self.address(), path)[1])
            batches = fragment.to_batches(
                schema=pa.schema([*stored, *further]), batch_size=AT_ONCE, use_threads=False, batch_readahead=1
            )
            for batch in batches:
                count = batch.num_rows
                columns = {name: batch.column(name) for name in batch.schema.names}
                for each in schema:
                    if each.name in file.partition:
                        columns[each.name] = pa.repeat(_typed(file.partition[each.name], each.type), count)
                if file.kind is not None:
                    columns[KIND] = pa.repeat(pa.scalar(file.kind), count)
                made = pa.table(columns)
                check_texts(made, f"{self.title}, file {file.path}")
                yield pl.DataFrame(pl.from_arrow(made)).select([*types, KIND])

    @contextmanager
    def described(self) -> Iterator[None]:
        """Turn errors of the storage and the library into umbel's.

        Their text may quote credentials.
        """
        import pyarrow as pa
        from deltalake.exceptions import DeltaError, DeltaProtocolError

        try:
            yield
        except (FileNotFoundError, InvalidValue, Transient):
            raise
        except (DeltaError, OSError, pa.ArrowException) as error:
            text = str(error)
            code = CODE.search(text)
            reason = code[1] if code else text.partition("\n")[0][:300]
            if code and code[1] in LASTING:
                raise InvalidValue(f"{self.title}: {LASTING[code[1]][0]}", hint=LASTING[code[1]][1]) from None
            if isinstance(error, DeltaProtocolError | pa.ArrowInvalid):
                raise InvalidValue(f"{self.title}: it cannot be read: {reason}", hint="see what wrote it") from None
            raise Transient(f"{self.title}: {reason}", hint=_REACH) from None


def with_size(address: tuple[str, dict[str, str]], path: str) -> tuple[Any, Any]:
    """Return the facts of a file, and a file system that has its size.

    To open a file of unknown size the library asks the storage while it holds Python's lock, so that no other thread runs.

    Raises:
        FileNotFoundError: it was deleted.
    """
    from deltalake.fs.fs_handler import DeltaStorageHandler
    from pyarrow import fs

    (found,) = fs.PyFileSystem(DeltaStorageHandler(*address)).get_file_info([path])
    if found.size is None:
        raise FileNotFoundError(path)
    return found, fs.PyFileSystem(DeltaStorageHandler(*address, {path: found.size}))


def check_features(title: str, features: Sequence[str], settings: Mapping[str, str]) -> None:
    """Refuse a table that needs more of a reader than umbel knows.

    Raises:
        InvalidValue: it is one; the message has the property.
    """
    if settings.get("delta.columnMapping.mode", "none") != "none" or "columnMapping" in features:
        raise InvalidValue(
            f"{title}: a table with delta.columnMapping.mode is not read", hint="write a copy without column mapping"
        )
    if unknown := sorted({*features} - _READABLE):
        remedies = {"deletionVectors": "ALTER TABLE … SET TBLPROPERTIES (delta.enableDeletionVectors = false); then "}
        remedy = "".join(remedies.get(each, "") for each in unknown)
        raise InvalidValue(
            f"{title}: the table needs readers that know {', '.join(unknown)}",
            hint=f"{remedy}ALTER TABLE … DROP FEATURE {unknown[0]}",
        )


def arrow_schema(types: Mapping[str, Any]) -> Any:
    """Return columns with types as in the log as a schema of Arrow."""
    import pyarrow as pa
    from deltalake import Schema

    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in types.items()]
    return pa.schema(Schema.from_json(json.dumps({"type": "struct", "fields": fields})).to_arrow())


def types_of(schema: str) -> dict[str, Any]:
    """Return the columns of a schema in JSON, with their types."""
    return {each["name"]: each["type"] for each in json.loads(schema)["fields"]}


def _commit(actions: Sequence[tuple[str, Any]]) -> TableVersion:
    def of(name: str) -> list[Any]:
        return [found for each, found in actions if each == name]

    info, meta, protocol = of("commitInfo"), of("metaData"), of("protocol")
    changes = [_file(each, None) for each in of("cdc")]
    added = [_file(each, "insert") for each in of("add") if each.get("dataChange", True)]
    removed = [_file(each, "delete") for each in of("remove") if each.get("dataChange", True)]
    stamp = next((each.get("inCommitTimestamp") or each.get("timestamp") for each in info), None)
    return TableVersion(
        None if stamp is None else int(stamp) * 1000,
        tuple(changes or [*removed, *added]),
        types_of(meta[-1]["schemaString"]) if meta else None,
        (meta[-1].get("configuration") or {}) if meta else None,
        meta[-1]["id"] if meta else None,
        frozenset(feature for each in protocol for feature in each.get("readerFeatures") or ()),
    )


def _file(action: Mapping[str, Any], kind: str | None) -> DataFile:
    return DataFile(action["path"], action.get("partitionValues") or {}, kind)


def _typed(value: Any, kind: Any) -> Any:
    """Return the value of a partition column as a scalar of Arrow."""
    import pyarrow as pa

    if not isinstance(value, str) or pa.types.is_string(kind):
        return pa.scalar(None if value == "" else value, kind)
    if not value:
        return pa.scalar(None, kind)
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.scalar(value.removesuffix("Z")).cast(pa.timestamp(kind.unit)).cast(kind)
    return pa.scalar(value).cast(kind)


def in_folder(path: str) -> tuple[str, dict[str, str]]:
    """Return the address of a table in a folder of this machine."""
    return path, {}


def local_place(title: str, path: str) -> DeltaPlace:
    """Return a table in a folder of this machine."""
    return DeltaPlace(title, partial(in_folder, path))
