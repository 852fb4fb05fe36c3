"""Calls of user extractors, and the lookups inside them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import polars as pl

from umbel.api.lookup import current
from umbel.errors import InvalidValue, Terminal, UmbelError, text_of
from umbel.functions.computed import in_order
from umbel.functions.user_function import UserFunction
from umbel.query.columns import cast, strict
from umbel.query.rows import Fields, QueryRows
from umbel.query.session import QuerySession
from umbel.query.steps import Step
from umbel.types.dtypes import Datetime, DType, Optional

if TYPE_CHECKING:
    import pandas as pd

    from umbel.definitions.records import DatasetDefinition


class ExtractorFailed(Terminal):
    """An extractor raised, or returned an invalid result."""

    code = "extractor-failed"


class ExtractorRefused(ExtractorFailed, ValueError):
    """An extractor failed with, or because of, an invalid value."""

    code = "extractor-refused"


class ExtractorTimedOut(ExtractorFailed, TimeoutError):
    """An extractor exceeded the time limit of a call."""

    code = "extractor-timed-out"


class ExtractorEnded(ExtractorFailed):
    """An extractor terminated its process, or exceeded its memory limit."""

    code = "extractor-ended"


@dataclass(frozen=True, slots=True)
class Argument:
    """An extractor's input feature: its name, its column, its type."""

    fqn: str
    source: str
    dtype: DType


@dataclass(frozen=True, slots=True)
class Returned:
    """An extractor's output feature: its qualified name, bare name and type."""

    fqn: str
    name: str
    dtype: DType


Computed = tuple[str, pl.Series, Any]
"""A computed feature: its name, its values, the pandas dtype it was returned in."""


@dataclass(frozen=True, slots=True)
class ExtractorCall:
    """The arguments of one extractor call.

    Args:
        at: the instant of each row.
        columns: the input columns, by feature name.
        requested: the features that are not known already.
    """

    at: pl.Series
    columns: Mapping[str, pl.Series]
    requested: tuple[str, ...]

    @property
    def height(self) -> int:
        """The number of rows."""
        return len(self.at)

    def row(self, number: int) -> ExtractorCall:
        """Return the call for a single row."""
        columns = {name: column.slice(number, 1) for name, column in self.columns.items()}
        return ExtractorCall(self.at.slice(number, 1), columns, self.requested)


class LookupSession(Protocol):
    """The part of a query session an extractor needs."""

    def lookup(
        self, dataset: str, keys: pl.DataFrame, at: pl.Series, fields: Fields = None
    ) -> tuple[pl.DataFrame, pl.Series]:
        """Return the row of each key as of each instant, with a found mask."""

    def dataset(self, name: str) -> DatasetDefinition | LookedUp:
        """Return a dataset; refuse one that may not be looked up."""


@dataclass(frozen=True, slots=True)
class LookedUp:
    """The part of a dataset definition that lookups need.

    Args:
        name: of the dataset.
        version: of the dataset.
        keys: the key fields.
        dtypes: the types of all columns.
        location: `file:line` of its definition.
    """

    name: str
    version: int
    keys: tuple[str, ...]
    dtypes: Mapping[str, DType]
    location: str

    @classmethod
    def of(cls, definition: DatasetDefinition) -> LookedUp:
        """Return the lookup part of a definition."""
        keys = tuple(definition.schema.key_names)
        return cls(definition.name, definition.version, keys, dict(definition.dtypes), definition.location)


