"""The references of a user function, transitively.

They include the user's own helpers, classes, constants, and installed packages.
"""

from __future__ import annotations

import copyreg
import dis
import functools
import io
import os
import site
import sys
import sysconfig
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from functools import cache
from hashlib import blake2b
from importlib.util import find_spec, resolve_name
from typing import Any

import cloudpickle

from umbel.errors import InvalidValue

GLOBAL_LOADS = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"})
NOT_BEHAVIOUR = frozenset(
    {
        *("__module__", "__qualname__", "__dict__", "__weakref__", "__doc__", "__slotnames__", "__abstractmethods__"),
        *("__annotations__", "__annotate__", "__annotate_func__", "__annotations_cache__", "__firstlineno__"),
        *("__static_attributes__", "__dataclass_fields__", "__dataclass_params__", "_abc_impl"),
    }
)
SCALARS = (str, bytes, bool, int, float, complex, type(None), type(...), type(NotImplemented))


@cache
def _installed_roots() -> tuple[str, ...]:
    paths = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    return tuple(f"{path}/" for path in {*paths, *site.getsitepackages(), site.getusersitepackages()})


def is_own(module: str) -> bool:
    """Return True if a module is the user's own code.

    It is not an installed package, the standard library or umbel.
    """
    if module.partition(".")[0] == "umbel":
        return False
    found = sys.modules.get(module)
    if found is None or module in ("__main__", "__mp_main__"):
        return True
    file = getattr(found, "__file__", None)
    if file is not None:
        return not file.startswith(_installed_roots())
    if hasattr(found, "__path__"):  # a folder without __init__.py; made at run time it has no folder
        folders = [f"{each}/" for each in found.__path__]
        return bool(folders) and not any(each.startswith(_installed_roots()) for each in folders)
    return module not in sys.builtin_module_names


def is_installed(module: str) -> bool:
    """Return True if a module belongs to umbel, the standard library or an installed package.

    It is not imported.
    """
    top = module.partition(".")[0]
    if top == "umbel" or top in sys.stdlib_module_names:
        return True
    found = find_spec(top)
    locations = (
        [] if found is None else [found.origin, *(f"{each}/" for each in found.submodule_search_locations or ())]
    )
    return any(each is not None and each.startswith(_installed_roots()) for each in locations)


def codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yield a code object and those of the functions nested in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes(constant)


def used_globals(function: types.FunctionType) -> dict[str, Any]:
    """Return the globals that a function mentions; bodies of classes in it do so, too."""
    steps = (step for part in codes(function.__code__) for step in dis.get_instructions(part))
    names = {step.argval for step in steps if step.opname in GLOBAL_LOADS}
    return {name: function.__globals__[name] for name in names if name in function.__globals__}


def _own_imports(function: types.FunctionType) -> Iterator[types.ModuleType]:
    """Yield the user's own modules that import statements in the body of a function name.

    They are imported, as a call would do. One that cannot be is left to the call, which may be prepared for it.
    """
    package = function.__globals__.get("__package__")
    for name, names, level in _import_statements(function.__code__):
        with suppress(Exception, SystemExit):
            found = resolve_name("." * level + name, package or "")
            if is_installed(found):
                continue
            __import__(found, fromlist=names or ())
            module = sys.modules[found if names else found.partition(".")[0]]
            if is_own(module.__name__):
                yield module


def _import_statements(code: types.CodeType) -> Iterator[tuple[str, tuple[str, ...] | None, int]]:
    """Yield module, imported names and level of each import statement."""
    for part in codes(code):
        steps = [step for step in dis.get_instructions(part) if step.opname != "EXTENDED_ARG"]
        for level, names, step in zip(steps, steps[1:], steps[2:], strict=False):
            if step.opname == "IMPORT_NAME":
                yield step.argval, names.argval, level.argval


def mentions(module: types.ModuleType, names: AbstractSet[str]) -> dict[str, Any]:
    """Return the attributes of a module that are in `names`."""
    return {name: part for name, part in vars(module).items() if name in names and not name.startswith("__")}


def _reduced_environment(value: MutableMapping[Any, Any]) -> tuple[Any, ...]:
    return getattr, (os, "environ" if value is os.environ else "environb")


def _reduced_property(value: functools.cached_property[Any]) -> Any:
    state = dict(vars(value))
    if state.pop("lock", None) is None:  # that of Python 3.11 has one, which its copy makes anew
        return value.__reduce_ex__(4)
    return type(value), (value.func,), state


