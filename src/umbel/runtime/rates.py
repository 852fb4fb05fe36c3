"""The speed of backfills: measured on this deployment, or assumed before there was any."""

from __future__ import annotations

from dataclasses import dataclass

from umbel.catalog.catalog import Catalog

LOGS, SOURCES = "backfill rate", "source rate"
"""The settings of the catalog with the rows and seconds of reading change logs, and sources from their beginning."""
ASSUMED = {LOGS: 500_000.0, SOURCES: 100_000.0}
"""Rows per second before anything was measured: about half of what a simple pipeline makes on two cores."""
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

    rows_per_second: float
    is_measured: bool


def rate(catalog: Catalog, kind: str) -> BackfillRate:
    """Return the rate of earlier backfills of a deployment, or the assumed one.

    Args:
        catalog: of the deployment.
        kind: `LOGS` or `SOURCES`.
    """
    noted = catalog.noted(kind)
    measured = noted["rows"] / noted["seconds"] if noted else ASSUMED[kind]
    return BackfillRate(measured, is_measured=bool(noted))


def record(catalog: Catalog, kind: str, rows: int, seconds: float) -> None:
    """Record rows that were read; those before them count half as much with each record.

    Args:
        catalog: of the deployment.
        kind: `LOGS` or `SOURCES`.
        rows: the number of rows; few are not recorded.
        seconds: the time that it took, pauses between steps included.
    """
    if rows < WORTH_MEASURING or seconds <= 0:
        return
    before = catalog.noted(kind) or {"rows": 0, "seconds": 0.0}
    catalog.note(kind, {"rows": before["rows"] / 2 + rows, "seconds": before["seconds"] / 2 + seconds})
