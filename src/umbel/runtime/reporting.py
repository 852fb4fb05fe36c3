"""Reports of the worker to those who run it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from umbel.catalog.catalog import Catalog

LONGEST = 4000
"""Characters of an event's text."""

log = logging.getLogger("umbel.work")


def report_event(catalog: Catalog, text: str, level: str = "warning") -> None:
    """Report an event in the log of the worker and to `umbel status`.

    Args:
        catalog: of the deployment.
        text: what happened.
        level: `info`, `warning` or `error`, for `umbel status`.
    """
    log.warning("%s", text)
    catalog.record_event("work", level, text[:LONGEST])
