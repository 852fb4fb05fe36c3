"""Decorated classes: a definition, and the parts of the class that only Python has."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import cached_property
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

    def __with_members__(self, names: AbstractSet[str], part: object = None) -> tuple[object, ...]:
        """Return how to make the object with the members in `names`.

        Args:
            names: of members.
            part: what is unpickled as the object without members, if there is that.
        """
        found = self.__bare_body__.members.keys() & names
        members = {name: each for name, each in self.__bare_body__.members.items() if name in found} if found else {}
        if part is not None:
            return _joined, (part, members)
        return type(self), (replace(self._record, **self._unpickled), replace(self.__bare_body__, members=members))

    def __without_members__(self) -> tuple[tuple[object, ...], list[Any]]:
        """Return the arguments that make the object without members, and the annotations of its columns."""
        body = replace(self.__bare_body__, members={})
        return (replace(self._record, **self._unpickled), body), [each.dtype for each in body.columns]

    @cached_property
    def __bare_body__(self) -> Parts:
        return self._body.bare()

    def __mro_entries__(self, bases: tuple[object, ...]) -> NoReturn:
        raise InvalidType(
            f"{self._kind} '{self._record.name}' cannot be inherited from",
            hint=f"let both inherit from a class with the annotations they share, without @{self._kind}",
        )

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (replace(self._record, **self._unpickled), self.__bare_body__))


def _joined(bare: Defined[Any, Any], members: Mapping[str, Any]) -> Defined[Any, Any]:
    if not members:
        return bare
    kind: Any = type(bare)
    own = vars(bare)
    joined: Defined[Any, Any] = kind(own["_record"], replace(own["_body"], members=members))
    return joined
