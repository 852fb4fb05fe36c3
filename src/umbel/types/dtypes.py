"""The types of fields and features, with their storage in Polars frames."""

from __future__ import annotations

from umbel.types.containers import Dict, Embedding, List
from umbel.types.dtype import Checked, DType, Refused
from umbel.types.instants import Date, Datetime
from umbel.types.numeric import DECIMAL_DIGITS, Bool, Decimal, Float, Int
from umbel.types.records import Record, Struct, Window
from umbel.types.restrictions import Between, OneOf, Optional, Regex, Restricted
from umbel.types.text import Bytes, Str

__all__ = [
    "DECIMAL_DIGITS",
    "Between",
    "Bool",
    "Bytes",
    "Checked",
    "DType",
    "Date",
    "Datetime",
    "Decimal",
    "Dict",
    "Embedding",
    "Float",
    "Int",
    "List",
    "OneOf",
    "Optional",
    "Record",
    "Refused",
    "Regex",
    "Restricted",
    "Str",
    "Struct",
    "Window",
]
