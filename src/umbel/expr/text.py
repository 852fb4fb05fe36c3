"""Printing of calls as the Python code that builds them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from umbel.expr.kinds import Constant
from umbel.types.dtypes import DType

if TYPE_CHECKING:
    from umbel.expr.call import Call

_COMPARISONS = {"==", "!=", "<", "<=", ">", ">="}


def constant_text(value: Any) -> str:
    """Return a constant as Python; types print as their annotation."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return str(value) if isinstance(value, DType) else repr(value)


def arguments(call: Call, skip: int) -> str:
    """Return the text of the arguments without the first `skip` operands, defaults left out."""
    operands = iter(call.operands[skip:])
    shown: list[str] = []
    is_positional = True
    for name, parameter in list(call.function.signature.parameters.items())[skip:]:
        value = call.constant(name) if isinstance(call.function.roles[name], Constant) else next(operands)
        written = value.as_argument() if hasattr(value, "as_argument") else constant_text(value)
        if parameter.default is not parameter.empty and written == constant_text(parameter.default):
            is_positional = False
            continue
        shown.append(written if is_positional else f"{name}={written}")
    return ", ".join(shown)


def _infix(call: Call) -> str:
    symbol, (left, right) = call.function.symbol, call.operands
    if right.is_bare:
        return f"{left.as_receiver()} {symbol} {right.as_argument()}"
    # Python swaps the sides of a comparison that begins with a constant.
    first = left.as_argument() if left.is_bare and symbol not in _COMPARISONS else left.as_receiver()
    return f"{first} {symbol} {right.as_receiver()}"


def _prefix(call: Call) -> str:
    return f"{call.function.symbol}{call.operands[0].as_receiver()}"


def _item(call: Call) -> str:
    return f"{call.operands[0].as_receiver()}[{call.operands[1].as_argument()}]"


def _direct(call: Call) -> str:
    return f"{call.operands[0].as_receiver()}.{call.function.name}({arguments(call, 1)})"


def _method(call: Call) -> str:
    function = call.function
    return f"{call.operands[0].as_receiver()}.{function.family}.{function.name}({arguments(call, 1)})"


def _attribute(call: Call) -> str:
    return f"{call.operands[0].as_receiver()}.{call.function.family}.{call.function.name}"


def _function(call: Call) -> str:
    return f"{call.function.name}({arguments(call, 0)})"


def _fields(call: Call) -> str:
    named = zip(call.constant("names"), call.operands, strict=True)
    fields = ", ".join(f"{constant_text(name)}: {each.as_argument()}" for name, each in named)
    return f"{call.function.name}({{{fields}}}, {call.constant('struct')})"


STYLES: dict[str, Callable[[Call], str]] = {
    "infix": _infix,
    "prefix": _prefix,
    "item": _item,
    "direct": _direct,
    "method": _method,
    "attribute": _attribute,
    "function": _function,
    "fields": _fields,
}
