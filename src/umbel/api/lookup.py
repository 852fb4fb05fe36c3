"""Argument checks and dispatch of `Dataset.lookup`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

from umbel.errors import InvalidType, InvalidValue, misspelt
from umbel.operators.columns import check_known, quoted

if TYPE_CHECKING:
    import pandas as pd

    from umbel.api.field import Field
    from umbel.definitions.records import DatasetDefinition


class LookupProvider(Protocol):
    """Answers lookups on datasets."""

    def lookup(
        self, dataset: str, ts: pd.Series[Any], keys: Mapping[str, pd.Series[Any]], fields: Sequence[str]
    ) -> tuple[pd.DataFrame, pd.Series[Any]]:
        """Return the row of each key as of each instant, with a found mask.

        Args:
            dataset: its name.
            ts: instants, one per row.
            keys: one series per key field.
            fields: the columns of the result, in order.
        """


current: ContextVar[LookupProvider | None] = ContextVar("umbel_lookups", default=None)
"""The lookup provider of the query with an extractor running in this context."""

_outside: list[Callable[[], LookupProvider | None]] = []


def answer_outside(find: Callable[[], LookupProvider | None]) -> None:
    """Set the provider of lookups outside extractors: the result of `find`.

    `find` returns None if there is no provider.
    """
    _outside[:] = [find]


def answering() -> LookupProvider | None:
    """Return the provider of lookups in the current context, or None."""
    found = current.get()
    return found if found is not None or not _outside else _outside[0]()


def lookup(
    dataset: DatasetDefinition,
    is_indexed: bool,
    ts: Sequence[Any],
    fields: Sequence[str | Field],
    keys: Mapping[str, Any],
) -> tuple[pd.DataFrame, pd.Series[Any]]:
    """Check the arguments of a lookup and call the current provider."""
    subject = f"lookup on dataset '{dataset.name}'"
    names = dataset.schema.key_names
    if not names:
        raise InvalidType(
            f"{subject}: it has no key fields, so it cannot be looked up", hint="mark its keys: field(key=True)"
        )
    if not is_indexed:
        raise InvalidValue(f"{subject}: define an index on dataset '{dataset.name}'", hint="@dataset(index=True)")
    if not ts and "ts" in keys and "ts" not in names:
        ts, keys = (keys["ts"],), {name: series for name, series in keys.items() if name != "ts"}
    if len(ts) != 1:
        raise InvalidValue(
            f"{subject}: expected one positional argument, the timestamps, found {len(ts)}",
            hint="lookup(ts, key=series)",
        )
    if isinstance(fields, str):
        raise InvalidValue(
            f"{subject}: fields must be a list of names, found the text {fields!r}", hint="put it in a list"
        )
    _check_keys(subject, names, keys)
    _check_series(subject, ts[0], keys)
    requested = [str(name) for name in fields] or dataset.schema.names
    check_known(requested, dataset.schema.names, subject, "field")
    answers = answering()
    if answers is None:
        raise InvalidValue(
            f"{subject}: it is not committed: there is neither a query that runs an extractor nor a mock client",
            hint="look it up in an extractor that names it in deps, or in a test with @mock after client.commit(...)",
        )
    return answers.lookup(dataset.name, ts[0], {name: keys[name] for name in names}, requested)


def _check_keys(subject: str, names: Sequence[str], keys: Mapping[str, Any]) -> None:
    missing = [name for name in names if name not in keys]
    if missing:
        meant = misspelt(missing, (name for name in keys if name not in names))
        raise InvalidValue(
            f"{subject}: missing key {quoted(missing)}{meant}", hint=f"pass {', '.join(f'{n}=' for n in names)}"
        )
    check_known(keys, names, subject, "key")


def _check_series(subject: str, ts: Any, keys: Mapping[str, Any]) -> None:
    import pandas as pd

    for name, series in keys.items():
        if not isinstance(series, pd.Series):
            raise InvalidValue(
                f"{subject}: key '{name}' must be a pandas Series, found {type(series).__name__}",
                hint="pass a Series for each key",
            )
    if not isinstance(ts, pd.Series) or not (ts.empty or pd.api.types.is_datetime64_any_dtype(_instants(ts))):
        raise InvalidValue(
            f"{subject}: the timestamps must be a pandas Series of datetimes, found {_kind(ts)}",
            hint="pass the extractor's ts",
        )
    for name, series in keys.items():
        if len(series) != len(ts):
            raise InvalidValue(
                f"{subject}: {len(ts)} timestamps, but {len(series)} values of key '{name}'",
                hint="pass as many keys as timestamps",
            )


def _instants(ts: pd.Series[Any]) -> pd.Series[Any]:
    """Return a series of datetime objects with its inferred dtype."""
    return ts.infer_objects() if ts.dtype == object else ts


def _kind(value: Any) -> str:
    return f"a Series of {value.dtype}" if hasattr(value, "dtype") else type(value).__name__