REDUCERS: dict[type, Callable[[Any], Any]] = {
    type(os.environ): _reduced_environment,
    functools.cached_property: _reduced_property,
}
"""What is pickled in another way than its class says: the environment of a process stays with it."""


class References:
    """A walk over all references of a value that describes its behaviour as text.

    Attributes:
        modules: the user's own modules found.
        packages: the top-level names of the installed packages found.
        names: every attribute name in the code.
        imported: the user's own modules that functions import in their bodies, by name.
        owners: the datasets and featuresets found.
    """

    def __init__(self) -> None:
        self.modules: set[str] = set()
        self.packages: set[str] = set()
        self.names: set[str] = set()
        self.imported: dict[str, types.ModuleType] = {}
        self._seen: dict[int, tuple[int, Any]] = {}
        self._mentioned: list[frozenset[str]] = []
        self._visited: set[tuple[str, frozenset[str]]] = set()
        self._path: list[str] = []
        self.owners: list[Any] = []

    def text(self, value: Any, name: str = "") -> str:
        """Return a text that changes exactly when the behaviour of `value` does."""
        self._path.append(name)
        try:
            return self._text(value)
        finally:
            self._path.pop()

    def _text(self, value: Any) -> str:
        if isinstance(value, SCALARS):
            return f"{type(value).__name__}:{value!r}"
        if isinstance(value, tuple):
            return f"({self._all(value)})"
        if isinstance(value, types.ModuleType):
            return self._module(value)
        if id(value) in self._seen:
            return f"^{self._seen[id(value)][0]}"
        self._seen[id(value)] = (len(self._seen), value)
        describe = next(
            (found for kind, found in _DESCRIPTIONS.items() if isinstance(value, kind)), References._instance
        )
        return describe(self, value)

    @property
    def classes(self) -> list[type]:
        """The classes found."""
        return [value for _, value in self._seen.values() if isinstance(value, type)]

    def members(self) -> str:
        """Return the text of the members of datasets and featuresets used by functions.

        To be called last: a member counts when any code found so far mentions its name, and the code of other members may do so.
        """
        known: dict[tuple[int, str], str] = {}
        while True:
            new = {
                (place, name): member
                for place, owner in enumerate(self.owners)
                for name, member in _mentioned(owner.__class_members__(), self.names)
                if (place, name) not in known
            }
            if not new:
                return ",".join(known.values())
            for (place, name), member in new.items():
                known[place, name] = f"{name}={self.text(member, name)}"

    def _all(self, values: Iterable[Any]) -> str:
        return ",".join(self.text(value) for value in values)

    def _named(self, values: Mapping[str, Any]) -> str:
        return ",".join(f"{name}={self.text(values[name], name)}" for name in sorted(values))

    def _reference(self, module: str, qualname: str) -> str:
        if module not in sys.builtin_module_names:
            self.packages.add(module.partition(".")[0])
        return f"{module}.{qualname}"

    def _function(self, value: types.FunctionType) -> str:
        if not is_own(value.__module__ or "__main__"):
            return self._reference(value.__module__, value.__qualname__)
        self.modules.add(value.__module__ or "__main__")
        cells = dict(zip(value.__code__.co_freevars, map(_content, value.__closure__ or ()), strict=True))
        found = used_globals(value)
        mentioned = frozenset(name for code in codes(value.__code__) for name in code.co_names)
        self.names |= mentioned
        self._mentioned.append(mentioned)
        parts = (self.code(value.__code__), self._all((value.__defaults__, value.__kwdefaults__)))
        text = f"def({';'.join(parts)};{self._named(cells)};{self._named(found)};{self._named(vars(value))})"
        imported = {module.__name__: module for module in _own_imports(value)}
        self.imported |= imported
        text += f"import({self._named(imported)})" if imported else ""
        self._mentioned.pop()
        return text

    def code(self, code: types.CodeType) -> str:
        """Return the text of a code object: its instructions, without line numbers and file names."""
        shape = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags, code.co_code)
        names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
        return f"{shape}{names}[{self._all(code.co_consts)}]"

    def _class(self, value: type) -> str:
        if not is_own(value.__module__):
            return self._reference(value.__module__, value.__qualname__)
        self.modules.add(value.__module__)
        slots = (types.GetSetDescriptorType, types.MemberDescriptorType)
        body = {n: part for n, part in vars(value).items() if n not in NOT_BEHAVIOUR and not isinstance(part, slots)}
        makers = (type(value),) if is_own(type(value).__module__) else ()
        return f"class {value.__qualname__}({self._all((*value.__bases__, *makers))}){{{self._named(body)}}}"

    def _module(self, value: types.ModuleType) -> str:
        if not is_own(value.__name__):
            return self._reference(value.__name__, "")
        self.modules.add(value.__name__)
        mentioned = self._mentioned[-1] if self._mentioned else frozenset[str]()
        visited = (value.__name__, mentioned)
        if visited in self._visited:
            return f"module {value.__name__}"
        self._visited.add(visited)
        return f"module {value.__name__}{{{self._named(mentions(value, mentioned))}}}"

    def _set(self, value: Iterable[Any]) -> str:
        return f"{{{','.join(sorted(References().text(item) for item in value))}}}"

    def _dict(self, value: Mapping[Any, Any]) -> str:
        return f"{{{','.join(f'{self.text(key)}:{self.text(item, str(key))}' for key, item in value.items())}}}"

    def _instance(self, value: Any) -> str:
        if hasattr(type(value), "__class_members__"):
            self.owners.append(value)
        digest = getattr(type(value), "__digest__", None)
        if digest is not None:
            return f"#{digest(value)}"
        reduced = self._reduced(value)
        if isinstance(reduced, str):
            return f"{type(value).__module__}.{reduced}"
        return f"made({self._all(list(part) if isinstance(part, Iterator) else part for part in reduced)})"

    def _reduced(self, value: Any) -> str | tuple[Any, ...]:
        table = cloudpickle.Pickler.dispatch_table
        reducer = REDUCERS.get(type(value)) or table.get(type(value)) or copyreg.dispatch_table.get(type(value))
        try:
            reduced: str | tuple[Any, ...] = reducer(value) if reducer else value.__reduce_ex__(4)
        except Exception as error:  # `__reduce_ex__` of the user's objects may raise anything
            raise self.refusal(value, error) from error
        return reduced

    def refusal(self, value: Any, error: Exception) -> InvalidValue:
        """Return the error for an object that cannot be pickled with the function."""
        path = ".".join(name for name in self._path if name)
        return InvalidValue(
            f"'{path}' (a {type(value).__name__}) cannot travel with the function that refers to it: {error}",
            hint="create files, locks, connections and sessions inside the function",
        )


