"""Shared base of connector declarations: keyword arguments checked against their types.

All errors of a declaration are reported at once.
"""

from __future__ import annotations

import types
import typing
import warnings
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Self, cast

from umbel.errors import InvalidType, InvalidValue, NotSupported, did_you_mean
from umbel.plugins import Registry
from umbel.types.arguments import ArgumentsMeta

if typing.TYPE_CHECKING:
    from umbel.connectors.sinks import SinkWriter, WriteOptions
    from umbel.connectors.splits import SplitSource

REFERENCE = "is_reference"
ISOLATE, WAIT = "isolate", "wait"
"""Of rows that the destination of a sink refuses: they become dead letters, or the sink waits."""
ELSEWHERE, SAME_PLACE = {"destination": True}, {"destination": False}
"""Of a field whose values are, or are not, different destinations of a sink; a credential is not unless it says so."""


class DeclarationMeta(ArgumentsMeta):
    """Checked arguments, of which a class may ignore unknown ones, or references to other objects."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:  # noqa: N805  a metaclass
        if kwargs.pop(REFERENCE, False):  # a deserialised reference
            return cls.get(kwargs["name"])  # type: ignore[attr-defined]
        return super().__call__(*args, **(_known(cls, kwargs) if cls.ignores_unknown else kwargs))  # type: ignore[attr-defined]


def _known(cls: type, provided: Mapping[str, Any]) -> dict[str, Any]:
    """Return the known arguments; a warning names the others."""
    known = [each.name for each in fields(cls) if each.init]
    unknown = [name for name in provided if name not in known]
    if unknown:
        report = ", ".join(f"'{name}'{did_you_mean(name, known)}" for name in unknown)
        warnings.warn(f"{cls.__name__} ignores arguments it does not know: {report}", UserWarning, stacklevel=3)
    return {name: value for name, value in provided.items() if name in known}


@cache
def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _fits(value: Any, hint: Any) -> bool:
    origin = typing.get_origin(hint)
    if hint is Any:
        return True
    if origin in (types.UnionType, typing.Union):
        return any(_fits(value, member) for member in typing.get_args(hint))
    if origin is typing.Literal:
        return value in typing.get_args(hint)
    kind = origin or hint
    return isinstance(value, kind) and not (kind is int and isinstance(value, bool))


def _spelled(hint: Any) -> str:
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        return " or ".join(_spelled(member) for member in typing.get_args(hint))
    if typing.get_origin(hint) is typing.Literal:
        return "one of " + ", ".join(repr(member) for member in typing.get_args(hint))
    return "None" if hint is type(None) else getattr(hint, "__name__", str(hint))


def _shown(value: Any, hint: Any) -> str:
    """Return a value for a message; a credential's type only."""
    return f"a value of type {type(value).__name__}" if _may_be_secret(hint) else repr(value)


def _may_be_secret(hint: Any) -> bool:
    return bool(getattr(hint, "hides_values", False)) or any(_may_be_secret(member) for member in typing.get_args(hint))


class Declared(metaclass=DeclarationMeta):
    """A frozen record with checked arguments."""

    positional: ClassVar[bool] = False
    hides_values: ClassVar[bool] = False
    """True if a value in the place of one may be secret, and is left out of messages."""
    ignores_unknown: ClassVar[bool] = False
    """True to warn of unknown arguments instead of refusing them: programs written for older versions pass some."""

    @classmethod
    def wrong_types(cls, provided: Mapping[str, Any]) -> dict[str, str]:
        """Return the errors of values that do not fit their annotations, by argument."""
        own = {each.name for each in fields(cast("Any", cls))} & set(provided)  # without variables of the class
        hints = {name: hint for name, hint in _hints(cls).items() if name in own}
        return {
            name: f"expected {_spelled(hint)}, found {_shown(provided[name], hint)}"
            for name, hint in hints.items()
            if not _fits(provided[name], hint)
        }


