"""The commit by which the last commit of a branch begins to serve."""

from __future__ import annotations

from sqlalchemy import select, text

from umbel.catalog import tables as t
from umbel.catalog.catalog import Catalog


def switch(catalog: Catalog, job: str, epoch: int, branch: str, head: int) -> int | None:
    """Switch a branch to its last commit; return the serving revision.

    Args:
        catalog: the catalog of the commits.
        job: the job that has backfilled its state.
        epoch: the epoch returned by `take_over` to the caller.
        branch: the branch.
        head: its last commit, as the caller knows it.

    Returns:
        The revision from which on it serves, None if `head` is no longer the last commit.

    Raises:
        Terminal: another worker has taken over the job.
    """
    with catalog.sessions.begin() as session:
        catalog.check_owner(session, job, epoch)
        if session.get_bind().dialect.name == "postgresql":  # SQLite has one writer at a time, this transaction
            session.execute(text("LOCK TABLE commits IN EXCLUSIVE MODE"))
        last = select(t.Commit).where(t.Commit.branch == branch).order_by(t.Commit.revision.desc()).limit(1)
        found = session.scalars(last).one()
        if found.revision != head:
            return None
        row = t.Commit(branch=branch, message=f"switch to revision {head}", definitions=found.definitions)
        session.add(row)
        session.flush()
        return row.revision
