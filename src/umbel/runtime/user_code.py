"""Rows to be processed by user code, in this process or a child."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import lru_cache
from typing import Any, Generic, TypeVar

import cloudpickle
import polars as pl

from umbel.functions.fingerprint import fingerprint
from umbel.operators.operator import RowWise
from umbel.runtime.isolated import Application, Judgement
from umbel.types.dtypes import Checked

T = TypeVar("T")


class Work(ABC, Generic[T]):
    """Rows to be processed by user code.

    Args:
        key: of the code, for verdicts.
        title: for messages.
    """

    key: str
    title: str
    has_functions = True

    @abstractmethod
    def payload(self) -> bytes:
        """Return the callable for a child, pickled."""

    @abstractmethod
    def here(self, rows: pl.DataFrame) -> T:
        """Process rows in this process."""

    @abstractmethod
    def arrived(self, result: Any) -> T:
        """Return a result received from a child."""

    @abstractmethod
    def joined(self, parts: list[T]) -> T:
        """Merge the results of parts of the rows."""


class Applying(Work[pl.DataFrame]):
    """Rows to be processed by an operator."""

    def __init__(self, operator: RowWise) -> None:
        self._operator = operator
        self.key, self.has_functions = operator.code_id, bool(operator.functions)
        names = ", ".join(each.name for each in operator.functions)
        self.title = f"{operator.title}{f', function {names}' if names else ''}"

    def payload(self) -> bytes:
        return bytes(cloudpickle.dumps(Application.of(self._operator)))

    def here(self, rows: pl.DataFrame) -> pl.DataFrame:
        return self._operator.applied(rows)

    def arrived(self, result: Any) -> pl.DataFrame:
        found: pl.DataFrame = result
        return found

    def joined(self, parts: list[pl.DataFrame]) -> pl.DataFrame:
        return pl.concat(parts) if parts else self._operator.schema.empty()


@lru_cache(maxsize=1024)
def applying(operator: RowWise) -> Applying:
    """Return the work of an operator, cached."""
    return Applying(operator)


class Judging(Work[Checked]):
    """Rows from which a function of preproc or `where` computes values."""

    def __init__(self, judgement: Judgement) -> None:
        self._judgement = judgement
        function = judgement.computed.function
        self.key, self.title = fingerprint(function, judgement.declared), f"function {function.name}"

    def payload(self) -> bytes:
        return bytes(cloudpickle.dumps(self._judgement))

    def here(self, rows: pl.DataFrame) -> Checked:
        return self._judgement.judged(rows)

    def arrived(self, result: Any) -> Checked:
        return Checked(*result)

    def joined(self, parts: list[Checked]) -> Checked:
        errors, start = dict[int, str](), 0
        for part in parts:
            errors.update({start + row: why for row, why in part.errors.items()})
            start += len(part.values)
        values = [part.values for part in parts]
        return Checked(pl.concat(values) if values else pl.Series([], dtype=self._judgement.declared.polars()), errors)