@dataclass(frozen=True, kw_only=True)
class DataSource(Declared):
    """An external system with data: its address and credentials.

    Args:
        name: unique among the sources.
    """

    name: str
    is_reference: bool = field(default=False, init=False, metadata={"sent": True})

    ignores_unknown: ClassVar[bool] = True
    needs: ClassVar[str] = ""
    """The part and the method that make a source a connector, for messages."""

    @classmethod
    def get(cls, name: str) -> Self:
        """Return a reference to a source registered elsewhere under `name`."""
        found = object.__new__(cls)
        for each in fields(cls):
            object.__setattr__(found, each.name, None if each.default is MISSING else each.default)
        object.__setattr__(found, "name", name)
        object.__setattr__(found, "is_reference", True)
        return found


CONNECTORS = Registry("connector", "umbel.connectors", DataSource)


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """The delivery options of a sink: the arguments of `@sink`."""

    cdc: str | None
    every: str | None
    how: Any
    renames: Mapping[str, str]
    since: datetime | None
    until: datetime | None


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """The part of a source's definition that its reader needs.

    Args:
        directory: the deployment's folder.
        key: of the source's position; the same for equal definitions at any time.
        dataset: the name of the dataset.
        cdc: "append", "upsert", "debezium" or "native".
        every: the polling period in µs.
        disorder: the maximum lag of a row in µs.
        columns: the requested columns; None for all there are.
        keys: the columns that the dataset's keys are read from; None if one is computed.
        is_keyed: whether the dataset has keys.
        timestamp: the column that the dataset's timestamp is read from; None if it is computed.
        references: the incoming columns that preproc copies.
    """

    directory: Path
    key: str
    dataset: str
    cdc: str
    every: int
    disorder: int
    columns: tuple[str, ...] | None
    keys: tuple[str, ...] | None
    is_keyed: bool
    timestamp: str | None = None
    references: tuple[str, ...] = ()


def check_text(subject: str, name: str, value: object) -> None:
    """Refuse a name that is no text, or an empty one.

    Args:
        subject: begins the message.
        name: what is named, such as `topic`.
        value: the name.

    Raises:
        InvalidType: it is no text.
        InvalidValue: it is empty.
    """
    if not isinstance(value, str):
        raise InvalidType(f"{subject}: {name} must be a text, found {value!r:.80}", hint=f'{name}="orders"')
    if not value.strip():
        raise InvalidValue(f"{subject}: {name} is empty", hint=f'{name}="orders"')


