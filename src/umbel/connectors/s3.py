"""S3: files in a bucket."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from umbel.definitions.arguments import (
    DataConnector,
    DataSource,
    Delivery,
    ReadOptions,
    check_text,
    refuse_options,
    require_incremental,
)
from umbel.definitions.secret import Credential
from umbel.errors import InvalidAttribute, InvalidType, InvalidValue, NotSupported
from umbel.formats.declarations import CSV, check_format, letters_of
from umbel.types.durations import parse_duration

if TYPE_CHECKING:
    from umbel.connectors.known_files import NameOrder
    from umbel.connectors.sinks import SinkWriter, WriteOptions
    from umbel.connectors.splits import SplitSource

STATIC = re.compile(r"[A-Za-z0-9._=-]+")
WILDCARD = re.compile(r"\*\*?")
EXTENSION = re.compile(r"\*\.[A-Za-z0-9.]+")
_SPECIFIER = "%-?[aAwdbBmyYHIpMSfzZjUWcxXGuV]"
DATED = re.compile(rf"(?:[A-Za-z0-9._=-]|{_SPECIFIER})*{_SPECIFIER}(?:[A-Za-z0-9._=-]|{_SPECIFIER})*")
RULE = (
    "a part is made of letters, digits and ._=-, may have strftime specifiers like %Y, or is * or **; "
    "the last part may be *.ext"
)


def split_path(path: str) -> tuple[str, str]:
    """Split a path into its static prefix and the rest with wildcards or dates.

    Raises:
        InvalidValue: a part is not in the path grammar; the message quotes it.

    >>> split_path("raw/clicks/%Y/*.json")
    ('raw/clicks/', '%Y/*.json')
    """
    parts = path.removesuffix("/").split("/")
    for position, part in enumerate(parts):
        _check(path, part, is_last=position == len(parts) - 1)
    count = next((position for position, part in enumerate(parts) if not STATIC.fullmatch(part)), len(parts))
    prefix, suffix = "/".join(parts[:count]), "/".join(parts[count:])
    slash = "/" if prefix and (suffix or path.endswith("/")) else ""
    return prefix + slash, suffix


@lru_cache(maxsize=64)
def matcher(suffix: str) -> re.Pattern[str]:
    """Return the regular expression of the path suffix cut by `split_path`.

    >>> bool(matcher("%Y/**/*.json").fullmatch("2024/a/b/x.json"))
    True
    >>> bool(matcher("%Y/*.json").fullmatch("2024/a/x.json"))
    False
    """
    parts = suffix.split("/")
    return re.compile("".join(_pattern(part, is_last=at == len(parts) - 1) for at, part in enumerate(parts)))


def _pattern(part: str, *, is_last: bool) -> str:
    if part == "**":
        return ".+" if is_last else "(?:[^/]+/)*"
    if EXTENSION.fullmatch(part) or part == "*":
        return "[^/]+" + re.escape(part[1:]) + ("" if is_last else "/")
    pieces = re.split(f"({_SPECIFIER})", part)
    made = "".join(_DIRECTIVES.get(each[-1], _TEXT) if at % 2 else re.escape(each) for at, each in enumerate(pieces))
    return made + ("" if is_last else "/")


_TEXT = "[^/]+?"
_DIRECTIVES = {"Y": r"\d{4}", "j": r"\d{1,3}", "f": r"\d{1,6}", "G": r"\d{4}", "z": r"[+-]\d{4}"} | dict.fromkeys(
    "wdmyHIMSUWuV", r"\d{1,2}"
)


def _check(path: str, part: str, *, is_last: bool) -> None:
    kinds = (STATIC, WILDCARD, DATED, EXTENSION) if is_last else (STATIC, WILDCARD, DATED)
    if not any(kind.fullmatch(part) for kind in kinds):
        raise InvalidValue(f"S3: invalid part '{part}' in path '{path}'", hint=RULE)


FORMATS = ("json", "parquet", "avro", "hudi", "delta", "iceberg")
TABLES = ("hudi", "delta", "iceberg")
NATIVE = dict.fromkeys(("delta", "iceberg"), frozenset({"native"}))


@dataclass(frozen=True, kw_only=True)
class S3Connector(DataConnector):
    """Files of one kind in a bucket.

    Args:
        bucket: its name.
        prefix: the common prefix of all paths.
        suffix: the rest of the paths, with wildcards and dates; None for everything below the prefix.
        format: "json", "parquet", "avro", "hudi", "delta", "iceberg" or CSV.
        presorted: True if paths sort by time.
        spread: the maximum distance of a row's time from the date in its file's path.
    """

    bucket: str
    prefix: str
    suffix: str | None
    format: str | CSV
    presorted: bool = False
    spread: str | None = None

    @property
    def nests(self) -> bool:
        return self.format == "json"

    @property
    def place(self) -> tuple[str, ...]:
        return (*super().place, self.bucket, self.prefix) if str(self.format) in NATIVE else super().place

    @property
    def cdcs(self) -> frozenset[str]:  # type: ignore[override]
        """The supported `cdc` values of rows read from the bucket."""
        return NATIVE.get(str(self.format), DataConnector.cdcs)

    @property
    def title(self) -> str:
        return f"{super().title} with format {self.format if isinstance(self.format, str) else 'CSV'}"

    @property
    def target(self) -> str:
        return f"{self.title}, table '{self.prefix}'"

    @property
    def letter_format(self) -> Any:
        return letters_of(self.format)

    def check_writer(self) -> None:
        """Accept a sink: the packages that write are always there."""

    def examine_writer(self, options: WriteOptions) -> None:
        from umbel.connectors.delta_sink import DeltaWriter

        DeltaWriter(self, options).examine()

    def writer_of(self, options: WriteOptions) -> SinkWriter:
        from umbel.connectors.delta_sink import DeltaWriter

        return DeltaWriter(self, options)

    @property
    def connect(self) -> Callable[[], Any]:
        """The function that returns the bucket, where it is read."""
        from umbel.connectors.object_stores import check_s3, s3_bucket

        assert isinstance(self.source, S3)
        check_s3(self.source)
        return partial(s3_bucket, self.source, self.bucket)

    def reader_of(self, options: ReadOptions) -> SplitSource:
        from umbel.connectors.file_source import FileSource
        from umbel.connectors.objects import Objects, import_store

        if self.format in TABLES:
            return self.table_reader(options)
        refuse_tables(self)
        import_store()
        title = f"{type(self.source).__name__} '{self.source.name}', bucket '{self.bucket}'"
        objects = Objects(title, self.connect, self.prefix, partial(is_chosen, self))
        return FileSource(objects, self.format, order=order_of(self, options))

    def table_reader(self, options: ReadOptions) -> SplitSource:
        """Return the reading side of a Delta, Hudi or Iceberg table."""
        from umbel.connectors.delta_tables import readable_address
        from umbel.connectors.object_stores import check_s3

        assert isinstance(self.source, S3)
        check_s3(self.source)
        title = f"S3 '{self.source.name}', table '{self.bucket}/{self.prefix.strip('/')}'"
        if self.suffix:
            raise InvalidValue(f"{title}: a table has one path, found wildcards or dates: {self.suffix!r}")
        return table_source(str(self.format), title, self.prefix, partial(readable_address, self, self.source), options)

    @staticmethod
    def parse_path(path: str) -> tuple[str, str]:
        """Split a path into its static prefix and the rest with wildcards or dates.

        Raises:
            InvalidValue: a part of the path is not in the path grammar.

        >>> S3Connector.parse_path("raw/clicks/%Y/*.json")
        ('raw/clicks/', '%Y/*.json')
        """
        return split_path(path)

    def check_sink(self, delivery: Delivery) -> None:
        subject = f"sink to {self.title}"
        assert isinstance(self.source, S3)
        refuse_options(subject, cdc=delivery.cdc)
        if self.format != "delta":
            raise InvalidValue(
                f"{subject}: format must be 'delta', found {self.format!r}", hint='.bucket(..., format="delta")'
            )
        require_incremental(subject, delivery.how)
        if self.suffix:
            raise InvalidValue(
                f"{subject}: a table has one path, found wildcards or dates: {self.suffix!r}",
                hint='prefix="tables/orders"',
            )
        if self.source.aws_access_key_id or self.source.aws_secret_access_key or self.source.role_arn:
            raise InvalidValue(
                f"{subject}: keys and role_arn cannot be set; the platform's own role writes", hint="leave them out"
            )


def table_source(
    format: str, title: str, path: str, address: Callable[[], tuple[str, dict[str, str]]], options: ReadOptions
) -> SplitSource:
    """Return the reading side of a table of versions.

    Args:
        format: "delta", "hudi" or "iceberg".
        title: of the table, for messages.
        path: its name.
        address: returns its address and the options of its storage.
        options: of the source.
    """
    if format == "iceberg":
        from umbel.connectors.iceberg_catalogs import from_path, iceberg
        from umbel.connectors.iceberg_source import IcebergSource
        from umbel.connectors.iceberg_tables import IcebergPlace

        iceberg()
        return IcebergSource(IcebergPlace(title, partial(from_path, title, address)), path, options)
    if format == "hudi":
        from umbel.connectors.hudi_source import HudiSource, hudi
        from umbel.connectors.hudi_tables import HudiPlace

        if options.cdc != "native":
            raise NotSupported(f"{title}: cdc '{options.cdc}' of a Hudi table is not read", hint='cdc="native"')
        hudi()
        return HudiSource(HudiPlace(title, address), path, options)
    from umbel.connectors.delta_source import DeltaSource
    from umbel.connectors.delta_tables import DeltaPlace

    return DeltaSource(DeltaPlace(title, address), path, options)


def is_chosen(connector: S3Connector, name: str) -> bool:
    """Return True for an object below a connector's prefix that matches and is not hidden."""
    prefix, suffix = connector.prefix, connector.suffix
    if suffix is None:
        matches = name.startswith(prefix)
    elif suffix:
        matches = name.startswith(prefix) and matcher(suffix).fullmatch(name[len(prefix) :]) is not None
    else:
        matches = name == prefix or name.startswith(prefix.rstrip("/") + "/")
    below = name.removeprefix(prefix.rpartition("/")[0]).strip("/")
    return matches and not any(part.startswith((".", "_")) for part in below.split("/"))


