"""The ends of the state's journals, recorded in the catalog by each finished batch.

A journal whose last records are lost looks like one that never had them. So each finished batch records how far the journals
had come; one that ends before that is damaged.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from itertools import zip_longest

from sqlalchemy import select

from umbel.catalog import tables as t
from umbel.catalog.catalog import Catalog, JobProgress
from umbel.catalog.checksums import with_sum, without_sum
from umbel.errors import Damaged
from umbel.state.port import JournalEnd, Lasting, Store

ENDS = "journals"
"""The name of the ends in a batch's progress."""


def ends_of(progress: JobProgress | None) -> list[JournalEnd]:
    """Return the end of each shard as of a batch; empty if not recorded."""
    return [JournalEnd(*each) for each in progress.state.get(ENDS, ())] if progress is not None else []


def noted_ends(catalog: Catalog, job: str) -> list[JournalEnd]:
    """Return the ends as of the last finished batch.

    They are empty if its record is damaged, which others report.
    """
    try:
        return ends_of(catalog.progress(job, sys.maxsize))
    except Damaged:
        return []


def reached(before: Iterable[JournalEnd], store: Store, reported: Mapping[int, JournalEnd]) -> list[JournalEnd]:
    """Return the ends after a batch.

    Args:
        before: those after the batch before.
        store: the store, as this process has last seen it.
        reported: by tasks in other processes, by shard.
    """
    if not isinstance(store, Lasting):
        return []
    start = JournalEnd()
    seen = [max(store.end(shard), reported.get(shard, start)) for shard in range(store.shards)]
    return [max(pair) for pair in zip_longest(before, seen, fillvalue=start)]


def forget_ends(catalog: Catalog) -> None:
    """Forget all ends: the journals have been written anew, in another form."""
    with catalog.sessions.begin() as session:
        for row in session.scalars(select(t.BatchRow)):
            state = without_sum(row.progress, f"the progress of batch {row.number}")
            row.progress = with_sum({name: value for name, value in state.items() if name != ENDS})