@dataclass(frozen=True, kw_only=True)
class DataConnector:
    """The part of a source with one dataset's rows.

    It is a topic, a table, files, or an endpoint.

    Args:
        source: the system.
    """

    source: DataSource

    is_source: ClassVar[bool] = True
    """True if rows can be read from it."""
    is_stream: ClassVar[bool] = False
    """True if rows arrive as they happen: it is read without pauses, not once per `every`."""
    cdcs: ClassVar[frozenset[str]] = frozenset({"append", "upsert", "debezium", "native"})
    """The supported `cdc` values of rows read from it."""
    placed_by: ClassVar[tuple[str, ...]] = ()
    """The attributes that say which stream, topic or table is read. Files are none: a position in them names each.

    Nor are streams whose positions name them, as those of Kinesis.
    """

    def __post_init__(self) -> None:
        for name in self.placed_by:
            check_text(f"{type(self.source).__name__} '{self.source.name}'", name, getattr(self, name))

    @property
    def destination(self) -> tuple[Any, ...]:
        """The identity of a sink's destination: without logins, and options of requests."""
        return tuple(
            (type(part).__name__, *((each.name, getattr(part, each.name)) for each in fields(part) if _locates(each)))
            for part in (self.source, self)
        )

    @property
    def place(self) -> tuple[str, ...]:
        """The stream, topic or table to which a position belongs."""
        return (type(self).__name__, *(str(getattr(self, name)) for name in self.placed_by))

    @property
    def kind(self) -> str:
        """The source's class name in lower case: `kafka`, `s3`, ..."""
        return type(self.source).__name__.lower()

    @property
    def source_name(self) -> str:
        """The name of the source."""
        return self.source.name

    @property
    def title(self) -> str:
        """The connector's description, for messages."""
        return f"{type(self.source).__name__} '{self.source.name}'"

    @property
    def target(self) -> str:
        """The description of the destination of a sink, for messages."""
        return self.title

    @property
    def nests(self) -> bool:
        """Return True if a `ref` may be a path into nested data."""
        return False

    @property
    def letter_format(self) -> Any:
        """The format of its rejected records, None if they cannot be read again."""
        return None

    def check_source(self, cdc: str) -> None:
        """Refuse a `cdc` the connector does not support for reading."""
        if cdc not in self.cdcs:
            allowed = ", ".join(repr(each) for each in sorted(self.cdcs))
            raise InvalidValue(
                f"{self.title}: cdc '{cdc}' is not supported, use one of {allowed}",
                hint=f"cdc={allowed.partition(',')[0]}",
            )

    def check_names(self) -> None:
        """Refuse names under which nothing can be stored; nothing unless overridden."""

    def reader(self, directory: Path) -> SplitSource:
        """Return the reading side.

        Args:
            directory: the deployment's folder.

        Raises:
            NotSupported: this version cannot read such a connector.
        """
        raise NotSupported(
            f"a source of kind '{self.kind}' cannot be read yet",
            hint="every connector of umbel can but HTTP, which is a sink; and connectors of other packages with a reader",
        )

    def check_writer(self) -> None:
        """Refuse a sink that cannot be written to.

        Raises:
            NotSupported: this version or this installation cannot write to it.
        """
        raise self._no_writer()

    def writer(self, id: str, dataset: str) -> SinkWriter:
        """Return a writer of changes.

        Args:
            id: of the sink; unique, and the same after a restart.
            dataset: the name of the dataset.

        Raises:
            NotSupported: this version cannot write to such a connector.
        """
        raise self._no_writer()

    def writer_of(self, options: WriteOptions) -> SinkWriter:
        """Return a writer of changes that depends on more than the dataset's name."""
        return self.writer(options.id, options.dataset)

    def examine_writer(self, options: WriteOptions) -> None:
        """Check at commit that a new sink can be written to; nothing unless overridden.

        Raises:
            Transient: the destination does not answer, which holds no commit up.
            InvalidValue: it lacks something, or the login or a permission does.
        """

    def _no_writer(self) -> NotSupported:
        return NotSupported(
            f"a server does not write to sinks of kind '{self.kind}' yet",
            hint='take @sink away, or let it be for another environment than is committed: @sink(..., env="...")',
        )

    def reader_of(self, options: ReadOptions) -> SplitSource:
        """Return the reading side of a source that depends on more than the deployment's folder."""
        return self.reader(options.directory)

    def check_sink(self, delivery: Delivery) -> None:
        """Refuse delivery options the connector does not support for writing."""
        raise InvalidValue(
            f"sink: a {type(self).__name__} ({self.title}) cannot be a sink",
            hint="Kafka, HTTP, S3, Postgres and Snowflake can",
        )


def is_credential(each: Field[Any]) -> bool:
    """Return whether a field has a credential, or several."""
    return "Credential" in str(each.type)


def _locates(each: Field[Any]) -> bool:
    return each.name != "source" and bool(each.metadata.get("destination", not is_credential(each)))


def refuse_options(subject: str, **options: Any) -> None:
    """Refuse sink options the connector does not support."""
    for name, value in options.items():
        if value:
            raise InvalidValue(f"{subject}: {name} cannot be set, found {value!r}", hint="leave it out")


def require_incremental(subject: str, how: Any, *, optional: bool = False) -> None:
    """Refuse a write mode other than "incremental"."""
    if how != "incremental" and not (optional and how is None):
        raise InvalidValue(f"{subject}: how must be 'incremental', found {how!r}", hint='how="incremental"')
