"""Column builders for incoming rows: `ref`, `eval`, `Sample`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from umbel.errors import InvalidType, InvalidValue
from umbel.expr import Expr, TypedExpr

PART = re.compile(r"\[([^\[\]]+)\]")


@dataclass(frozen=True, slots=True)
class Ref:
    """A copy of another incoming column.

    Args:
        name: the column, or a path into nested data: `A[B][C]`.
    """

    name: str

    @property
    def path(self) -> tuple[str, ...]:
        """The column and the names below it."""
        column, _, rest = self.name.partition("[")
        return (column, *PART.findall(f"[{rest}" if rest else ""))

    def check(self, owner: str = "ref") -> None:
        """Refuse a name that is neither a column nor a path; `owner` is for messages."""
        name: Any = self.name
        if not isinstance(name, str) or not name.strip():
            raise InvalidValue(f"{owner}: the name of a column is needed, found {name!r}", hint='ref("column")')
        column, bracket, rest = name.partition("[")
        if not column or "]" in column or PART.sub("", bracket + rest):
            raise InvalidValue(f"{owner}: unbalanced brackets or an empty name in '{name}'", hint='ref("A[B][C]")')


def ref(name: Any) -> Ref:
    """Copy another incoming column.

    Args:
        name: the column, or a path into nested data: `A[B][C]`.

    Raises:
        InvalidValue: the name is empty or its brackets are unbalanced.
    """
    found = Ref(name)
    found.check()
    return found


@dataclass(frozen=True, slots=True)
class Eval:
    """A value computed from the incoming rows.

    Args:
        value: an expression, or a function from a pandas frame to a Series.
        schema: incoming columns it reads that are not columns of the dataset, with their types.
    """

    value: Expr | TypedExpr | Callable[..., Any]
    schema: Mapping[str, Any] | None = None


def eval(value: Any, schema: Mapping[str, Any] | None = None) -> Eval:  # noqa: A001  api.md's name
    """Compute a value from the incoming rows.

    Args:
        value: an expression, or a function from a pandas frame to a Series.
        schema: incoming columns it reads that are not columns of the dataset, with their types.
    """
    if not isinstance(value, Expr | TypedExpr) and not callable(value):
        raise InvalidType(
            f"eval: expected an expression or a function, found {value!r}",
            hint='eval(col("a") + 1) or eval(lambda df: df["a"] + 1)',
        )
    return Eval(value, schema)


@dataclass(frozen=True)
class Sample:
    """Deterministic sampling of the incoming rows.

    Args:
        rate: the share of rows, between 0 and 1.
        using: the columns hashed to decide.
    """

    rate: float
    using: Sequence[str] | None = None

    def __post_init__(self) -> None:
        rate: Any = self.rate
        if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 <= rate <= 1:
            raise InvalidValue(
                f"sample: the rate must lie between 0 and 1, found {self.rate!r}",
                hint="sample=0.1 takes a tenth of the rows",
            )
        provided: Any = self.using
        if provided is not None:
            if isinstance(provided, str) or not isinstance(provided, Iterable):
                message = f"sample: `using` must be a list of columns, found {provided!r:.80}"
                raise InvalidType(message, hint='Sample(0.5, using=["uid"])')
            object.__setattr__(self, "using", tuple(str(name) for name in provided))
            if not self.using:
                raise InvalidValue("sample: `using` is empty", hint="leave it out, or name columns")
