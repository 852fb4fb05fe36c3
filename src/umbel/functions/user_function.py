"""User functions: pickled by value with all user code they refer to."""

from __future__ import annotations

import builtins
import importlib.metadata
import io
import pickle
import sys
import threading
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import _lru_cache_wrapper, cache, cached_property, lru_cache, partial
from importlib.util import resolve_name
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

import cloudpickle

from umbel.errors import InvalidValue
from umbel.functions.column_reads import columns_read
from umbel.functions.references import REDUCERS, References, digest_of, is_own, mentions, used_globals
from umbel.types.dtype import DType
from umbel.types.records import Struct, structs_in, with_classes
from umbel.types.structs import is_struct, struct_type

_BY_VALUE = threading.Lock()
_PARTS: WeakKeyDictionary[Any, bytes] = WeakKeyDictionary()
_LOADED: WeakValueDictionary[bytes, Any] = WeakValueDictionary()


@dataclass(frozen=True, slots=True)
class PickledFunction:
    """A pickled user function.

    Args:
        name: the name of the function.
        where: `file:line` of its definition; empty when it has none.
        digest: 16 hexadecimal characters, equal for equal behaviour.
        payload: the pickled function, and its includes followed by the struct classes it refers to.
        requirements: installed packages it needs, as `name==version`.
        parts: the datasets and featuresets it refers to, pickled; functions that refer to the same one share its bytes.
    """

    name: str
    where: str
    digest: str
    payload: bytes
    requirements: tuple[str, ...] = ()
    parts: tuple[bytes, ...] = ()


class UserFunction:
    """A user function with a stable fingerprint that can be sent to another process.

    Args:
        func: any callable.
        includes: further objects pickled with it.
    """

    def __init__(self, func: Callable[..., Any], includes: tuple[Any, ...] = ()) -> None:
        self.func, self.includes = func, includes
        self.name = getattr(_written(func), "__name__", type(func).__name__)
        self.where = location_of(func)

    @classmethod
    def arrived(cls, pickled: PickledFunction) -> UserFunction:
        """Return the user function of a pickled one; it is unpickled on the first call."""
        return _Arrived(pickled)

    def load(self) -> Callable[..., Any]:
        """Return the callable."""
        return self.func

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self.load()(*arguments, **named)

    @property
    def structs(self) -> Mapping[Struct, type]:
        """The struct classes its code refers to, if they are not those of the definitions."""
        return {}

    def typed(self, dtypes: Mapping[str, DType]) -> Mapping[str, DType]:
        """Return types whose structs have the classes its code refers to.

        Values of these types are instances to the function.
        """
        if not any(True for dtype in dtypes.values() for _ in structs_in(dtype)):
            return dtypes
        return {name: with_classes(dtype, self.structs) for name, dtype in dtypes.items()}

    @cached_property
    def reads(self) -> frozenset[str] | None:
        """The columns it can read of a frame, None if it may read any."""
        return columns_read(self.load())

    @cached_property
    def pickled(self) -> PickledFunction:
        """The pickled function.

        Raises:
            InvalidValue: an object it refers to cannot be pickled; the message names it.
        """
        walk = References()
        try:
            digest = digest_of(walk, self.func, self.includes)
            structs = filter(is_struct, walk.classes)
            parts = {id(each): _part(each) for each in walk.owners}
            payload = _packed((self.func, (*self.includes, *structs)), walk, list(parts))
        except InvalidValue as error:
            raise InvalidValue(f"function '{self.name}': {error.message}", where=self.where, hint=error.hint) from error
        return PickledFunction(
            self.name, self.where, digest, payload, tuple(_requirements(walk)), tuple(parts.values())
        )

    @property
    def digest(self) -> str:
        """The digest of its behaviour, 16 hexadecimal characters.

        It is equal for equal code, defaults, closures, helpers and constants.
        """
        return self.pickled.digest

    def __digest__(self) -> str:
        return self.digest

    def __reduce__(self) -> tuple[object, ...]:
        return (UserFunction.arrived, (self.pickled,))

    def __repr__(self) -> str:
        return f"UserFunction({self.name} at {self.where})"


