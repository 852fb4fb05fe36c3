"""The step in umbel's own expression language."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from functools import cached_property
from typing import Any

import polars as pl

from umbel.errors import UmbelError, did_you_mean
from umbel.transform.parameters import parameter
from umbel.transform.registry import TransformStep, step

_TYPES = (bool, int, float, str, datetime, date)
VALUE = "value"


def _parsed(text: str) -> Any:
    """Return the expression of a text.

    Raises:
        ValueError: it is none.
    """
    from umbel import expr

    names = {name: getattr(expr, name) for name in ("col", "lit", "when", "now", "from_epoch", "repeat", "make_struct")}
    try:
        found = eval(text, {"__builtins__": {}, **names})  # noqa: S307  a configuration is code of its user
    except Exception as error:  # noqa: BLE001  an expression may raise anything: 1/0
        meant = did_you_mean(str(error.name), names) if isinstance(error, NameError) else ""
        raise ValueError(f"{text!r:.60} is no expression: {_message(error)}{meant}") from None
    found = getattr(found, "expr", found)
    if not isinstance(found, expr.Expr):
        raise ValueError(f"{text!r:.60} is no expression of umbel")
    if unknown := sorted(found.columns() - {VALUE}):
        raise ValueError(f"{text!r:.60} reads '{unknown[0]}'; there is only col('{VALUE}')")
    return found


def _message(error: Exception) -> str:
    text = error.message if isinstance(error, UmbelError) else str(error)
    return text.partition("\n")[0]


@step
class ExprStep(TransformStep):
    """Return the result of an expression of umbel over `col("value")`.

    The [expressions](expressions.md) are those of pipelines; the type of the column is that of the value: a text, a number, a
    truth value or an instant.
    """

    name = "expr"
    expr: str = parameter('The expression: `col("value").str.len() * 2`.', check=_parsed)

    @property
    def needs_limits(self) -> bool:
        return True  # `repeat` makes a list as long as a record says

    @cached_property
    def _expr(self) -> Any:
        return _parsed(self.expr)

    def apply(self, value: Any, record: dict[str, Any]) -> Any:
        (found,) = self.apply_all([value]) or [None]
        if isinstance(found, BaseException):
            raise found
        return found

    def apply_all(self, values: Sequence[Any]) -> list[Any]:
        found = list[Any]([TypeError("expected a text, a number, a truth value or an instant")] * len(values))
        for kind in _TYPES:
            rows = [row for row, value in enumerate(values) if type(value) is kind]
            if rows:
                for row, result in zip(rows, self._of_kind(kind, [values[row] for row in rows]), strict=True):
                    found[row] = result
        return found

    def _of_kind(self, kind: type, values: list[Any]) -> list[Any]:
        """Return the results for values of one type, exceptions where there is none."""
        from umbel.expr import judge
        from umbel.types.annotations import from_annotation
        from umbel.types.dtypes import Optional

        dtype = from_annotation(kind)
        taken = dtype.ingest(values)
        try:
            schema = {VALUE: dtype}
            result = self._expr.dtype(schema)
            declared = result if result.is_optional else Optional(result)
            checked = judge(pl.DataFrame({VALUE: taken.values}), self._expr, declared, schema)
        except (UmbelError, pl.exceptions.PolarsError) as error:
            return [ValueError(_message(error))] * len(values)
        errors = {**checked.errors, **taken.errors}
        return [
            ValueError(errors[row]) if row in errors else value for row, value in enumerate(checked.values.to_list())
        ]