@dataclass(frozen=True, slots=True)
class FunctionStep(Step):
    """The call of one extractor.

    Args:
        featureset: the featureset that defines it.
        name: its name.
        function: called with the timestamps and one series per argument.
        arguments: the features it reads.
        returns: the features it returns.
        datasets: the datasets it may look up.
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
        """The extractor's name, for messages."""
        return f"Extractor {self.name} in {self.featureset}"

    def run(self, rows: QueryRows, session: QuerySession) -> None:
        if not rows.height:  # a function written for rows need not know what to do without any
            for each in self.returns:
                rows.add(each.fqn, pl.Series(each.fqn, [], each.dtype.polars()))
            return
        columns = {each.fqn: rows.series(each.source) for each in self.arguments}
        call = ExtractorCall(rows.at, columns, self.requested(rows))
        caller = session.caller
        found = self.compute(call, session) if caller is None else caller.compute(self, call, session)
        rows.add_computed(found)

    def requested(self, rows: QueryRows) -> tuple[str, ...]:
        """Return the features it returns that are not known already."""
        return tuple(each.fqn for each in self.returns if each.fqn not in rows.columns)

    def compute(self, call: ExtractorCall, session: LookupSession) -> list[Computed]:
        """Call the extractor and return the requested features.

        Raises:
            ExtractorFailed: it raises, or returns an invalid result.
        """
        token = current.set(ExtractorLookups(session, self.title, self.datasets, self.function))
        try:
            types = self.function.typed({each.fqn: each.dtype for each in self.arguments})
            provided = [_named(types[each.fqn].to_pandas(call.columns[each.fqn]), each.fqn) for each in self.arguments]
            returned = self.function(_named(Datetime().to_pandas(call.at), "ts"), *provided)
        except (MemoryError, KeyboardInterrupt):
            raise
        except BaseException as error:  # user code raises anything, Polars panics
            kind = ExtractorRefused if isinstance(error, ValueError) else ExtractorFailed
            hint = getattr(error, "hint", None) or "mend the extractor, or the rows it is given"
            where = self.function.where or None
            raise kind(f"{self.title} failed to run with error: {_described(error)}", where=where, hint=hint) from error
        finally:
            current.reset(token)
        return list(self._columns(returned, call))

    def _columns(self, returned: Any, call: ExtractorCall) -> Iterator[Computed]:
        """Yield the computed features with their pandas dtypes.

        Features passed as query inputs are not replaced.
        """
        series = self._by_name(returned)
        requested = [each for each in self.returns if each.fqn in call.requested]
        for each in requested:
            self._check_height(each, len(series[each.name]), call)
        columns = {each.fqn: strict(series[each.name], each.dtype) for each in requested}
        errors = [f"feature '{each.name}': {columns[each.fqn][1]}" for each in requested if columns[each.fqn][1]]
        if errors:
            raise ExtractorFailed(
                f"{self.title} returned invalid schema: {'; '.join(errors)}",
                where=self.function.where or None,
                hint="return values of the types its features declare",
            )
        yield from ((each.fqn, columns[each.fqn][0], series[each.name].dtype) for each in requested)

    def _by_name(self, returned: Any) -> Mapping[str, pd.Series[Any]]:
        """Return the result by bare feature name; refuse one of another form."""
        import pandas as pd

        names = [each.name for each in self.returns]
        if isinstance(returned, pd.Series):
            if returned.name is None:
                raise ExtractorRefused(
                    f"{self.title} returned a Series without a name", hint=f"name it after its feature: {names[0]}"
                )
            columns = [(self._bare(returned.name), in_order(returned))]
        elif isinstance(returned, pd.DataFrame):
            columns = [(self._bare(name), column) for name, column in in_order(returned).items()]
        else:
            expected, kind = "a Series" if len(names) == 1 else "a DataFrame", type(returned)
            package = "" if kind.__module__ == "builtins" else f"{kind.__module__.partition('.')[0]}."
            raise ExtractorFailed(
                f"{self.title} returned {package}{kind.__name__}, expected {expected}",
                where=self.function.where or None,
                hint="return a pandas Series named after the feature, or a DataFrame with a column for each output",
            )
        found = dict(columns)
        repeated = sorted({name for name in names if sum(name == each for each, _ in columns) > 1})
        if repeated:
            raise ExtractorFailed(
                f"{self.title} returned invalid schema: more than one column of features {repeated}",
                where=self.function.where or None,
                hint="return one column for each output",
            )
        missing = [name for name in names if name not in found]
        if missing:
            raise ExtractorFailed(
                f"{self.title} returned invalid schema: missing features {missing}, found columns {list(found)}",
                where=self.function.where or None,
                hint="return a column for each output",
            )
        return found

    def _bare(self, name: object) -> str:
        return str(name).removeprefix(f"{self.featureset}.")

    def _check_height(self, each: Returned, height: int, call: ExtractorCall) -> None:
        if height != call.height:
            other = self.arguments[0].fqn if self.arguments else "the timestamps"
            raise ExtractorFailed(
                f"{self.title} returned {height} values of feature {each.fqn}, but there are {call.height} of {other}",
                where=self.function.where or None,
                hint="return a value for each row, in the order of the rows",
            )


