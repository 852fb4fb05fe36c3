"""Serialisation of definitions as protobuf messages (`proto/umbel.proto`), both ways.

Records are written by the name of their class within umbel, or as `distribution/module:Class` for a class that another package
registers, and their fields by name; fields equal to their default are omitted.
Operators are written once each, parents first. User functions and struct classes are pickled by value; datasets and featuresets
that functions refer to are pickled once each, as parts.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from functools import singledispatchmethod
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from io import BytesIO
from pickle import Unpickler
from typing import Any

import cloudpickle

from umbel import plugins
from umbel.definitions import arguments  # noqa: F401  has the registry of connectors
from umbel.definitions.records import Definitions
from umbel.definitions.wire import umbel_pb2 as wire
from umbel.errors import InvalidValue
from umbel.expr import Expr
from umbel.functions.references import is_installed
from umbel.functions.user_function import PickledFunction, UserFunction
from umbel.operators.operator import Operator

ROOT = "umbel."
PACKAGES = frozenset(
    [
        "aggregates",
        "connectors",
        "definitions",
        "formats",
        "functions",
        "operators",
        "quality",
        "transform",
        "types",
        "windowing",
    ]
)
"""umbel's packages with the classes that definitions are made of; a reader imports no other module of umbel."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
WIDE = 1 << 63


def dump(definitions: Definitions) -> bytes:
    """Return definitions as bytes; equal definitions give equal bytes."""
    writer = _MessageWriter()
    message = wire.Definitions(version=_version(), env=writer.value(definitions.env))
    message.datasets.extend(writer.record(each) for each in definitions.datasets.values())
    message.featuresets.extend(writer.record(each) for each in definitions.featuresets.values())
    message.nodes.extend(writer.nodes)
    message.parts.extend(writer.parts)
    return message.SerializeToString(deterministic=True)


def load(data: bytes) -> Definitions:
    """Return the definitions in `data`.

    Raises:
        InvalidValue: the bytes are not definitions, or not of this version of umbel.
    """
    from google.protobuf.message import DecodeError

    message = wire.Definitions()
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise InvalidValue(f"these bytes are not definitions: {error}") from None
    reader = _Reader(message.nodes, message.parts)
    datasets = [reader.record(each) for each in message.datasets]
    featuresets = [reader.record(each) for each in message.featuresets]
    env = reader.value(message.env)
    return Definitions({each.name: each for each in datasets}, {each.name: each for each in featuresets}, env)


