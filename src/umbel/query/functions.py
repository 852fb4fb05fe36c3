"""Calls of the user's extractors, and what they may look up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import polars as pl

from umbel.api.lookups import current
from umbel.errors import InvalidValue, Terminal, UmbelError
from umbel.operators.computed import in_order
from umbel.operators.userfunction import UserFunction
from umbel.plan.definitions import DatasetDefinition
from umbel.query.columns import cast, strict
from umbel.query.rows import Rows
from umbel.query.session import Session
from umbel.query.steps import Step
from umbel.types.dtypes import Datetime, DType, Optional

if TYPE_CHECKING:
    import pandas as pd


class ExtractorFailed(Terminal):
    """An extractor raised, or returned what it should not."""

    code = "extractor-failed"


class ExtractorRefused(ExtractorFailed, ValueError):
    """An extractor failed with, or because of, a wrong value."""

    code = "extractor-refused"


@dataclass(frozen=True, slots=True)
class Argument:
    """A feature an extractor reads: its name, the column that holds it, its type."""

    fqn: str
    source: str
    dtype: DType


@dataclass(frozen=True, slots=True)
class Returned:
    """A feature an extractor returns: its fully qualified and its bare name, its type."""

    fqn: str
    name: str
    dtype: DType


@dataclass(frozen=True, slots=True)
class FunctionStep(Step):
    """The call of one extractor.

    Args:
        featureset: where it is defined.
        name: its name.
        function: called with the timestamps and one series per argument.
        arguments: what it reads.
        returns: what it gives.
        datasets: what it may look up.
    """

    featureset: str
    name: str
    function: UserFunction
    arguments: tuple[Argument, ...]
    returns: tuple[Returned, ...]
    datasets: tuple[str, ...]

    is_rowwise: ClassVar[bool] = False

    @property
    def title(self) -> str:
        """The extractor, for messages."""
        return f"Extractor {self.name} in {self.featureset}"

    def run(self, rows: Rows, session: Session) -> None:
        given = [each.dtype.to_pandas(rows.series(each.source)).rename(each.fqn) for each in self.arguments]
        token = current.set(ExtractorLookups(session, self.title, self.datasets))
        try:
            returned = self.function(Datetime().to_pandas(rows.at).rename("ts"), *given)
        except Exception as error:
            kind = ExtractorRefused if isinstance(error, ValueError) else ExtractorFailed
            told = error.message if isinstance(error, UmbelError) else error
            hint = getattr(error, "hint", None) or "mend the extractor, or the rows it is given"
            where = self.function.where or None
            raise kind(f"{self.title} failed to run with error: {told}", where=where, hint=hint) from error
        finally:
            current.reset(token)
        for fqn, column in self._columns(returned, rows):
            rows.add(fqn, column)

    def _columns(self, returned: Any, rows: Rows) -> Iterator[tuple[str, pl.Series]]:
        """Yield the features that were computed; those given as inputs stay what they are."""
        series = self._by_name(returned)
        wanted = [each for each in self.returns if each.fqn not in rows.columns]
        for each in wanted:
            self._check_height(each, len(series[each.name]), rows)
        columns = {each.fqn: strict(series[each.name], each.dtype) for each in wanted}
        faults = [f"feature '{each.name}': {columns[each.fqn][1]}" for each in wanted if columns[each.fqn][1]]
        if faults:
            raise ExtractorFailed(
                f"{self.title} returned invalid schema: {'; '.join(faults)}",
                where=self.function.where or None,
                hint="return values of the types its features declare",
            )
        yield from ((fqn, column) for fqn, (column, _) in columns.items())

    def _by_name(self, returned: Any) -> Mapping[str, pd.Series[Any]]:
        """Return what came back by bare feature name, if it has the right form."""
        import pandas as pd

        names = [each.name for each in self.returns]
        if isinstance(returned, pd.Series):
            if returned.name is None:
                raise ExtractorRefused(
                    f"{self.title} returned a Series without a name", hint=f"name it after its feature: {names[0]}"
                )
            returned = returned.to_frame()
        if not isinstance(returned, pd.DataFrame):
            expected = "a Series" if len(names) == 1 else "a DataFrame"
            raise ExtractorFailed(
                f"{self.title} returned {type(returned).__name__}, expected {expected}",
                where=self.function.where or None,
                hint="return a Series named after the feature, or a DataFrame with a column for each output",
            )
        found = {str(name).removeprefix(f"{self.featureset}."): column for name, column in in_order(returned).items()}
        missing = [name for name in names if name not in found]
        if missing:
            raise ExtractorFailed(
                f"{self.title} returned invalid schema: missing features {missing}, found columns {list(found)}",
                where=self.function.where or None,
                hint="return a column for each output",
            )
        return found

    def _check_height(self, each: Returned, height: int, rows: Rows) -> None:
        if height != rows.height:
            other = self.arguments[0].fqn if self.arguments else "the timestamps"
            raise ExtractorFailed(
                f"{self.title} returned {height} values of feature {each.fqn}, but there are {rows.height} of {other}",
                where=self.function.where or None,
                hint="return a value for each row, in the order of the rows",
            )


class ExtractorLookups:
    """Answers `Dataset.lookup` inside of an extractor.

    Args:
        session: of the query.
        owner: the extractor, for messages.
        allowed: the datasets in its `deps`.
    """

    def __init__(self, session: Session, owner: str, allowed: Sequence[str]) -> None:
        self._session, self._owner, self._allowed = session, owner, allowed

    def lookup(
        self, dataset: str, ts: pd.Series[Any], keys: Mapping[str, pd.Series[Any]], fields: Sequence[str]
    ) -> tuple[pd.DataFrame, pd.Series[Any]]:
        """Return the row of each key as of each instant, and whether there is one."""
        import pandas as pd

        definition = self._definition(dataset)
        types = definition.dtypes
        columns = [self._key(dataset, name, series, types[name]) for name, series in keys.items()]
        at = self._key(dataset, "ts", ts, Datetime())
        found, is_found = self._session.lookup(dataset, pl.DataFrame(columns), at)
        shown = {name: Optional(types[name].base).to_pandas(found.get_column(name)) for name in fields}
        return pd.DataFrame(shown, columns=list(fields)), pd.Series(is_found.to_numpy(writable=True), name="found")

    def _definition(self, dataset: str) -> DatasetDefinition:
        if dataset not in self._allowed:
            raise InvalidValue(
                f"{self._owner} looks up dataset '{dataset}', which is not in its deps; allowed: {list(self._allowed)}",
                hint=f"declare it: @extractor(deps=[{', '.join([*self._allowed, dataset])}])",
            )
        return self._session.dataset(dataset)

    @staticmethod
    def _key(dataset: str, name: str, series: pd.Series[Any], dtype: DType) -> pl.Series:
        return cast(series, Optional(dtype), f"lookup on dataset '{dataset}': '{name}'").alias(name)
