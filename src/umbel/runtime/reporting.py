"""Reports of the worker to those who run it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from umbel.catalog.catalog import Catalog

LONGEST = 4000
"""Characters of an event's text."""

log = logging.getLogger("umbel.work")


def report_warning(catalog: Catalog, text: str) -> None:
    """Report a warning in the log of the worker and to `umbel status`."""
    log.warning("%s", text)
    catalog.record_event("work", "warning", text[:LONGEST])
