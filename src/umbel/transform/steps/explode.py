"""Steps that change the number of records."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from umbel.transform.native import Native, NotNative, truth
from umbel.transform.parameters import parameter
from umbel.transform.python_code import FunctionBody
from umbel.transform.registry import TransformStep, step


@step
class ExplodeStep(TransformStep):
    """Make one record of each element of a list.

    The steps after it have the element. An empty list makes no record; null makes one, with null.
    """

    name = "explode"

    @property
    def needs_limits(self) -> bool:
        return True  # two lists make their product

    def apply(self, value: Any, record: dict[str, Any]) -> Any:
        if type(value) is not list:
            raise TypeError(f"expected a list, found {type(value).__name__}")
        return value


@step
class FilterStep(TransformStep):
    """Keep the record where the value, or the result of `code`, is true in Python.

    The value stays as it is. The target field may be left out.
    """

    name = "filter"
    takes_null = True
    code: str | None = parameter("A function body as of `custom_code`.", default=None, check=FunctionBody.compiled)

    @cached_property
    def body(self) -> FunctionBody | None:
        """The compiled code, None if there is none."""
        return None if self.code is None else FunctionBody.compiled(self.code)

    def python(self) -> FunctionBody | None:
        return self.body

    def apply(self, value: Any, record: dict[str, Any]) -> Any:
        """Return whether the record is kept."""
        return bool(value if self.body is None else self.body.function(value, record))

    def native(self, value: Native) -> Native:
        """Return the condition."""
        if self.body is not None:
            raise NotNative("filter with code")
        return truth(value)
