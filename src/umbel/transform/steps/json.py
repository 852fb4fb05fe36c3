"""Steps on JSON inside of texts."""

from __future__ import annotations

import json
from functools import cached_property
from typing import Any

from umbel.transform.parameters import parameter
from umbel.transform.paths import FieldPath
from umbel.transform.registry import TransformStep, step
from umbel.transform.steps.text import text_of


@step
class JsonParseStep(TransformStep):
    """Return the value of a JSON text."""

    name = "json_parse"

    def apply(self, value: Any, record: dict[str, Any]) -> Any:
        return json.loads(text_of(value))


@step
class JsonExtractStep(TransformStep):
    """Return the value at a path of a JSON text, an object or a list.

    It is null where the path leads nowhere.
    """

    name = "json_extract"
    path: str = parameter("The path: `a.b`, `a[0].b`, `$`.", check=FieldPath.parse)

    @cached_property
    def _path(self) -> FieldPath:
        return FieldPath.parse(self.path)

    def apply(self, value: Any, record: dict[str, Any]) -> Any:
        return self._path.get(json.loads(value) if type(value) is str else value)
