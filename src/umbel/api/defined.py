"""Decorated classes: a definition, and the parts of the class that only Python has."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Generic, NoReturn, Self, TypeVar

from umbel.definitions.records import DatasetDefinition, FeaturesetDefinition, Metadata
from umbel.errors import InvalidType

Column_co = TypeVar("Column_co", covariant=True)


@dataclass(frozen=True, kw_only=True)
class ClassBody(Generic[Column_co]):
    """The parts of a class that are not in its definition.

    Args:
        columns: its fields or features, with their annotations.
        members: its other attributes, as written: methods, constants.
        owner: the module's `__owner__`.
    """

    columns: tuple[Column_co, ...]
    members: Mapping[str, Any] = field(default_factory=dict, compare=False)
    owner: str = ""

    def owned(self, meta: Metadata) -> Metadata:
        """Return metadata with an owner: its own or the module's."""
        return replace(meta, owner=meta.owner or self.owner)

    def bare(self) -> Self:
        """Return the parts that are pickled with a function that refers to the object."""
        return self


Record = TypeVar("Record", bound=DatasetDefinition | FeaturesetDefinition)
Parts = TypeVar("Parts", bound=ClassBody[Any])


class Defined(Generic[Record, Parts]):
    """An object made of a class by a decorator.

    Its members are attributes. A function that refers to it is pickled with it, without what computes its rows or features.
    """

    _kind: ClassVar[str] = ""
    _unpickled: ClassVar[Mapping[str, Any]] = {}
    """The values of fields of the definition that compute rows or features: a pickled function has none of them."""
    _record: Record
    _body: Parts

    def __setattr__(self, name: str, value: object) -> None:
        raise InvalidType(
            f"{self._kind} '{self._record.name}' cannot be changed: {name}", hint="define a new version of it"
        )

    def __class_members__(self) -> Mapping[str, Any]:
        return self._body.members

    def __with_members__(self, names: Container[str]) -> tuple[object, ...]:
        body = self._body.bare()
        members = {name: each for name, each in body.members.items() if name in names}
        return (type(self), (replace(self._record, **self._unpickled), replace(body, members=members)))

    def __mro_entries__(self, bases: tuple[object, ...]) -> NoReturn:
        raise InvalidType(
            f"{self._kind} '{self._record.name}' cannot be inherited from",
            hint=f"let both inherit from a class with the annotations they share, without @{self._kind}",
        )

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (replace(self._record, **self._unpickled), self._body.bare()))