class _Arrived(UserFunction):
    def __init__(self, pickled: PickledFunction) -> None:
        self.name, self.where = pickled.name, pickled.where
        self.__dict__["pickled"] = pickled

    def load(self) -> Callable[..., Any]:
        return self._unpacked[0]

    @cached_property
    def structs(self) -> Mapping[Struct, type]:
        found = list(filter(is_struct, self._unpacked[1]))
        if not found:  # none, or packed by a version that did not add them
            walk = References()
            with suppress(InvalidValue):
                walk.text(self._unpacked)
            found = list(filter(is_struct, walk.classes))
        return {struct_type(each): each for each in found}

    @cached_property
    def _unpacked(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return _Unpacker(self.pickled).load()  # type: ignore[no-any-return]


class _Unpacker(pickle.Unpickler):
    """An unpickler for user functions, with the datasets and featuresets they share."""

    def __init__(self, pickled: PickledFunction) -> None:
        super().__init__(io.BytesIO(pickled.payload))
        self.parts = pickled.parts

    def persistent_load(self, number: int) -> Any:
        payload = self.parts[number]
        found = _LOADED.get(payload)
        if found is None:
            kind, arguments = pickle.loads(payload)
            found = _LOADED.setdefault(payload, kind(*arguments))
        return found


@dataclass(frozen=True, slots=True)
class _PartNumber:
    """A part of a pickled function, by its position."""

    number: int


class _Packer(cloudpickle.Pickler):  # type: ignore[misc]
    """A pickler for user functions.

    It replaces an `lru_cache` by its function and options, and modules and dataset classes by the members the code mentions.
    Functions get the modules that they import in their bodies. Datasets and featuresets that are parts are left to them.
    """

    def __init__(self, file: io.BytesIO, walk: References, parts: Sequence[int]) -> None:
        super().__init__(file)
        self.names = walk.names
        self.parts = {each: _PartNumber(number) for number, each in enumerate(parts)}
        self.importer = _Importer(walk.imported) if walk.imported else None

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, _lru_cache_wrapper):
            options = obj.cache_parameters()
            return _cached, (obj.__wrapped__, options["maxsize"], options["typed"])
        if hasattr(type(obj), "__class_members__"):
            return obj.__with_members__(self.names, self.parts.get(id(obj)))
        if isinstance(obj, types.ModuleType) and is_own(obj.__name__):
            return _module, (obj.__name__,), mentions(obj, self.names), None, None, _fill
        if type(obj) in REDUCERS:
            return REDUCERS[type(obj)](obj)
        reduced = super().reducer_override(obj)
        if isinstance(obj, types.FunctionType) and isinstance(reduced, tuple):
            return self._with_globals(obj, *reduced)
        return reduced

    def persistent_id(self, obj: Any) -> int | None:
        return obj.number if type(obj) is _PartNumber else None

    def _with_globals(self, function: types.FunctionType, make: Any, arguments: Any, state: Any, *rest: Any) -> Any:
        state[1]["__globals__"] |= used_globals(function)  # cloudpickle does not look into bodies of classes
        if self.importer is None:
            return make, arguments, state, *rest
        *items, setter = rest
        return _importing, (self.importer, *arguments), state, *items, partial(_set_state, setter)


class _Importer:
    """The `__import__` of pickled functions: the modules that came with them, or else those installed.

    Args:
        modules: by name.
    """

    def __init__(self, modules: Mapping[str, types.ModuleType]) -> None:
        self.modules = modules

    def __call__(
        self, name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0
    ) -> types.ModuleType:
        absolute = resolve_name("." * level + name, globals["__package__"] or "") if level else name
        found = self.modules.get(absolute if fromlist else absolute.partition(".")[0])
        return __import__(name, globals, locals, fromlist, level) if found is None else found


def _importing(importer: _Importer, code: types.CodeType, space: dict[str, Any], *rest: Any) -> types.FunctionType:
    space["__builtins__"] = {**vars(builtins), "__import__": importer}
    return types.FunctionType(code, space, *rest)


def _set_state(setter: Callable[..., None], function: types.FunctionType, state: Any) -> None:
    found = function.__globals__["__builtins__"]
    setter(function, state)
    function.__globals__["__builtins__"] = found  # the setter puts Python's there, and functions made inside take them


def _cached(func: Callable[..., Any], maxsize: int | None, typed: bool) -> Callable[..., Any]:
    return lru_cache(maxsize, typed)(func)


def _module(name: str) -> types.ModuleType:
    return types.ModuleType(name)


def _fill(module: types.ModuleType, parts: dict[str, Any]) -> None:
    vars(module).update(parts)


def _part(owner: Any) -> bytes:
    """Return a dataset or featureset without members, pickled once for all functions."""
    found = _PARTS.get(owner)
    if found is None:
        walk = References()
        arguments, annotations = owner.__without_members__()
        with suppress(InvalidValue):  # finds the modules of struct classes
            walk.text(annotations)
        found = _PARTS.setdefault(owner, _packed((type(owner), arguments), walk))
    return found


def _packed(value: Any, walk: References, parts: Sequence[int] = ()) -> bytes:
    buffer = io.BytesIO()
    with _by_value(walk.modules):
        try:
            _Packer(buffer, walk, parts).dump(value)
        except Exception as error:  # objects of the user's may raise anything when they are pickled
            raise walk.refusal(value[0], error) from error
    return buffer.getvalue()


@contextmanager
def _by_value(names: set[str]) -> Iterator[None]:
    modules = [sys.modules[name] for name in names if name in sys.modules and name != "__main__"]
    with _BY_VALUE:
        for module in modules:
            cloudpickle.register_pickle_by_value(module)
        try:
            yield
        finally:
            for module in modules:
                cloudpickle.unregister_pickle_by_value(module)


def _requirements(walk: References) -> Iterator[str]:
    for package in sorted(walk.packages - set(sys.stdlib_module_names)):
        version = _installed_version(package)
        if version is not None:
            yield f"{package}=={version}"


@cache
def _installed_version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _written(func: Any) -> Any:
    """Return the function inside nested partial applications."""
    while isinstance(func, partial):
        func = func.func
    return func


def location_of(func: object) -> str:
    """Return `file:line` of a function, or an empty text when it has none."""
    code = getattr(_written(func), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else ""
