"""Cases: definitions, what is logged, what is queried and what the answer must be. Every engine runs the same cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

Row = Mapping[str, Any]


class Session(Protocol):
    """A running engine with a case's definitions committed."""

    def log(self, dataset: str, rows: Sequence[Row]) -> None:
        """Feed rows to a dataset and wait until everything has seen them."""

    def table(self, dataset: str) -> list[Row]:
        """Return all rows a dataset has had, superseded ones included, in any order."""

    def lookup(self, dataset: str, keys: Sequence[Row], at: Sequence[datetime]) -> list[tuple[Row, bool]]:
        """Return the row of each key as of each instant, and whether it was found."""

    def query(
        self, inputs: Sequence[str], outputs: Sequence[str], rows: Sequence[Row], at: Sequence[datetime] | None
    ) -> list[Row]:
        """Return features, as of now or of an instant per row."""


class Step(Protocol):
    """A part of a case."""

    def run(self, session: Session) -> None:
        """Do it, or fail."""


@dataclass(frozen=True)
class Log:
    """Feed rows to a dataset."""

    dataset: str
    rows: Sequence[Row]

    def run(self, session: Session) -> None:
        session.log(self.dataset, self.rows)


@dataclass(frozen=True)
class Table:
    """Expect a dataset to have had exactly these rows.

    Args:
        dataset: its name.
        rows: in any order.
        columns: those compared.
    """

    dataset: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]

    def run(self, session: Session) -> None:
        found = sorted(shown([row[name] for name in self.columns]) for row in session.table(self.dataset))
        expected = sorted(map(shown, self.rows))
        assert found == expected, f"{self.dataset}: found {_lines(found)}\nexpected {_lines(expected)}"


@dataclass(frozen=True)
class AsOf:
    """Expect lookups to find these values.

    Args:
        dataset: its name.
        key: what is looked up.
        columns: those compared.
        expected: the values at each instant, None where the key must not be found.
        unfound: the values that defaults give where the key is not found, by column.
    """

    dataset: str
    key: Row
    columns: Sequence[str]
    expected: Mapping[datetime, Sequence[Any] | None]
    unfound: Row = field(default_factory=dict)

    def run(self, session: Session) -> None:
        at = list(self.expected)
        found = session.lookup(self.dataset, [self.key] * len(at), at)
        for instant, (row, is_found) in zip(at, found, strict=True):
            values = self.expected[instant]
            assert is_found == (values is not None), f"{self.dataset} {self.key} at {instant}: found={is_found}"
            expected = [self.unfound.get(name) for name in self.columns] if values is None else values
            actual = [row[name] for name in self.columns]
            assert shown(actual) == shown(expected), f"{self.dataset} at {instant}: found {actual}, expected {expected}"


@dataclass(frozen=True)
class Features:
    """Expect a query to give these features."""

    rows: Sequence[Row]
    expected: Mapping[str, Sequence[Any]]
    at: Sequence[datetime] | None = None

    def run(self, session: Session) -> None:
        inputs = list(self.rows[0])
        found = session.query(inputs, list(self.expected), self.rows, self.at)
        for name, values in self.expected.items():
            actual = [row[name] for row in found]
            assert shown(actual) == shown(values), f"{name}: found {actual}, expected {values}"


@dataclass(frozen=True)
class Case:
    """One case.

    Args:
        name: unique.
        datasets: to commit.
        steps: in order.
        featuresets: to commit.
    """

    name: str
    datasets: Sequence[Any]
    steps: Sequence[Step]
    featuresets: Sequence[Any] = ()


def _lines(rows: Sequence[str]) -> str:
    return "".join(f"\n  {row}" for row in rows)


def instant(text: str) -> datetime:
    """Return an instant in UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def shown(values: Sequence[Any]) -> str:
    """Return values as text that tells all that matters apart, floats to nine digits."""
    return repr([_comparable(value) for value in values])


def _comparable(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, float):
        return float(f"{value:.9g}")
    if isinstance(value, list | tuple):
        return [_comparable(each) for each in value]
    if isinstance(value, Mapping):
        return {name: _comparable(each) for name, each in value.items()}
    return value
