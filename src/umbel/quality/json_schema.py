"""JSON Schema validation for the values of a column.

The draft is 2020-12, or the one that `$schema` names.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    from jsonschema_rs import Validator


def fits(text: str, schema: Mapping[str, Any] | str) -> bool:
    """Return True if JSON text parses and is valid under a schema.

    Under an invalid schema nothing is.
    """
    validator = _validator(schema if isinstance(schema, str) else orjson.dumps(schema).decode())
    try:
        return validator is not None and bool(validator.is_valid(orjson.loads(text)))
    except orjson.JSONDecodeError:
        return False


@lru_cache(maxsize=256)
def _validator(schema: str) -> Validator | None:
    """Return the validator of a schema, None if the schema is invalid or not self-contained."""
    import jsonschema_rs

    try:
        return jsonschema_rs.validator_for(orjson.loads(schema), retriever=_refuse)
    except ValueError:
        return None


def _refuse(reference: str) -> Any:
    """Refuse to load a reference, which the library would fetch from the network."""
    raise ValueError(f"{reference} is not part of the schema")
