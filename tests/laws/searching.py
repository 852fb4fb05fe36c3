"""Both ways of point lookups, whatever the number of keys."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from umbel.query import point_lookup
from umbel.query.lookups import POINT_LOOKUP_ROWS
from umbel.state.runs import points


@contextmanager
def searching(*, together: bool) -> Iterator[None]:
    """Search for keys together in a block, or one by one and gather their rows, as for many."""
    most = 0 if together else POINT_LOOKUP_ROWS
    with (
        patch.object(points, "ONE_BY_ONE", most),
        patch.object(points, "BY_SLICES", 1),
        patch.object(point_lookup, "ONE_BY_ONE", most),
    ):
        yield