def _mentioned(members: Mapping[str, Any], names: AbstractSet[str]) -> list[tuple[str, Any]]:
    """Return the members in `names`, in their order; most functions mention none of many."""
    found = members.keys() & names
    return [item for item in members.items() if item[0] in found] if found else []


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _builtin(walk: References, value: Any) -> str:
    owner = getattr(value, "__self__", None)
    if owner is None or isinstance(owner, types.ModuleType):
        return walk._reference(value.__module__ or "builtins", value.__qualname__)
    return f"{walk.text(owner)}.{value.__name__}"


def _file(walk: References, value: Any) -> str:
    raise walk.refusal(value, TypeError("it is an open file"))


def _property(walk: References, value: property) -> str:
    return f"property({walk._all((value.fget, value.fset, value.fdel))})"


_DESCRIPTIONS: dict[type, Callable[[References, Any], str]] = {
    types.FunctionType: References._function,
    types.CodeType: References.code,
    types.BuiltinFunctionType: _builtin,
    type: References._class,
    types.MethodType: lambda walk, value: f"bound({walk._all((value.__func__, value.__self__))})",
    functools.partial: lambda walk, value: f"partial({walk._all((value.func, value.args, value.keywords))})",
    functools._lru_cache_wrapper: lambda walk, value: f"cached({walk.text(value.__wrapped__)})",
    staticmethod: lambda walk, value: f"static({walk.text(value.__func__)})",
    classmethod: lambda walk, value: f"classmethod({walk.text(value.__func__)})",
    property: _property,
    **dict.fromkeys((io.TextIOWrapper, io.BufferedReader, io.BufferedWriter, io.BufferedRandom, io.FileIO), _file),
    list: lambda walk, value: f"[{walk._all(value)}]",
    dict: References._dict,
    set: References._set,
    frozenset: References._set,
}


def digest_of(walk: References, *values: Any) -> str:
    """Return a digest of the behaviour of `values`, 16 hexadecimal characters."""
    text = walk.text(values)
    members = walk.members()
    return blake2b((f"{text};{members}" if members else text).encode(), digest_size=8).hexdigest()
