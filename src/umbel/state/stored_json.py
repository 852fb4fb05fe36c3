"""JSON of files that may be damaged."""

from __future__ import annotations

import json
from typing import Any


def parse_stored(data: bytes | str) -> Any:
    """Return the value of a JSON text.

    Raises:
        ValueError: it is no JSON, or is nested more deeply than anything that umbel writes.
    """
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("its JSON is nested too deeply") from None
