"""The JSON schema of configurations, for editors; made of the registry of steps."""

from __future__ import annotations

from typing import Any

from umbel.transform.registry import steps

_PATH = {"type": "string", "description": "A path: a.b, a[0].b, or $ for the whole record."}
_TARGET = {"type": "string", "description": "A field of the output record; a.b nests."}
_CASE = {
    "name": {"type": "string"},
    "input": {"type": "object"},
    "output": {"type": ["object", "array", "null"]},
    "dead_letter": {"type": "string", "description": "The step that must fail."},
}


def json_schema() -> dict[str, Any]:
    """Return the schema of one document of a configuration."""
    listed = [each.schema() for _, each in sorted(steps().items())]
    transformations = {"type": ["array", "null"], "items": {"oneOf": listed}}
    document = {"source_field": _PATH, "target_field": _TARGET, "transformations": transformations}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A document of a configuration of umbel transform",
        "anyOf": [
            _object(document, "source_field"),
            _object({"passthrough": {"type": "boolean"}}, "passthrough"),
            _object({"tests": {"type": "array", "items": _object(_CASE, "input")}}, "tests"),
        ],
    }


def _object(properties: dict[str, Any], required: str) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [required], "additionalProperties": False}
