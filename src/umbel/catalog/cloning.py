"""Clones of branches: commits with the definitions and the erasures of another one."""

from __future__ import annotations

from umbel.catalog import tables as t
from umbel.catalog.catalog import Catalog, add_commit


def clone(catalog: Catalog, branch: str, origin: str, after: int | None = None) -> int:
    """Create a branch from another's definitions and erasures, all or nothing; return its head revision.

    Args:
        catalog: the catalog of the commits.
        branch: the new one.
        origin: the one to clone.
        after: the last revision of a deleted branch of this name, 0 for none; None for any.

    Raises:
        Conflict: there is a later one.
        UnknownName: there is no branch `origin`.
    """
    with catalog.committing(branch, after) as session:  # the origin stays as it is read here
        latest = catalog.latest()
        erased, head, serving = catalog.erasures(origin, latest), catalog.head(origin), catalog.serving(latest)[origin]
        message, waits = f"clone of {origin}", serving != head
        first = add_commit(session, branch, message, catalog.definitions(serving)) if waits and serving else None
        last = add_commit(session, branch, message, catalog.definitions(head), waits=waits)
        for dataset, identity, keys in erased:
            row = t.Erasure(revision=first or last, branch=branch, dataset=dataset, identity=identity, keys=keys)
            session.add(row)
        return last
