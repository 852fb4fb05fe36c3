"""Registries of operators, aggregates, connectors, stores and expression functions.

umbel's own are found in the modules of one package; other packages add theirs through entry points. Definitions name a class of
another package as `distribution/module:Class`: a reader imports only classes that an installed package registers.
"""

from __future__ import annotations

import inspect
import logging
import pkgutil
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, is_dataclass
from enum import Enum
from functools import cache, cached_property
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from umbel.errors import PackageError, UnknownName, did_you_mean

LOGGER = logging.getLogger(__name__)
OWN = "umbel"
REGISTRIES: dict[str, Registry] = {}
"""The registries of classes by the group of their entry points."""


def provided(group: str) -> tuple[EntryPoint, ...]:
    """Return the entry points of installed packages in a group, sorted by package."""
    return _provided(group, tuple(sys.path))


@cache
def _provided(group: str, _: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    return tuple(sorted(entry_points(group=group), key=lambda entry: (package_of(entry), entry.name)))


def package_of(entry: EntryPoint) -> str:
    """Return the normalised name of the distribution that declares an entry point."""
    return normalised(entry.dist.name if entry.dist else entry.module.partition(".")[0])


def normalised(package: str) -> str:
    """Return the name of a distribution as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", package).lower()


def described(entry: EntryPoint) -> str:
    """Return an entry point for messages: package, version and object."""
    version = f" {entry.dist.version}" if entry.dist else ""
    return f"package '{package_of(entry)}'{version} ({entry.value})"


def loaded(entry: EntryPoint) -> Any:
    """Return the object of an entry point.

    Raises:
        PackageError: importing it fails.
    """
    try:
        return entry.load()
    except (Exception, SystemExit) as error:
        if isinstance(error, PackageError):
            raise
        raise PackageError(
            f"{described(entry)} cannot be loaded: {type(error).__name__}: {error}",
            hint="mend the package, install another version of it, or uninstall it",
        ) from error


def working(group: str) -> Iterator[tuple[EntryPoint, Any]]:
    """Yield the loadable entry points of a group with their objects; warn of the others."""
    for entry in provided(group):
        try:
            yield entry, loaded(entry)
        except PackageError as error:
            _warn(str(error))


@cache
def _warn(message: str) -> None:
    LOGGER.warning("%s", message)


def problems(group: str) -> list[str]:
    """Return the messages of the entry points of a group that cannot be used."""
    found = []
    for entry in provided(group):
        try:
            kind = loaded(entry)
            if group in REGISTRIES:
                REGISTRIES[group].check(entry, kind)
        except PackageError as error:
            found.append(error.message)
    return found


@dataclass(frozen=True)
class Registry:
    """The classes of one kind, by name.

    Args:
        kind: `operator`, `aggregate` or `connector`, for messages.
        group: the package with umbel's own, and the group of entry points of other packages.
        base: their base class.
        reserved: names that no class of another package may have, as something else is called that where it would be used.
    """

    kind: str
    group: str
    base: type
    reserved: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        REGISTRIES[self.group] = self

    @cached_property
    def own(self) -> dict[str, type[Any]]:
        """The classes of umbel itself, by name."""
        package, found = import_module(self.group), dict[str, type[Any]]()
        for info in pkgutil.iter_modules(package.__path__):
            module = import_module(f"{self.group}.{info.name}")
            for kind in vars(module).values():
                if self._holds(kind) and kind.__module__ == module.__name__ and not kind.__name__.startswith("_"):
                    other = found.setdefault(key_of(kind.__name__), kind)
                    if other is not kind:
                        raise self._taken(kind.__name__, _spelled(other), _spelled(kind))
        return found

    def _holds(self, kind: Any) -> bool:
        return isinstance(kind, type) and issubclass(kind, self.base) and not inspect.isabstract(kind)

    def entries(self) -> dict[str, list[EntryPoint]]:
        """Return the entry points of other packages, by the names of their classes."""
        found: dict[str, list[EntryPoint]] = {}
        for entry in provided(self.group):
            found.setdefault(key_of(entry.attr or entry.name), []).append(entry)
        return found

    def names(self) -> list[str]:
        """Return the names of all classes, umbel's own and those of other packages."""
        return sorted({*self.own, *self.entries()})

    def find(self, name: str) -> type[Any]:
        """Return the class of a name, in any case.

        Raises:
            UnknownName: there is none.
            PackageError: two packages register it, or its package cannot be loaded.
        """
        entries = self.entries().get(key_of(name), [])
        if entries:
            kind = loaded(entries[0])
            self.check(entries[0], kind)
            return kind  # type: ignore[no-any-return]
        if key_of(name) not in self.own:
            raise UnknownName(f"no {self.kind} is called '{name}'{did_you_mean(key_of(name), self.names())}")
        return self.own[key_of(name)]

    def attribute(self, name: str) -> type[Any]:
        """Return umbel's own class of a name, for attribute access on its package.

        Raises:
            AttributeError: there is none.
        """
        found = None if name.startswith("_") else self.own.get(key_of(name))
        if found is None or found.__name__ != name:
            raise AttributeError(f"module '{self.group}' has no attribute '{name}'")
        return found

    def every(self) -> list[type[Any]]:
        """Return all classes that can be used, umbel's own and those of other packages."""
        return [*self.own.values(), *(kind for _, kind in working(self.group))]

    def check(self, entry: EntryPoint, kind: Any) -> None:
        """Check that an entry point names a class of this kind with a unique name.

        Raises:
            PackageError: it does not.
        """
        if not self._holds(kind):
            raise PackageError(
                f"{described(entry)} is registered as {self.kind}, and is no class derived from {self.base.__name__}",
                hint=f'"module:Class" in the group "{self.group}"',
            )
        key = key_of(kind.__name__)
        others = [each for each in self.entries().get(key, []) if each.value != entry.value]
        if key in self.own:
            raise self._taken(kind.__name__, _spelled(self.own[key]), described(entry))
        if key in self.reserved:
            raise PackageError(
                f"{described(entry)} is called '{kind.__name__}', but '{key}' has another meaning in pipelines",
                hint=f"rename the class: it is used by its name in lower case, as {key}(…)",
            )
        if others:
            raise self._taken(kind.__name__, *sorted(map(described, (entry, others[0]))))

    def _taken(self, name: str, one: str, other: str) -> PackageError:
        return PackageError(
            f"two {self.kind}s are called '{name}': {one} and {other}",
            hint="uninstall one of them, or rename its class",
        )


def is_own(kind: type) -> bool:
    """Return True for a class of umbel itself."""
    return kind.__module__.partition(".")[0] == OWN


def is_extension(kind: type) -> bool:
    """Return True for an operator, aggregate or connector that is not umbel's."""
    return not is_own(kind) and any(issubclass(kind, registry.base) for registry in REGISTRIES.values())


def key_of(name: str) -> str:
    """Return the name by which a class is registered: its own in lower case."""
    return name.lower()


def _spelled(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def name_of(kind: type) -> str:
    """Return the name of a class of another package, as written into definitions.

    Raises:
        PackageError: no installed package registers it, or its name is taken.
    """
    for group, registry in REGISTRIES.items():
        for entry in provided(group):
            if not issubclass(kind, registry.base):
                if entry.module.partition(".")[0] == kind.__module__.partition(".")[0] and _covers(entry, kind):
                    return _written(entry, kind)
            elif key_of(entry.attr) == key_of(kind.__name__) and loaded(entry) is kind:
                registry.check(entry, kind)
                return _written(entry, kind)
    group = next((group for group, registry in REGISTRIES.items() if issubclass(kind, registry.base)), "umbel.…")
    is_importable = kind.__module__ != "__main__" and "<locals>" not in kind.__qualname__
    target = f"{kind.__module__}:{kind.__qualname__}" if is_importable else f"your_package.module:{kind.__name__}"
    move = (
        ""
        if is_importable
        else "move it to the top of a module of a package: servers and workers import it from there; "
    )
    raise PackageError(
        f"'{_spelled(kind)}' cannot be sent: no installed package registers it",
        hint=f'{move}declare it as an entry point of your package: [project.entry-points."{group}"] '
        f'{kind.__name__.lower()} = "{target}", and install the package',
    )


def _written(entry: EntryPoint, kind: type) -> str:
    return f"{package_of(entry)}/{kind.__module__}:{kind.__qualname__}"


def _covers(entry: EntryPoint, kind: type) -> bool:
    """Return True for a record or enumeration in the module of an entry point's class."""
    try:
        return bool(loaded(entry).__module__ == kind.__module__) and _part(kind.__module__, kind.__qualname__) is kind
    except PackageError:
        return False


def find_class(name: str) -> type[Any]:
    """Return the class that `name_of` named.

    Nothing is imported but the registered classes of that package.

    Raises:
        PackageError: the package is not installed, cannot be loaded, or does not register the class.
    """
    package, _, spelled = name.partition("/")
    module, _, qualified = spelled.partition(":")
    own = [(group, entry) for group in REGISTRIES for entry in provided(group) if package_of(entry) == package]
    if not own:
        raise PackageError(
            f"definitions use '{spelled}' of the package '{package}', which is not installed here",
            hint=f"install '{package}' on the server and on every worker, and restart them",
        )
    exact = [(group, entry) for group, entry in own if entry.value == spelled]
    for group, entry in exact or own:
        registered = loaded(entry)
        if (registered.__module__, registered.__qualname__) == (module, qualified):
            REGISTRIES[group].check(entry, registered)
            return registered  # type: ignore[no-any-return]
        part = _part(module, qualified) if registered.__module__ == module else None
        if part is not None:
            return part
    raise PackageError(
        f"definitions use '{spelled}', which {described(own[0][1])} does not register",
        hint=f"install the version of '{package}' that the definitions were committed with, on the server and every worker",
    )


def _part(module: str, name: str) -> type[Any] | None:
    """Return a record or an enumeration of an imported module, else None."""
    kind = vars(sys.modules[module]).get(name)
    if not isinstance(kind, type) or kind.__module__ != module:
        return None
    is_record = is_dataclass(kind) or issubclass(kind, Enum)
    return kind if is_record and not issubclass(kind, tuple(each.base for each in REGISTRIES.values())) else None
