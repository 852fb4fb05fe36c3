"""The speed of backfills: measured on this deployment, or assumed before there was any."""

from __future__ import annotations

from dataclasses import dataclass

from umbel.catalog.catalog import Catalog

RATE = "backfill rate"
"""The setting of the catalog with the rows and seconds of earlier backfills."""
ASSUMED = 50_000.0
"""Rows per second before any backfill was measured."""
ROW_BYTES = 100
"""The assumed size of a row where a source tells only bytes."""
WORTH_MEASURING = 10_000
"""Rows below which the time of a backfill is that of its beginning and end."""


@dataclass(frozen=True, slots=True)
class BackfillRate:
    """Rows per second of a backfill.

    Args:
        rows_per_second: above 0.
        is_measured: False if it is assumed.
    """

    rows_per_second: float = ASSUMED
    is_measured: bool = False


def rate(catalog: Catalog) -> BackfillRate:
    """Return the rate of the earlier backfills of a deployment, or the assumed one."""
    noted = catalog.noted(RATE)
    return BackfillRate(noted["rows"] / noted["seconds"], is_measured=True) if noted else BackfillRate()


def record(catalog: Catalog, rows: int, seconds: float) -> None:
    """Record a finished backfill; those before it count half as much with each.

    Args:
        catalog: the catalog of the deployment.
        rows: of history that it read; a small backfill is not recorded.
        seconds: that it ran for, pauses between its steps included.
    """
    if rows < WORTH_MEASURING or seconds <= 0:
        return
    before = catalog.noted(RATE) or {"rows": 0, "seconds": 0.0}
    catalog.note(RATE, {"rows": before["rows"] / 2 + rows, "seconds": before["seconds"] / 2 + seconds})
