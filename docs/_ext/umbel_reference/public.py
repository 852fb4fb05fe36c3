"""The public names: what `__all__` of the package and of its public modules lists."""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

import umbel
from umbel_reference.docstrings import docstring_of, fenced, first_line, rendered, signature

PAGES = {
    "umbel.aggregates": "aggregates",
    "umbel.api.expect": "expectations",
    "umbel.api": "definitions",
    "umbel.client": "client",
    "umbel.testing": "testing",
    "umbel.connectors": "connectors",
    "umbel.definitions": "connectors",
    "umbel.formats": "connectors",
    "umbel.expr": "expressions",
    "umbel.types": "types",
    "umbel.types.windows": "windows",
    "umbel.errors": "errors",
    "umbel.transform": "transform",
}
"""The page of a name by the module that defines it; the longest prefix counts."""


@dataclass(frozen=True, slots=True)
class Public:
    """A public object.

    Args:
        name: the name that users write.
        modules: the modules to import it from, the shortest first.
    """

    name: str
    obj: Any
    modules: tuple[str, ...]

    @property
    def home(self) -> str:
        """The module that defines it."""
        return str(getattr(self.obj, "__module__", ""))

    @property
    def page(self) -> str:
        """The page that documents it; empty if no page does."""
        prefixes = [prefix for prefix in PAGES if f"{self.home}.".startswith(f"{prefix}.")]
        return PAGES[max(prefixes, key=len)] if prefixes else ""

    def described(self, level: int = 2) -> str:
        """Return its section: call, import, docstring and, of a class, its public methods."""
        parts = [f"{'#' * level} {self.name}", fenced("python", called(self.obj, self.name))]
        parts += [f"Import it from {', '.join(f'`{module}`' for module in self.modules)}."]
        parts += [rendered(docstring_of(self.obj))]
        if inspect.isclass(self.obj):
            parts += [method_described(name, each) for name, each in methods(self.obj)]
        return "\n\n".join(parts)


def called(obj: Any, name: str) -> str:
    """Return the call of a function or constructor, or the name alone of what cannot be called."""
    if (
        inspect.isclass(obj) and type(obj).__call__ is not type.__call__
    ):  # its metaclass hides the constructor's arguments
        return signature(obj.__init__, name, bound=True)
    try:
        return signature(obj, name)
    except (TypeError, ValueError):
        return name


def methods(cls: type) -> Iterator[tuple[str, Any]]:
    """Yield the public methods and properties of a class, except those of its bases that have a section of their own."""
    shown = {id(each.obj) for each in public()}
    own = (each for each in cls.__mro__ if each.__module__.startswith("umbel"))
    found = {name for each in own for name in vars(each) if not name.startswith("_")}
    elsewhere = {name for base in cls.__mro__[1:] if id(base) in shown for name in dir(base)}
    for name in sorted(found - elsewhere):
        value = inspect.getattr_static(cls, name)
        if isinstance(value, property) or inspect.isroutine(value):
            yield name, value


def method_described(name: str, method: Any) -> str:
    """Return the paragraph of a method or property."""
    plain = getattr(method, "__func__", method)
    if isinstance(plain, property):
        return f"**`{name}`**: {first_line(plain)}"
    return (
        f"**`{signature(plain, name, bound=not isinstance(method, staticmethod))}`**\n\n{rendered(docstring_of(plain))}"
    )


def modules() -> Iterator[ModuleType]:
    """Yield the package and its public modules: those that say what users import from them."""
    yield umbel
    for each in pkgutil.iter_modules(umbel.__path__):
        if each.name not in ("__main__", "spark"):
            module = import_module(f"umbel.{each.name}")
            if hasattr(module, "__all__"):
                yield module


def public() -> list[Public]:
    """Return the public objects by name; modules among them are left out, since their own names count."""
    found: dict[int, Public] = {}
    for module in modules():
        for name in module.__all__:
            obj = getattr(module, name)
            if not inspect.ismodule(obj):
                known = found.get(id(obj), Public(name, obj, ()))
                own = getattr(obj, "__name__", name)
                shown = own if own == name else known.name
                found[id(obj)] = Public(shown, obj, tuple(dict.fromkeys((*known.modules, module.__name__))))
    return sorted(found.values(), key=lambda each: (each.name.lower(), each.name))


def undocumented() -> list[str]:
    """Return what is wrong with the documentation of the public names: no docstring, or no page."""
    errors = []
    for each in public():
        if not docstring_of(each.obj):
            errors.append(f"{each.modules[0]}.{each.name} has no docstring")
        if not each.page:
            errors.append(f"{each.modules[0]}.{each.name} of {each.home} has no page: see PAGES in public.py")
        if inspect.isclass(each.obj):
            errors += [
                f"{each.modules[0]}.{each.name}.{name} has no docstring"
                for name, method in methods(each.obj)
                if not _method_docstring(each.obj, name, method)
            ]
    return errors


def _method_docstring(cls: type, name: str, method: Any) -> str:
    return docstring_of(getattr(method, "__func__", method)) or docstring_of(getattr(cls, name))
