"""The checks of `Dataset.lookup`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from umbel.api.lookups import current
from umbel.errors import InvalidType, InvalidValue
from umbel.operators.columns import check_known, quoted

if TYPE_CHECKING:
    import pandas as pd

    from umbel.api.dataset import DatasetRecord
    from umbel.api.field import Field


def lookup(
    dataset: DatasetRecord, ts: Sequence[Any], fields: Sequence[str | Field], keys: Mapping[str, Any]
) -> tuple[pd.DataFrame, pd.Series[Any]]:
    """Check the arguments of a lookup and ask whoever answers it."""
    owner = f"lookup on dataset '{dataset.name}'"
    names = dataset.schema.key_names
    if not names:
        raise InvalidType(
            f"{owner}: it has no key fields, so it cannot be looked up", hint="mark its keys: field(key=True)"
        )
    if not dataset.is_indexed:
        raise InvalidValue(f"{owner}: define an index on dataset '{dataset.name}'", hint="@dataset(index=True)")
    if not ts and "ts" in keys and "ts" not in names:
        ts, keys = (keys["ts"],), {name: series for name, series in keys.items() if name != "ts"}
    if len(ts) != 1:
        raise InvalidValue(
            f"{owner}: expected one positional argument, the timestamps, found {len(ts)}", hint="lookup(ts, key=series)"
        )
    if isinstance(fields, str):
        raise InvalidValue(
            f"{owner}: fields must be a list of names, found the text {fields!r}", hint="put it in a list"
        )
    _check_keys(owner, names, keys)
    _check_series(owner, ts[0], keys)
    wanted = [str(name) for name in fields] or dataset.schema.names
    check_known(wanted, dataset.schema.names, owner, "field")
    answers = current.get()
    if answers is None:
        raise InvalidValue(
            f"{owner}: it is not committed, or this is not an extractor of a running query",
            hint="commit it, and look it up inside an extractor that names it in deps",
        )
    return answers.lookup(dataset.name, ts[0], {name: keys[name] for name in names}, wanted)


def _check_keys(owner: str, names: Sequence[str], keys: Mapping[str, Any]) -> None:
    missing = [name for name in names if name not in keys]
    if missing:
        raise InvalidValue(f"{owner}: missing key {quoted(missing)}", hint=f"pass {', '.join(f'{n}=' for n in names)}")
    check_known(keys, names, owner, "key")


def _check_series(owner: str, ts: Any, keys: Mapping[str, Any]) -> None:
    import pandas as pd

    for name, series in keys.items():
        if not isinstance(series, pd.Series):
            raise InvalidValue(
                f"{owner}: key '{name}' must be a pandas Series, found {type(series).__name__}",
                hint="pass a Series for each key",
            )
    if not isinstance(ts, pd.Series) or not (ts.empty or pd.api.types.is_datetime64_any_dtype(_instants(ts))):
        raise InvalidValue(
            f"{owner}: the timestamps must be a pandas Series of datetimes, found {_kind(ts)}",
            hint="pass the extractor's ts",
        )
    for name, series in keys.items():
        if len(series) != len(ts):
            raise InvalidValue(
                f"{owner}: {len(ts)} timestamps, but {len(series)} values of key '{name}'",
                hint="pass as many keys as timestamps",
            )


def _instants(ts: pd.Series[Any]) -> pd.Series[Any]:
    """Return a series of datetime objects with its inferred dtype."""
    return ts.infer_objects() if ts.dtype == object else ts


def _kind(value: Any) -> str:
    return f"a Series of {value.dtype}" if hasattr(value, "dtype") else type(value).__name__
