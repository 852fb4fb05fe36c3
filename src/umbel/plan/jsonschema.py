"""JSON Schema, the part of it that describes the values of a column.

Known: type, enum, const, properties, required, additionalProperties, items, minItems, maxItems, minimum, maximum,
exclusiveMinimum, exclusiveMaximum, minLength, maxLength, pattern, allOf, anyOf, not. Other keywords say nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import orjson

TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "null": (type(None),),
}


def fits(text: str, schema: Mapping[str, Any] | str) -> bool:
    """Return whether JSON text is valid and a schema accepts it."""
    described = orjson.loads(schema) if isinstance(schema, str) else schema
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return accepts(described, value)


def accepts(schema: Any, value: Any) -> bool:
    """Return whether a schema accepts a value."""
    if isinstance(schema, bool):
        return schema
    return all(KEYWORDS[word](given, value, schema) for word, given in schema.items() if word in KEYWORDS)


def _is_type(name: str, value: Any) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    return isinstance(value, TYPES.get(name, ())) or (
        name == "integer" and isinstance(value, float) and value.is_integer()
    )


def _type(given: Any, value: Any, _: Any) -> bool:
    return any(_is_type(name, value) for name in ([given] if isinstance(given, str) else given))


def _properties(given: Mapping[str, Any], value: Any, _: Any) -> bool:
    return all(accepts(each, value[name]) for name, each in given.items() if name in value)


def _additional(given: Any, value: Any, schema: Mapping[str, Any]) -> bool:
    return all(accepts(given, each) for name, each in value.items() if name not in schema.get("properties", {}))


def _for(kinds: type | tuple[type, ...], test: Callable[[Any, Any, Any], bool]) -> Callable[[Any, Any, Any], bool]:
    """Return a test that passes values of other kinds, as JSON Schema does."""

    def tested(given: Any, value: Any, schema: Any) -> bool:
        return (
            not isinstance(value, kinds) or (isinstance(value, bool) and kinds is NUMBER) or test(given, value, schema)
        )

    return tested


NUMBER = (int, float)
KEYWORDS: Mapping[str, Callable[[Any, Any, Any], bool]] = {
    "type": _type,
    "enum": lambda given, value, _: value in given,
    "const": lambda given, value, _: value == given,
    "allOf": lambda given, value, _: all(accepts(each, value) for each in given),
    "anyOf": lambda given, value, _: any(accepts(each, value) for each in given),
    "not": lambda given, value, _: not accepts(given, value),
    "properties": _for(dict, _properties),
    "required": _for(dict, lambda given, value, _: all(name in value for name in given)),
    "additionalProperties": _for(dict, _additional),
    "items": _for(list, lambda given, value, _: all(accepts(given, each) for each in value)),
    "minItems": _for(list, lambda given, value, _: len(value) >= given),
    "maxItems": _for(list, lambda given, value, _: len(value) <= given),
    "minimum": _for(NUMBER, lambda given, value, _: value >= given),
    "maximum": _for(NUMBER, lambda given, value, _: value <= given),
    "exclusiveMinimum": _for(NUMBER, lambda given, value, _: value > given),
    "exclusiveMaximum": _for(NUMBER, lambda given, value, _: value < given),
    "minLength": _for(str, lambda given, value, _: len(value) >= given),
    "maxLength": _for(str, lambda given, value, _: len(value) <= given),
    "pattern": _for(str, lambda given, value, _: re.search(given, value) is not None),
}
