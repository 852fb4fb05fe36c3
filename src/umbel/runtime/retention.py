"""Retention of the change logs of a deployment.

No log is cut while operators are computed from history, while rows are to be erased, or in front of a sink. A commit that needs
history and the end of a cut exclude each other.
"""

from __future__ import annotations

import fcntl
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import polars as pl

from umbel.catalog.purges import Purges
from umbel.definitions.records import HISTORY
from umbel.errors import UmbelError
from umbel.log.change_retention import RetentionLimits
from umbel.operators.operator import ALWAYS
from umbel.runtime.sink_ids import delivered_batch

if TYPE_CHECKING:
    from umbel.graph.graph import Graph, GraphNode
    from umbel.runtime.deployment import Deployment
    from umbel.runtime.limits import Limits

LOCK = "retention.lock"
CUT = "change logs cut"
"""The setting with the instants, in µs, from which on change logs that were cut have all changes, by log."""

log = logging.getLogger("umbel.work")


def drop_changes(deployment: Deployment, graph: Graph, limits: Limits) -> dict[str, int]:
    """Drop the oldest changes by age and size; return their number by log.

    Args:
        deployment: the deployment.
        graph: the graph in force.
        limits: with age and bytes.
    """
    dropped, errors = dict[str, int](), list[Exception]()
    limited = [(node, _limits(deployment, graph, node, limits)) for node in graph.nodes if node.is_logged]
    if not any(found for _, found in limited):
        return dropped
    for node, found in limited:
        if found is None or not _may_drop(deployment):
            continue
        try:
            rows = deployment.changes.drop_oldest(node, found, lambda: _locked(deployment))
        except (UmbelError, OSError, pl.exceptions.PolarsError) as error:  # other logs do not grow for it
            errors.append(error)
            continue
        if rows:
            log.info("%d changes of %s are past their retention", rows, node.dataset or node.log)
            dropped[node.log] = rows
    _note(deployment, graph)
    if errors:
        raise errors[0]
    return dropped


def _note(deployment: Deployment, graph: Graph) -> None:
    """Note from which instant on each log has all changes, for metrics."""
    found = {node.log: deployment.changes.retained_since(node) for node in graph.nodes if node.is_logged}
    cut = {name: since for name, since in found.items() if since > ALWAYS}
    if cut != (deployment.catalog.noted(CUT) or {}):
        deployment.catalog.note(CUT, cut)


def retained_logs(deployment: Deployment) -> dict[str, float]:
    """Return the instant since which each cut change log is complete, in seconds."""
    return {name: since / 1e6 for name, since in (deployment.catalog.noted(CUT) or {}).items()}


def _limits(deployment: Deployment, graph: Graph, node: GraphNode, limits: Limits) -> RetentionLimits | None:
    """Return what is retained of a log, None for all of it."""
    dataset = graph.datasets.get(node.dataset) if node.dataset is not None else None
    if dataset is not None and dataset.erase_keys and set(dataset.erase_keys) != set(dataset.schema.key_names):
        return None  # an erasure finds the whole keys of its rows there
    age = limits.change_log_age
    if dataset is not None and dataset.history != HISTORY:
        age = dataset.history / 1e6
    before = datetime.now(UTC) - timedelta(seconds=age) if age else None
    if before is None and not limits.change_log_bytes:
        return None
    return RetentionLimits(before, limits.change_log_bytes, delivered_batch(deployment, graph, node))


def _may_drop(deployment: Deployment) -> bool:
    """Return whether nothing is being computed from history, or is going to be."""
    graph = deployment.graph(deployment.catalog.latest())
    fresh = {node.state_id for node in graph.nodes} - deployment.catalog.backfilled()
    purges = Purges(deployment.catalog)
    return not fresh and not purges.is_open and not deployment.backfill_state().state_ids


@contextmanager
def _locked(deployment: Deployment) -> Iterator[bool]:
    """Lock the end of a cut; false where it may not be made."""
    with (deployment.directory / LOCK).open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # a commit is being checked
            yield False
            return
        yield _may_drop(deployment)


@contextmanager
def no_drops(deployment: Deployment) -> Iterator[None]:
    """Let no cut end during a block, which makes operators that need history."""
    with (deployment.directory / LOCK).open("a") as file:
        fcntl.flock(file, fcntl.LOCK_SH)  # a cut holds its lock for as long as one small file takes
        yield
