"""The types of fields and features, and windows of time."""

from umbel.types.annotations import Decimal, Dict, Embedding, Option, between, oneof, regex
from umbel.types.structs import struct
from umbel.types.windows import Continuous, Hopping, Session, Tumbling, Window

__all__ = [
    "Continuous",
    "Decimal",
    "Dict",
    "Embedding",
    "Hopping",
    "Option",
    "Session",
    "Tumbling",
    "Window",
    "between",
    "oneof",
    "regex",
    "struct",
]
