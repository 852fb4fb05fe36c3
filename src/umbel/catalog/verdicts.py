"""Records of failing user functions: rejected rows, and functions to run isolated."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, literal, select, union_all, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from umbel.catalog import tables as t
from umbel.catalog.catalog import Catalog

PERMANENT = 3
"""A function that was running in this many processes when they died is not trusted again."""


_KNOWN = union_all(  # one statement, for it is part of every batch
    select(t.Verdict.function, func.count()).group_by(t.Verdict.function),
    select(t.Suspect.function, literal(0)).where(t.Suspect.active),
)


@dataclass(frozen=True, slots=True)
class Known:
    """The recorded failures of all functions.

    Args:
        verdicts: number of rows rejected for good, by function.
        suspects: functions to run in a separate process.
    """

    verdicts: Mapping[str, int]
    suspects: frozenset[str]


class Verdicts:
    """The failure records of functions in a catalog.

    Args:
        catalog: the catalog they are stored in.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._session = catalog.sessions

    def known(self) -> Known:
        """Return the recorded failures of all functions."""
        with self._session() as session:
            rows = session.execute(_KNOWN).all()
        verdicts = {str(function): int(count) for function, count in rows if count}
        return Known(verdicts, frozenset(str(function) for function, count in rows if not count))

    def rows(self, function: str) -> dict[str, str]:
        """Return the rejected rows of a function, with the reasons."""
        with self._session() as session:
            found = session.execute(select(t.Verdict.row, t.Verdict.reason).where(t.Verdict.function == function))
            return {str(row): str(reason) for row, reason in found}

    def reject(self, function: str, rows: Mapping[str, str]) -> None:
        """Record rejected rows of a function for good; the first reason stays."""
        found = [{"function": function, "row": row, "reason": reason} for row, reason in rows.items()]
        with self._session.begin() as session:
            session.execute(_insert(session, t.Verdict).on_conflict_do_nothing(), found)

    def suspect(self, functions: Iterable[str]) -> None:
        """Record functions that were running in a process that died."""
        with self._session.begin() as session:
            for function in functions:
                new = _insert(session, t.Suspect).values(function=function, times=1, active=True)
                again = {"times": t.Suspect.times + 1, "active": True}
                session.execute(new.on_conflict_do_update(index_elements=["function"], set_=again))

    def trust(self, function: str) -> None:
        """Clear the suspicion of a function, unless it has failed too often.

        It then runs in the same process as everything else again.
        """
        with self._session.begin() as session:
            mine = (t.Suspect.function == function) & (t.Suspect.times < PERMANENT)
            session.execute(update(t.Suspect).where(mine).values(active=False))


def _insert(session: Session, table: type[t.CatalogRow]) -> Any:
    dialect = postgresql if session.get_bind().dialect.name == "postgresql" else sqlite
    return dialect.insert(table)
