"""The definition checks of an aggregation."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

import polars as pl

from umbel.aggregates.aggregate import Aggregate
from umbel.aggregates.columns import Columns
from umbel.changes.versions import TIME
from umbel.errors import InvalidType, InvalidValue, NotSupported, UmbelError, text_of
from umbel.operators.columns import check_known, quoted
from umbel.types import dtypes
from umbel.types.schema import AT, CHANGE_COLUMNS, Schema
from umbel.types.windows import Continuous, Hopping, Session, Tumbling

if TYPE_CHECKING:
    from umbel.operators.aggregate import Aggregation

EMISSIONS = ("eager", "final")
WINDOW = "window"
MOST_WINDOWS = 100_000
"""How many windows of one Hopping a row may be in; each is a row of the results."""


def check_aggregate(node: Aggregation, rows: Schema) -> None:
    """Check the definition of an aggregation of `rows`; raise its errors."""
    _check_keys(node, rows)
    _check_emit(node, rows)
    _check_along(node, rows)
    _check_groupby_window(node, rows)
    _check_windows(node, rows)
    _check_aggregates(node, rows)
    _check_names(node, rows)


def _check_aggregates(node: Aggregation, rows: Schema) -> None:
    for each in node.aggregates:
        try:
            each.check(rows)
        except UmbelError as error:
            raise error.restated(f"{node.title}: {error.message}", where=error.where, hint=error.hint) from None


def check_algebra(aggregate: Aggregate, rows: Schema, *, is_retractable: bool) -> None:
    """Check that an aggregate returns what it declares, by computing it for no rows.

    Args:
        aggregate: the aggregate.
        rows: the schema of the rows.
        is_retractable: True if rows may be retracted.

    Raises:
        InvalidType: it returns something else, or raises an exception.
    """
    state = Columns(aggregate.column or "", aggregate.input(rows), is_retractable=is_retractable)
    try:
        errors = [*_mismatches(aggregate, state, aggregate.result_type(rows).polars())]
    except UmbelError:
        raise
    except Exception as error:  # noqa: BLE001  of code of another package
        errors = [f"{type(error).__name__}: {text_of(error)}"]
    if errors:
        text = f"aggregate {type(aggregate).__name__}: {'; '.join(errors)}"
        raise InvalidType(text, hint="docs/howto/extend.md has an example of an aggregate")


def _mismatches(aggregate: Aggregate, state: Columns, result: pl.DataType) -> Iterator[str]:
    """Describe where an aggregate returns something else than it declares."""
    algebra = aggregate.algebra
    parts = algebra.state(state)
    for method in (algebra.lift, algebra.merge):
        if (found := method(state)).keys() != parts.keys():
            yield f"{method.__name__} returns {quoted(found) or 'nothing'}, and its state is {quoted(parts) or 'empty'}"
    states = pl.DataFrame(schema={**CHANGE_COLUMNS, TIME: CHANGE_COLUMNS[AT], **state.schema(parts)})
    value = aggregate.result(states, state)
    column = states.select(value).to_series() if isinstance(value, pl.Expr) else value
    if len(column):
        yield "result returns one value for all states, not one for each"
    elif column.dtype != result:
        yield f"result is of type {column.dtype}, and result_type says {result}"


def _check_keys(node: Aggregation, rows: Schema) -> None:
    if not node.keys:
        raise InvalidValue(f"{node.title}: groupby needs at least one key", hint="groupby('key')")
    check_known(node.keys, [name for name in rows.names if name != rows.timestamp], f"{node.title}: groupby", "field")
    for name in node.keys:
        if rows.dtypes[name].is_optional:
            raise InvalidValue(f"{node.title}: key '{name}' is optional", hint="drop the nulls first")


def _check_emit(node: Aggregation, rows: Schema) -> None:
    if node.emit not in EMISSIONS:
        raise InvalidValue(
            f"{node.title}: emit must be 'eager' or 'final', found {node.emit!r}",
            hint='emit="eager" emits every change, emit="final" the last one',
        )
    if node.emit == "final" and node.along is not None:
        hint = "leave emit='final' out, or make the input keyless with changelog" if rows.is_keyed else ""
        raise InvalidValue(
            f"{node.title}: along='{node.along}' cannot go with emit='final'", hint=hint or "leave one of them out"
        )
    if node.emit == "final":
        for each in node.aggregates:
            if each.needs_instant:
                raise InvalidValue(f"{node.title}: {each.title} cannot go with emit='final'", hint='use emit="eager"')


def _check_along(node: Aggregation, rows: Schema) -> None:
    if node.along is None:
        return
    if not isinstance(node.along, str):
        raise InvalidValue(
            f"{node.title}: along must be the name of a column, found {node.along!r}", hint='along="created_at"'
        )
    check_known([node.along], rows.value_names, f"{node.title}: along", "value column")
    found = rows.dtypes[node.along]
    if found != dtypes.Datetime():
        raise InvalidValue(
            f"{node.title}: along='{node.along}' must be a datetime column, found {found}",
            hint="name a value column of type datetime",
        )


def _check_kind(node: Aggregation, window: object) -> None:
    if not isinstance(window, Tumbling | Hopping | Session):
        found = type(window).__name__
        raise InvalidType(
            f"{node.title}: groupby window must be Hopping, Session or Tumbling, found {found}",
            hint="put a Continuous window into the aggregates",
        )


def _check_groupby_window(node: Aggregation, rows: Schema) -> None:
    window: object = node.window  # any object: not validated yet
    if window is None:
        if not node.aggregates:
            raise InvalidType(f"{node.title}: no aggregates given", hint="aggregate(n=Count(window=…))")
        return
    _check_kind(node, window)
    if isinstance(window, Hopping) and window.is_forever:
        raise InvalidType(
            f"{node.title}: groupby window cannot be a Hopping of duration 'forever'",
            hint="put it into the aggregates: Count(window=Hopping('forever', ...))",
        )
    if rows.is_keyed:
        keys = quoted(rows.key_names)
        in_aggregates = not isinstance(window, Session) and node.emit == "eager"
        or_else = ", or put the window into the aggregates and name the time with along='column'"
        raise InvalidValue(
            f"{node.title}: groupby window {window} needs keyless input, found key {keys}",
            hint=f"make it keyless with changelog{or_else if in_aggregates else ''}",
        )
    if node.along is not None:
        raise InvalidValue(
            f"{node.title}: along='{node.along}' cannot go with groupby window {window}", hint="leave one of them out"
        )
    for each in node.aggregates:
        if each.needs_instant:
            raise NotSupported(
                f"{node.title}: {each.title} cannot go with groupby window {window}",
                hint="leave the window of the groupby out, and give each aggregate one",
            )
        if each.window is not None and each.window != window:
            raise InvalidValue(
                f"{node.title}: {each.title} has window {each.window}, groupby has window {window}",
                hint="leave the window of the aggregate out",
            )


def _check_windows(node: Aggregation, rows: Schema) -> None:
    for each in node.aggregates:
        if each.window is None and node.window is None:
            raise InvalidValue(f"{node.title}: {each.title} has no window", hint=f"{each.kind}(window=…)")
    moving = [each for each in node.windows if isinstance(each, Continuous)]
    if moving and len(moving) < len(node.windows):
        found = ", ".join(map(str, node.windows))
        raise InvalidValue(
            f"{node.title}: windows must be all Continuous or all discrete, found {found}",
            hint="aggregate them in two pipelines",
        )
    for window in node.windows:
        if isinstance(window, Hopping) and (overlaps := _overlaps(window)) > MOST_WINDOWS:
            raise InvalidValue(
                f"{node.title}: each row would be in {overlaps:,} windows of {window}, at most {MOST_WINDOWS:,} can be",
                hint="a larger stride, or Continuous(duration), which is as of the instant of each query",
            )
    lookbacks = {each.lookback_us for each in node.windows if isinstance(each, Tumbling | Hopping)}
    if len(lookbacks) > 1:
        raise InvalidValue(
            f"{node.title}: windows differ in lookback: {', '.join(map(str, node.windows))}",
            hint="give all the same lookback",
        )
    if rows.is_keyed and node.along is None:
        _check_keyed_windows(node, bool(moving))


def _overlaps(window: Hopping) -> int:
    return (window.duration_us or 0) // window.stride_us


def _check_keyed_windows(node: Aggregation, is_moving: bool) -> None:
    is_final = node.emit == "final"  # then `along` is refused: no hint may name it
    forever = "use Hopping('forever', stride)"
    hint = f"{forever}, or make it keyless with changelog" if is_final else f"{forever}, or along='column'"
    wrong = "cannot go with emit='final'" if is_final else "needs `along`"
    for each in node.windows:
        if isinstance(each, Tumbling | Hopping) and not each.is_forever:
            raise InvalidValue(f"{node.title}: window {each} over keyed input {wrong}", hint=hint)
    if is_moving:
        message = f"{node.title}: Continuous windows over keyed input are deprecated; {hint}"
        warnings.warn(message, DeprecationWarning, stacklevel=2)


def _check_names(node: Aggregation, rows: Schema) -> None:
    taken = {*node.keys, rows.timestamp, *((WINDOW,) if node.window is not None else ())}
    if node.window is not None and WINDOW in {*node.keys, rows.timestamp}:
        raise InvalidValue(
            f"{node.title}: column '{WINDOW}' cannot be a key beside the window of the groupby",
            hint="rename the column first",
        )
    for each in node.aggregates:
        if not each.into_field:
            raise InvalidValue(f"{node.title}: {each.kind} has no name", hint="aggregate(name=Count(…)) or into_field=")
        if each.into_field in taken:
            raise InvalidValue(
                f"{node.title}: column '{each.into_field}' occurs twice", hint="give each aggregate a name of its own"
            )
        taken.add(each.into_field)
