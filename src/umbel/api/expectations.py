"""`@expectations`: expectations of a dataset's rows, counted but never enforced."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, overload

from umbel.api.constant import normalized
from umbel.api.field import Field
from umbel.api.metadata import ATTRIBUTE
from umbel.definitions.records import Expectation, Expectations, Metadata
from umbel.definitions.shares import is_share
from umbel.definitions.versions import check_version
from umbel.errors import InvalidType, InvalidValue, did_you_mean, located
from umbel.functions.user_function import location_of
from umbel.types.class_body import members_of
from umbel.types.patterns import pattern_of

if TYPE_CHECKING:
    from umbel.api.dataset import Dataset

Listing = Callable[..., Any]
PAIR = 2


@dataclass(frozen=True)
class ExpectationsRecord:
    """A method that returns a list of expectations.

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
        """Description from the metadata."""
        return (self.func.__doc__ or "").strip()

    def listed(self, subject: Dataset) -> Expectations:
        """Run the method on its dataset and return the listed expectations."""
        return self._listed(subject, f"expectations '{self.func.__name__}' of dataset '{subject.__name__}'")

    def _listed(self, dataset: Dataset, subject: str) -> Expectations:
        with located(location_of(self.func)):
            found = self.func(dataset)
        if not isinstance(found, list | tuple):
            raise InvalidType(
                f"{subject} must return a list of expect_* results",
                where=location_of(self.func),
                hint='return [expect_column_values_to_be_between(column="age", min_value=0)]',
            )
        names = [each.name for each in dataset.fields]
        expected = tuple(_checked(subject, _expectation(subject, each), names) for each in found)
        return Expectations(self.func.__name__, self.version, expected)


@overload
def expectations(func: Listing) -> ExpectationsRecord: ...


@overload
def expectations(func: None = None, version: int = 1) -> Callable[[Listing], ExpectationsRecord]: ...


def expectations(
    func: Listing | None = None, version: int = 1
) -> ExpectationsRecord | Callable[[Listing], ExpectationsRecord]:
    """Declare a method `(cls)` of a dataset as its list of expectations.

    Args:
        func: returns a list of `expect_*` results.
        version: of the list.

    Raises:
        InvalidValue: the method has parameters other than cls, or has @meta.
        InvalidType: version is not an int.
    """
    if func is not None and not callable(func):
        raise InvalidType(f"@expectations: version must be an int, found {func!r}", hint="@expectations(version=1)")
    check_version("@expectations", version, "@expectations(version=1)")

    def decorate(found: Listing) -> ExpectationsRecord:
        where = location_of(found)
        if list(inspect.signature(found).parameters) != ["cls"]:
            raise InvalidValue(
                f"expectations '{_qualified(found)}' must have cls as its only parameter",
                where=where,
                hint="def expected(cls): ...",
            )
        if hasattr(found, ATTRIBUTE):
            raise _described(found)
        return ExpectationsRecord(found, version)

    return decorate if func is None else decorate(func)


def _qualified(func: Listing) -> str:
    """Return a method's name with that of its dataset, which is not there yet."""
    return func.__qualname__.rpartition("<locals>.")[2]


def _described(func: Listing) -> InvalidValue:
    message = f"expectations '{_qualified(func)}' cannot have @meta"
    return InvalidValue(message, where=location_of(func), hint="put @meta on the dataset")


def expectations_of(cls: type, subject: Dataset, is_terminal: bool) -> Expectations | None:
    """Return the expectations defined in a dataset class."""
    found = [each for each in members_of(cls).values() if isinstance(each, ExpectationsRecord)]
    if not found:
        return None
    dataset = subject.__name__
    if len(found) > 1:
        names = ", ".join(f"'{each.func.__name__}'" for each in found)
        raise InvalidValue(
            f"dataset '{dataset}' has more than one @expectations: {names}", hint="list all of them in one method"
        )
    if is_terminal:
        raise InvalidValue(
            f"dataset '{dataset}': expectations '{found[0].func.__name__}' cannot be set on a dataset that ends in an "
            "aggregation over continuous windows",
            where=location_of(found[0].func),
            hint="watch the dataset it is computed from",
        )
    return found[0].listed(subject)


def _expectation(subject: str, found: Any) -> Expectation:
    if not isinstance(found, tuple) or len(found) != PAIR or not isinstance(found[1], dict):
        raise InvalidType(
            f"{subject}: expected the result of an expect_* function, found {found!r}",
            hint='return [expect_column_values_to_be_between(column="age", min_value=0)]',
        )
    name, arguments = found
    return Expectation(name, {key: normalized(_named(value)) for key, value in arguments.items()})


def _checked(subject: str, expectation: Expectation, fields: Sequence[str]) -> Expectation:
    """Check what no row could be judged by: the columns, the tolerance and the patterns."""
    subject = f"{subject}: {expectation.name}"
    unknown = [name for name in expectation.columns if name not in fields]
    if unknown:
        raise InvalidValue(
            f"{subject}: unknown field '{unknown[0]}'{did_you_mean(unknown[0], fields)}",
            hint="name fields of the dataset, or write str(cls.field)",
        )
    mostly = expectation.arguments.get("mostly")
    if mostly is not None and not is_share(mostly):
        raise InvalidValue(f"{subject}: mostly must be a number from 0 to 1, found {mostly!r}", hint="mostly=0.95")
    listed = expectation.arguments.get("regex_list")
    for pattern in [expectation.arguments.get("regex", ""), *(listed if isinstance(listed, list) else [])]:
        try:
            pattern_of(pattern, is_search=True)
        except (re.error, TypeError) as error:
            raise InvalidValue(
                f"{subject}: {pattern!r} is no regular expression: {error}", hint="a pattern like '[a-z]+'"
            ) from error
    return expectation


def _named(value: Any) -> Any:
    """Return field objects as names, as in `column=cls.age`."""
    if isinstance(value, list | tuple):
        return [_named(each) for each in value]
    return str(value) if isinstance(value, Field) else value