def order_of(connector: S3Connector, options: ReadOptions) -> NameOrder | None:
    """Return what the names of a connector's objects say of their order."""
    from umbel.connectors.path_dates import Presorted, dated_folders

    if connector.presorted:
        return Presorted()
    if connector.spread is None or not connector.suffix:
        return None
    return dated_folders(connector.prefix, connector.suffix, parse_duration(connector.spread), options.disorder)


def refuse_tables(connector: S3Connector) -> None:
    """Refuse formats that cannot be read as files.

    Raises:
        NotSupported: it is one.
    """
    if connector.format in TABLES:
        raise NotSupported(
            f"a source with format '{connector.format}' cannot be read yet",
            hint="json, parquet, avro and CSV can, and Delta, Hudi and Iceberg tables on S3 and in folders",
        )
    if connector.format == "avro":
        from umbel.formats.avro_blocks import avro

        avro()


@dataclass(frozen=True, kw_only=True)
class S3(DataSource):
    """S3 buckets, also of S3-compatible storage.

    Args:
        aws_access_key_id: the id of a key with read access.
        aws_secret_access_key: the secret of the same key.
        role_arn: a role with read access, which is assumed with the key, or with the worker's own credentials.
    """

    aws_access_key_id: Credential | None = None
    aws_secret_access_key: Credential | None = field(default=None, repr=False)
    role_arn: str | None = None

    needs: ClassVar[str] = "a bucket, and a prefix or a path: .bucket(...)"

    def bucket(
        self,
        bucket_name: str,
        prefix: str | None = None,
        path: str | None = None,
        format: Any = CSV(),  # noqa: B008  it is frozen
        presorted: bool = False,
        spread: str | None = None,
    ) -> S3Connector:
        """Return the connector for files in one bucket.

        Args:
            bucket_name: its name.
            prefix: the common prefix of their paths.
            path: their paths with wildcards and dates, instead of a prefix.
            format: "json", "parquet", "avro", "hudi", "delta", "iceberg" or CSV(...).
            presorted: True if paths sort by time.
            spread: the maximum distance of a row's time from the date in its file's path; needs `path`.
        """
        return in_bucket(S3Connector, self, bucket_name, prefix, path, format, presorted, spread)


