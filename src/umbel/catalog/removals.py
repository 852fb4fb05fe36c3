"""Obsolete state, deleted once no server can read it any more."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sqlalchemy import delete, select

from umbel.catalog import tables as t
from umbel.catalog.catalog import Catalog


class Removals:
    """The operators to be deleted, in a catalog.

    Args:
        catalog: the catalog they are recorded in.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._session = catalog.sessions

    def add(self, logs: Mapping[str, str], at: float) -> None:
        """Mark operators' states as obsolete from an instant on.

        They must be computed again before they are used, and are deleted some time after the instant.

        Args:
            logs: the name of each operator's change log, by its state id.
            at: seconds since the epoch.
        """
        with self._session.begin() as session:
            for owner, log in logs.items():
                session.merge(t.BackfillRow(owner=owner, done=False))
                session.merge(t.Removal(owner=owner, log=log, at=at))

    def until(self, instant: float) -> dict[str, str]:
        """Return the operators marked up to an instant, with their change logs' names."""
        with self._session() as session:
            rows = session.scalars(select(t.Removal).where(t.Removal.at <= instant)).all()
        return {row.owner: row.log for row in rows}

    def done(self, owners: Iterable[str]) -> None:
        """Record operators as deleted, or as no longer to be deleted."""
        recorded = list(owners)
        if recorded:
            with self._session.begin() as session:
                session.execute(delete(t.Removal).where(t.Removal.owner.in_(recorded)))