def _described(error: BaseException) -> str:
    """Return the text of an exception, with the class of a `KeyError`.

    The text of that is the key alone.
    """
    text, name = text_of(error), type(error).__name__
    is_key = isinstance(error, KeyError) and not isinstance(error, UmbelError)
    return f"{name}: {text}" if text and is_key else text or name


def _named(series: pd.Series[Any], name: str) -> pd.Series[Any]:
    """Name a series in place: `rename` copies it."""
    series.name = name
    return series


class ExtractorLookups:
    """Answers `Dataset.lookup` inside an extractor.

    Args:
        session: of the query.
        subject: the extractor, for messages.
        allowed: the datasets in its `deps`.
        function: of the extractor.
    """

    def __init__(self, session: LookupSession, subject: str, allowed: Sequence[str], function: UserFunction) -> None:
        self._session, self._subject, self._allowed, self._function = session, subject, allowed, function

    def lookup(
        self, dataset: str, ts: pd.Series[Any], keys: Mapping[str, pd.Series[Any]], fields: Sequence[str]
    ) -> tuple[pd.DataFrame, pd.Series[Any]]:
        """Return the row of each key as of each instant, with a found mask."""
        return looked_up(self._definition(dataset), ts, keys, fields, self._session.lookup)

    def _definition(self, dataset: str) -> LookedUp:
        if dataset not in self._allowed:
            raise InvalidValue(
                f"{self._subject} looks up dataset '{dataset}', which is not in its deps; allowed: {list(self._allowed)}",
                hint=f"declare it: @extractor(deps=[{', '.join([*self._allowed, dataset])}])",
            )
        found = self._session.dataset(dataset)
        known = found if isinstance(found, LookedUp) else LookedUp.of(found)
        return replace(known, dtypes=self._function.typed(known.dtypes))


Answering = Callable[[str, pl.DataFrame, pl.Series, Fields], tuple[pl.DataFrame, pl.Series]]
"""Returns some fields of the rows of a dataset by keys as of instants, with a found mask."""


def looked_up(
    dataset: LookedUp,
    ts: pd.Series[Any],
    keys: Mapping[str, pd.Series[Any]],
    fields: Sequence[str],
    answer: Answering,
) -> tuple[pd.DataFrame, pd.Series[Any]]:
    """Answer `Dataset.lookup` with pandas input and output.

    Args:
        dataset: the committed one.
        ts: instants, one per row.
        keys: one series per key field.
        fields: the columns of the result, in order.
        answer: the function that looks the rows up.

    Raises:
        InvalidValue: an instant is missing.
    """
    import pandas as pd

    name, types = dataset.name, dataset.dtypes
    _check_committed(dataset, keys, fields)
    columns = [_key(name, key, keys[key], types[key]) for key in dataset.keys]
    instants = _key(name, "ts", ts, Datetime())
    if missing := instants.null_count():
        raise InvalidValue(
            f"lookup on dataset '{name}': {missing} of {len(instants)} timestamps are missing",
            hint="fill them, or look up the other rows only",
        )
    found, is_found = answer(name, pl.DataFrame(columns), instants, frozenset(fields))
    shown = {field: Optional(types[field].base).to_pandas(found.get_column(field)) for field in fields}
    return pd.DataFrame(shown, columns=list(fields)), pd.Series(is_found.to_numpy(writable=True), name="found")


def _check_committed(dataset: LookedUp, keys: Iterable[str], fields: Iterable[str]) -> None:
    """Refuse a lookup on a dataset that differs from the committed one."""
    if set(keys) != set(dataset.keys) or not set(fields) <= set(dataset.dtypes):
        raise InvalidValue(
            f"lookup on dataset '{dataset.name}': version {dataset.version}, which is committed, has the key fields "
            f"{list(dataset.keys)} and the fields {list(dataset.dtypes)}; requested by {list(keys)}: {list(fields)}",
            where=dataset.location or None,
            hint="look it up through the dataset that is committed",
        )


def _key(dataset: str, name: str, series: pd.Series[Any], dtype: DType) -> pl.Series:
    return cast(series, Optional(dtype), f"lookup on dataset '{dataset}': '{name}'").alias(name)