Made = TypeVar("Made", bound=S3Connector)


def in_bucket(
    kind: type[Made],
    source: DataSource,
    bucket: str,
    prefix: str | None,
    path: str | None,
    format: Any,
    presorted: bool,
    spread: str | None,
) -> Made:
    """Return a connector of a kind for files in a bucket, with its arguments checked."""
    title = f"{type(source).__name__} '{source.name}'"
    check_text(title, "bucket_name", bucket)
    for name, value in (("prefix", prefix), ("path", path)):
        if value:
            check_text(title, name, value)
    subject = f"{title}, bucket '{bucket}'"
    if (prefix is None) == (path is None):
        raise InvalidAttribute(f"{subject}: give either prefix or path", hint='prefix="folder", or path="folder/%Y/*"')
    if spread is not None and path is None:
        raise InvalidAttribute(f"{subject}: spread needs path", hint='path="folder/%Y-%m-%d/*"')
    check_format(subject, format, FORMATS, CSV)
    _check_spread(subject, spread)
    start, rest = (prefix or "", None) if path is None else split_path(path)
    return kind(
        source=source, bucket=bucket, prefix=start, suffix=rest, format=format, presorted=presorted, spread=spread
    )


def _check_spread(subject: str, spread: Any) -> None:
    if spread is None:
        return
    try:
        parse_duration(spread)
    except (InvalidType, InvalidValue) as error:
        raise InvalidValue(f"{subject}: spread: {error.message}", hint=error.hint) from error
