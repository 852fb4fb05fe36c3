"""MySQL: tables."""

from __future__ import annotations

from dataclasses import dataclass

from umbel.connectors.postgres import SQLSource


@dataclass(frozen=True, kw_only=True)
class MySQL(SQLSource):
    """A MySQL database.

    Args:
        port: of the server.
    """

    port: int = 3306
