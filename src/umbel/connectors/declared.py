"""What all connector declarations share: keyword arguments checked against their types, all faults at once."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields
from datetime import datetime
from functools import cache
from typing import Any, ClassVar, Self

from umbel.errors import InvalidType, InvalidValue, all_faults, did_you_mean

REFERENCE = "is_reference"


class Arguments(type):
    """Answers wrong arguments with one value error that names all of them."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if kwargs.pop(REFERENCE, False):  # one that was sent, and arrives
            return cls.get(kwargs["name"])  # type: ignore[attr-defined]
        known = {each.name: each for each in fields(cls) if each.init}  # type: ignore[arg-type]
        given = {**dict(zip(known, args, strict=False)), **kwargs} if cls.positional else kwargs  # type: ignore[attr-defined]
        if args and not cls.positional:  # type: ignore[attr-defined]
            raise InvalidType(f"{cls.__name__}: arguments are given by keyword, found {args!r}", hint="name them")
        title, hint = f"{cls.__name__}: invalid arguments", f"arguments: {', '.join(known)}"
        error = all_faults(_faults(cls, known, given), InvalidValue, title, hint=hint)
        if error:
            raise error
        return super().__call__(**given)


def _faults(cls: type, known: Mapping[str, Any], given: Mapping[str, Any]) -> Iterator[str]:
    hints = _hints(cls)
    for name, each in known.items():
        if name in given and not _fits(given[name], hints[name]):
            yield f"{name}: expected {_spelled(hints[name])}, found {given[name]!r}"
        elif name not in given and each.default is MISSING and each.default_factory is MISSING:
            yield f"{name}: missing"
    for name in given:
        if name not in known:
            yield f"{name}: unknown argument{did_you_mean(name, known)}"


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


class Declared(metaclass=Arguments):
    """A frozen record whose arguments are checked."""

    positional: ClassVar[bool] = False


@dataclass(frozen=True, kw_only=True)
class DataSource(Declared):
    """A system that holds data: where it is and how to get in.

    Args:
        name: unique among the sources.
    """

    name: str
    is_reference: bool = field(default=False, init=False, metadata={"sent": True})

    needs: ClassVar[str] = ""
    """What makes a connector of it, for messages."""

    @classmethod
    def get(cls, name: str) -> Self:
        """Return a reference to a source that is registered elsewhere under `name`."""
        found = object.__new__(cls)
        for each in fields(cls):
            object.__setattr__(found, each.name, None if each.default is MISSING else each.default)
        object.__setattr__(found, "name", name)
        object.__setattr__(found, "is_reference", True)
        return found


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """How a sink was asked to get its changes: the arguments of `@sink`."""

    cdc: str | None
    every: str | None
    how: Any
    renames: Mapping[str, str]
    since: datetime | None
    until: datetime | None


@dataclass(frozen=True, kw_only=True)
class DataConnector:
    """A part of a source that holds the rows of one dataset: a topic, a table, files, an endpoint.

    Args:
        source: the system.
    """

    source: DataSource

    is_source: ClassVar[bool] = True
    """Whether rows can be read from it."""
    cdcs: ClassVar[frozenset[str]] = frozenset({"append", "upsert", "debezium"})
    """How rows read from it may be meant."""

    @property
    def kind(self) -> str:
        """The class of its source in lower case: `kafka`, `s3`, ..."""
        return type(self.source).__name__.lower()

    @property
    def source_name(self) -> str:
        """The name its source was given."""
        return self.source.name

    @property
    def title(self) -> str:
        """What it is, for messages."""
        return f"{type(self.source).__name__} '{self.source.name}'"

    @property
    def nests(self) -> bool:
        """Whether a `ref` may lead into nested data."""
        return False

    def check_source(self, cdc: str) -> None:
        """Refuse to read from it in a way it does not support."""
        if cdc not in self.cdcs:
            allowed = ", ".join(repr(each) for each in sorted(self.cdcs))
            raise InvalidValue(
                f"{self.title}: cdc '{cdc}' is not supported, use one of {allowed}",
                hint=f"cdc={allowed.partition(',')[0]}",
            )

    def check_sink(self, delivery: Delivery) -> None:
        """Refuse to write to it in a way it does not support."""
        raise InvalidValue(
            f"sink: a {type(self).__name__} ({self.title}) cannot be a sink", hint="Kafka, HTTP, S3 and Snowflake can"
        )


def refuse_options(owner: str, **options: Any) -> None:
    """Refuse options of a sink that are set although it does not support them."""
    for name, value in options.items():
        if value:
            raise InvalidValue(f"{owner}: {name} cannot be set, found {value!r}", hint="leave it out")


def require_incremental(owner: str, how: Any, *, optional: bool = False) -> None:
    """Refuse a way of writing other than "incremental"."""
    if how != "incremental" and not (optional and how is None):
        raise InvalidValue(f"{owner}: how must be 'incremental', found {how!r}", hint='how="incremental"')
