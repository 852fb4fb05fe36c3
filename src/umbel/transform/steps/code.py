"""Steps in a language: Python, and umbel's own expressions."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from umbel.transform.parameters import parameter
from umbel.transform.python_code import FunctionBody
from umbel.transform.registry import TransformStep, step


@step
class CustomCodeStep(TransformStep):
    """Return the result of a function body in Python.

    In scope: `source_field`, the value; `record`, the whole record; `datetime` (the class), `date`, `timedelta`, `timezone`,
    `json`, `re`, `math`, `hashlib`. It is applied to null, too. A body within the
    [subset](../howto/transform.md#python-that-becomes-a-polars-plan) runs as a Polars expression, any other as compiled Python.
    """

    name = "custom_code"
    takes_null = True
    code: str = parameter("The function body; it returns the new value.", check=FunctionBody.compiled)
    language: str = parameter("The language of the code.", default="python", choices=("python",))

    @cached_property
    def body(self) -> FunctionBody:
        """The compiled code."""
        return FunctionBody.compiled(self.code)

    def python(self) -> FunctionBody | None:
        return self.body

    def apply(self, value: Any, record: dict[str, Any]) -> Any:
        return self.body.function(value, record)
