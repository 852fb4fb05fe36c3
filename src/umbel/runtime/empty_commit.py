"""Commits that change nothing, so that the worker makes a batch of a new revision."""

from __future__ import annotations

from umbel.catalog.catalog import Catalog


def commit_again(catalog: Catalog, message: str) -> None:
    """Commit the definitions of a branch once more.

    Args:
        catalog: the catalog; nothing happens if it has no branch.
        message: the reason.

    Raises:
        Conflict: another commit came in between.
    """
    latest = catalog.latest()
    serving = catalog.serving(latest)
    for branch, head in [*catalog.heads(latest).items()][:1]:
        waits = serving.get(branch) != head  # a commit that does not wait would make the switch
        catalog.commit(branch, message, catalog.definitions(head), waits=waits, after=head)