class _MessageWriter:
    def __init__(self) -> None:
        self.nodes: list[wire.Node] = []
        self._positions: dict[int, int] = {}
        self.parts: dict[bytes, int] = {}

    def record(self, value: Any) -> wire.Record:
        declared = [item for item in _init_fields(value) if not _is_default(item, getattr(value, item.name))]
        entries = [wire.Entry(name=item.name, value=self.value(getattr(value, item.name))) for item in declared]
        return wire.Record(type=_name(type(value)), fields=entries)

    def value(self, value: Any) -> wire.Value:
        if is_dataclass(value) and not isinstance(value, type | Operator | Expr):
            return wire.Value(record=self.record(value))
        return self._plain(value)

    @singledispatchmethod
    def _plain(self, value: Any) -> wire.Value:
        raise InvalidValue(f"a value of type '{type(value).__name__}' cannot be sent: {value!r}")

    @_plain.register
    def _(self, value: None) -> wire.Value:
        return wire.Value(none=True)

    @_plain.register
    def _(self, value: bool) -> wire.Value:
        return wire.Value(flag=value)

    @_plain.register
    def _(self, value: int) -> wire.Value:
        return wire.Value(integer=value) if -WIDE <= value < WIDE else wire.Value(wide_integer=str(value))

    @_plain.register
    def _(self, value: float) -> wire.Value:
        return wire.Value(real=value)

    @_plain.register
    def _(self, value: str) -> wire.Value:
        return wire.Value(text=value)

    @_plain.register
    def _(self, value: bytes) -> wire.Value:
        return wire.Value(data=value)

    @_plain.register
    def _(self, value: Decimal) -> wire.Value:
        return wire.Value(decimal=str(value))

    @_plain.register
    def _(self, value: datetime) -> wire.Value:
        instant = value if value.tzinfo else value.replace(tzinfo=UTC)
        return wire.Value(instant=(instant - EPOCH) // MICROSECOND)

    @_plain.register
    def _(self, value: date) -> wire.Value:
        return wire.Value(day=(value - EPOCH.date()).days)

    @_plain.register
    def _(self, value: timedelta) -> wire.Value:
        return wire.Value(span=value // MICROSECOND)

    @_plain.register(list)
    @_plain.register(tuple)
    @_plain.register(set)
    @_plain.register(frozenset)
    def _(self, value: Iterable[Any]) -> wire.Value:
        items = sorted(value, key=repr) if isinstance(value, set | frozenset) else value
        return wire.Value(items=wire.Items(values=[self.value(each) for each in items]))

    @_plain.register(Mapping)
    def _(self, value: Mapping[str, Any]) -> wire.Value:
        entries = [wire.Entry(name=name, value=self.value(each)) for name, each in value.items()]
        return wire.Value(entries=wire.Entries(entries=entries))

    @_plain.register
    def _(self, value: Enum) -> wire.Value:
        return wire.Value(constant=wire.Constant(type=_name(type(value)), name=value.name))

    @_plain.register
    def _(self, value: UserFunction) -> wire.Value:
        pickled = value.pickled
        return wire.Value(
            function=wire.Function(
                name=pickled.name,
                where=pickled.where,
                digest=pickled.digest,
                payload=pickled.payload,
                requirements=pickled.requirements,
                parts=[self.parts.setdefault(each, len(self.parts)) for each in pickled.parts],
            )
        )

    @_plain.register
    def _(self, value: Expr) -> wire.Value:
        return wire.Value(expression=json.dumps(value.to_record(), sort_keys=True))

    @_plain.register
    def _(self, value: type) -> wire.Value:
        return wire.Value(pickled=wire.Pickled(name=value.__qualname__, payload=cloudpickle.dumps(value)))

    @_plain.register
    def _(self, value: Operator) -> wire.Value:
        if id(value) not in self._positions:
            parents = [self._plain(parent).node for parent in value.parents]
            self.nodes.append(wire.Node(operator=self.record(value), parents=parents))
            self._positions[id(value)] = len(self.nodes) - 1
        return wire.Value(node=self._positions[id(value)])


class _Reader:
    def __init__(self, nodes: Iterable[wire.Node], parts: Iterable[bytes]) -> None:
        self._parts = tuple(parts)
        self._operators: list[Operator] = []
        for node in nodes:
            parents = tuple(self._operators[position] for position in node.parents)
            self._operators.append(self.record(node.operator, parents=parents))

    def record(self, message: wire.Record, **more: Any) -> Any:
        kind = _found(message.type)
        declared = {entry.name: self.value(entry.value) for entry in message.fields}
        try:
            return kind(**declared, **more)
        except TypeError as error:
            package = message.type.partition("/")[0] if "/" in message.type else "umbel"
            raise InvalidValue(f"definitions of another version of {package}: {message.type}: {error}") from error

    def value(self, message: wire.Value) -> Any:
        kind = message.WhichOneof("kind")
        if kind is None:
            raise InvalidValue("definitions hold a value of a kind this version of umbel does not know")
        return getattr(self, f"_{kind}", lambda plain: plain)(getattr(message, kind))

    def _none(self, _: bool) -> None:
        return None

    def _wide_integer(self, text: str) -> int:
        return int(text)

    def _decimal(self, text: str) -> Decimal:
        return Decimal(text)

    def _instant(self, microseconds: int) -> datetime:
        return EPOCH + microseconds * MICROSECOND

    def _day(self, days: int) -> date:
        return EPOCH.date() + timedelta(days)

    def _span(self, microseconds: int) -> timedelta:
        return microseconds * MICROSECOND

    def _items(self, message: wire.Items) -> tuple[Any, ...]:
        return tuple(self.value(each) for each in message.values)

    def _entries(self, message: wire.Entries) -> dict[str, Any]:
        return {entry.name: self.value(entry.value) for entry in message.entries}

    def _record(self, message: wire.Record) -> Any:
        return self.record(message)

    def _constant(self, message: wire.Constant) -> Any:
        return _found(message.type)[message.name]

    def _function(self, message: wire.Function) -> UserFunction:
        parts = tuple(self._parts[number] for number in message.parts)
        known = (message.name, message.where, message.digest, message.payload, tuple(message.requirements))
        return UserFunction.arrived(PickledFunction(*known, parts))

    def _expression(self, text: str) -> Expr:
        return Expr.from_record(json.loads(text))

    def _node(self, position: int) -> Operator:
        return self._operators[position]

    def _pickled(self, message: wire.Pickled) -> Any:
        """Return a struct class; None, for a stand-in, where its module is not installed."""
        try:
            return _Unpickler(BytesIO(message.payload)).load()
        except (ImportError, AttributeError):
            return None


class _Unpickler(Unpickler):
    """An unpickler that does not import the user's own modules.

    A server may be started in the folder of the definitions: their modules would run inside it.
    """

    def find_class(self, module: str, name: str, /) -> Any:
        if module not in sys.modules and not is_installed(module):
            raise ImportError(f"module '{module}' is not installed", name=module)
        return super().find_class(module, name)


def _version() -> str:
    try:
        return version("umbel")
    except PackageNotFoundError:  # umbel is imported from a source tree
        return "unknown"


def _init_fields(value: Any) -> list[Field[Any]]:
    return [
        item
        for item in fields(value)
        if (item.init or item.metadata.get("sent")) and not (isinstance(value, Operator) and item.name == "parents")
    ]


def _is_default(item: Field[Any], value: Any) -> bool:
    default = item.default if item.default_factory is MISSING else item.default_factory()
    return default is not MISSING and type(default) is type(value) and bool(default == value)


def _name(kind: type) -> str:
    if not kind.__module__.startswith(ROOT):
        return plugins.name_of(kind)
    module = kind.__module__.removeprefix(ROOT)
    if module.partition(".")[0] not in PACKAGES:
        raise InvalidValue(f"'{module}.{kind.__qualname__}' is no class that definitions are made of")
    return f"{module}.{kind.__qualname__}"


def _found(name: str) -> Any:
    if "/" in name:
        return plugins.find_class(name)
    module, _, kind = name.rpartition(".")
    try:
        found = getattr(import_module(ROOT + module), kind) if module.partition(".")[0] in PACKAGES else None
    except (ImportError, AttributeError, ValueError):
        raise InvalidValue(f"definitions of another version of umbel: it has no '{name}'") from None
    is_record = isinstance(found, type) and (is_dataclass(found) or issubclass(found, Enum))
    if not is_record or found.__module__ != ROOT + module:
        raise InvalidValue(f"'{name}' is no class that definitions are made of")
    return found
