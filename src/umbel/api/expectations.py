"""`@expectations`: what a dataset's rows should be like. They are watched, never enforced."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, overload

from umbel.api.constant import settled
from umbel.api.faults import located
from umbel.api.field import Field
from umbel.api.metadata import ATTRIBUTE
from umbel.errors import InvalidType, InvalidValue
from umbel.operators.userfunction import place_of
from umbel.plan.definitions import Expectation, Expectations, Metadata
from umbel.types.classbody import members_of

if TYPE_CHECKING:
    from umbel.api.dataset import Dataset

Listing = Callable[..., Any]
PAIR = 2


@dataclass(frozen=True)
class ExpectationsRecord:
    """A method that lists expectations.

    Args:
        func: its body.
        version: from 1.
    """

    func: Listing
    version: int

    def with_meta(self, meta: Metadata) -> Self:
        """Refuse metadata."""
        raise _described(self.func)

    def description(self) -> str:
        """What it is for."""
        return (self.func.__doc__ or "").strip()

    def listed(self, owner: Dataset) -> Expectations:
        """Run the method on its dataset and return what it lists."""
        return self._listed(owner, f"expectations '{self.func.__name__}' of dataset '{owner.__name__}'")

    def _listed(self, dataset: Dataset, owner: str) -> Expectations:
        with located(place_of(self.func)):
            found = self.func(dataset)
        if not isinstance(found, list | tuple):
            raise InvalidType(
                f"{owner} must return a list of expect_* results",
                where=place_of(self.func),
                hint='return [expect_column_values_to_be_between(column="age", min_value=0)]',
            )
        return Expectations(self.func.__name__, self.version, tuple(_expectation(owner, each) for each in found))


@overload
def expectations(func: Listing) -> ExpectationsRecord: ...


@overload
def expectations(func: None = None, version: int = 1) -> Callable[[Listing], ExpectationsRecord]: ...


def expectations(
    func: Listing | None = None, version: int = 1
) -> ExpectationsRecord | Callable[[Listing], ExpectationsRecord]:
    """Make a method `(cls)` of a dataset the list of what is expected of its rows.

    Args:
        func: returns a list of `expect_*` results.
        version: of the list.

    Raises:
        InvalidValue: other parameters than cls, or @meta on it.
        InvalidType: version is not an int.
    """
    if func is not None and not callable(func):
        raise InvalidType(f"@expectations: version must be an int, found {func!r}", hint="@expectations(version=1)")
    _check_version(version)

    def decorate(found: Listing) -> ExpectationsRecord:
        where = place_of(found)
        if list(inspect.signature(found).parameters) != ["cls"]:
            raise InvalidValue(
                f"expectations '{found.__name__}' must have cls as its only parameter",
                where=where,
                hint="def expected(cls): ...",
            )
        if hasattr(found, ATTRIBUTE):
            raise _described(found)
        return ExpectationsRecord(found, version)

    return decorate if func is None else decorate(func)


def _check_version(version: Any) -> None:
    if not isinstance(version, int) or isinstance(version, bool):
        raise InvalidType(f"@expectations: version must be an int, found {version!r}", hint="@expectations(version=1)")


def _described(func: Listing) -> InvalidValue:
    message = f"expectations '{func.__name__}' cannot have @meta"
    return InvalidValue(message, where=place_of(func), hint="put @meta on the dataset")


def expectations_of(cls: type, owner: Dataset, is_terminal: bool) -> Expectations | None:
    """Return the expectations defined in a dataset class."""
    found = [each for each in members_of(cls).values() if isinstance(each, ExpectationsRecord)]
    if not found:
        return None
    dataset = owner.__name__
    if len(found) > 1:
        names = ", ".join(f"'{each.func.__name__}'" for each in found)
        raise InvalidValue(
            f"dataset '{dataset}' has more than one @expectations: {names}", hint="list all of them in one method"
        )
    if is_terminal:
        raise InvalidValue(
            f"dataset '{dataset}': expectations '{found[0].func.__name__}' cannot be set on a dataset that ends in an "
            "aggregation over continuous windows",
            where=place_of(found[0].func),
            hint="watch the dataset it is computed from",
        )
    return found[0].listed(owner)


def _expectation(owner: str, found: Any) -> Expectation:
    if not isinstance(found, tuple) or len(found) != PAIR or not isinstance(found[1], dict):
        raise InvalidType(
            f"{owner}: expected the result of an expect_* function, found {found!r}",
            hint='return [expect_column_values_to_be_between(column="age", min_value=0)]',
        )
    name, arguments = found
    return Expectation(name, {key: settled(_named(value)) for key, value in arguments.items()})


def _named(value: Any) -> Any:
    """Return the names of fields given as such: `column=cls.age`."""
    if isinstance(value, list | tuple):
        return [_named(each) for each in value]
    return str(value) if isinstance(value, Field) else value
