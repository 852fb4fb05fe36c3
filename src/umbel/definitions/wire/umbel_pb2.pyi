from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Value(_message.Message):
    __slots__ = ("none", "flag", "integer", "wide_integer", "real", "text", "data", "decimal", "instant", "day", "span", "items", "entries", "record", "constant", "function", "expression", "node", "pickled")
    NONE_FIELD_NUMBER: _ClassVar[int]
    FLAG_FIELD_NUMBER: _ClassVar[int]
    INTEGER_FIELD_NUMBER: _ClassVar[int]
    WIDE_INTEGER_FIELD_NUMBER: _ClassVar[int]
    REAL_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    DECIMAL_FIELD_NUMBER: _ClassVar[int]
    INSTANT_FIELD_NUMBER: _ClassVar[int]
    DAY_FIELD_NUMBER: _ClassVar[int]
    SPAN_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    CONSTANT_FIELD_NUMBER: _ClassVar[int]
    FUNCTION_FIELD_NUMBER: _ClassVar[int]
    EXPRESSION_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    PICKLED_FIELD_NUMBER: _ClassVar[int]
    none: bool
    flag: bool
    integer: int
    wide_integer: str
    real: float
    text: str
    data: bytes
    decimal: str
    instant: int
    day: int
    span: int
    items: Items
    entries: Entries
    record: Record
    constant: Constant
    function: Function
    expression: str
    node: int
    pickled: Pickled
    def __init__(self, none: _Optional[bool] = ..., flag: _Optional[bool] = ..., integer: _Optional[int] = ..., wide_integer: _Optional[str] = ..., real: _Optional[float] = ..., text: _Optional[str] = ..., data: _Optional[bytes] = ..., decimal: _Optional[str] = ..., instant: _Optional[int] = ..., day: _Optional[int] = ..., span: _Optional[int] = ..., items: _Optional[_Union[Items, _Mapping]] = ..., entries: _Optional[_Union[Entries, _Mapping]] = ..., record: _Optional[_Union[Record, _Mapping]] = ..., constant: _Optional[_Union[Constant, _Mapping]] = ..., function: _Optional[_Union[Function, _Mapping]] = ..., expression: _Optional[str] = ..., node: _Optional[int] = ..., pickled: _Optional[_Union[Pickled, _Mapping]] = ...) -> None: ...

class Items(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedCompositeFieldContainer[Value]
    def __init__(self, values: _Optional[_Iterable[_Union[Value, _Mapping]]] = ...) -> None: ...

class Entry(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: Value
    def __init__(self, name: _Optional[str] = ..., value: _Optional[_Union[Value, _Mapping]] = ...) -> None: ...

class Entries(_message.Message):
    __slots__ = ("entries",)
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[Entry]
    def __init__(self, entries: _Optional[_Iterable[_Union[Entry, _Mapping]]] = ...) -> None: ...

class Record(_message.Message):
    __slots__ = ("type", "fields")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    type: str
    fields: _containers.RepeatedCompositeFieldContainer[Entry]
    def __init__(self, type: _Optional[str] = ..., fields: _Optional[_Iterable[_Union[Entry, _Mapping]]] = ...) -> None: ...

class Constant(_message.Message):
    __slots__ = ("type", "name")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    type: str
    name: str
    def __init__(self, type: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class Function(_message.Message):
    __slots__ = ("name", "where", "digest", "payload", "requirements", "parts")
    NAME_FIELD_NUMBER: _ClassVar[int]
    WHERE_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    REQUIREMENTS_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    name: str
    where: str
    digest: str
    payload: bytes
    requirements: _containers.RepeatedScalarFieldContainer[str]
    parts: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, name: _Optional[str] = ..., where: _Optional[str] = ..., digest: _Optional[str] = ..., payload: _Optional[bytes] = ..., requirements: _Optional[_Iterable[str]] = ..., parts: _Optional[_Iterable[int]] = ...) -> None: ...

class Pickled(_message.Message):
    __slots__ = ("name", "payload")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    name: str
    payload: bytes
    def __init__(self, name: _Optional[str] = ..., payload: _Optional[bytes] = ...) -> None: ...

class Node(_message.Message):
    __slots__ = ("operator", "parents")
    OPERATOR_FIELD_NUMBER: _ClassVar[int]
    PARENTS_FIELD_NUMBER: _ClassVar[int]
    operator: Record
    parents: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, operator: _Optional[_Union[Record, _Mapping]] = ..., parents: _Optional[_Iterable[int]] = ...) -> None: ...

class Definitions(_message.Message):
    __slots__ = ("version", "nodes", "datasets", "featuresets", "env", "parts")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    DATASETS_FIELD_NUMBER: _ClassVar[int]
    FEATURESETS_FIELD_NUMBER: _ClassVar[int]
    ENV_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    version: str
    nodes: _containers.RepeatedCompositeFieldContainer[Node]
    datasets: _containers.RepeatedCompositeFieldContainer[Record]
    featuresets: _containers.RepeatedCompositeFieldContainer[Record]
    env: Value
    parts: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, version: _Optional[str] = ..., nodes: _Optional[_Iterable[_Union[Node, _Mapping]]] = ..., datasets: _Optional[_Iterable[_Union[Record, _Mapping]]] = ..., featuresets: _Optional[_Iterable[_Union[Record, _Mapping]]] = ..., env: _Optional[_Union[Value, _Mapping]] = ..., parts: _Optional[_Iterable[bytes]] = ...) -> None: ...
