"""Integrity checks of a deployment's stored data: presence and checksums.

Every read verifies the data it reads; these checks cover the data that is not being read.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from umbel.connectors.webhook import WebhookConnector
from umbel.errors import Damaged
from umbel.log.features import DamagedLine, FeatureLog
from umbel.log.reading import RESTORE, Damage, IngestReader
from umbel.runtime.branches import branches
from umbel.runtime.deployment import JOB, Deployment
from umbel.runtime.recovery.state_check import looked, wrong
from umbel.state.durable import DurableStore
from umbel.state.port import Lasting
from umbel.state.runs.files import ShardFiles
from umbel.state.runs.inspection import inspect
from umbel.state.runs.run import REMEDY


def damage(deployment: Deployment, *, deep: bool = False) -> Iterator[Damaged]:
    """Yield errors for missing or damaged data.

    Args:
        deployment: the deployment.
        deep: whether to read all stored data; it takes as long as reading it takes.
    """
    yield from _found(lambda: deployment.catalog.check(deep=deep))
    yield from _of_state(deployment, deep=deep)
    if deployment.is_away:
        return  # the rest is in the worker's folder
    yield from _of_plans(deployment)
    graph = deployment.graph(deployment.catalog.latest())
    for node in graph.nodes:
        if node.is_logged:
            yield from _found(partial(deployment.changes.check, node, deep=deep))
    for each in graph.sources():
        if isinstance(each.definition.connector, WebhookConnector):
            connector = each.definition.connector
            yield from _of_log(IngestReader(deployment.directory, connector.source.name, connector.endpoint), deep=deep)
    if deep:
        yield from _of_features(deployment)


def _found(look: Callable[[], object]) -> Iterator[Damaged]:
    try:
        look()
    except Damaged as error:
        yield error


def _of_state(deployment: Deployment, *, deep: bool) -> Iterator[Damaged]:
    store = deployment.store
    for shard in range(deployment.shards):
        look = store.check if deep and isinstance(store, Lasting) else store.state_ids
        found = list(_found(partial(look, shard)))
        yield from found
        if not found and isinstance(store, DurableStore) and store.identity is not None:
            yield from _of_objects(store.files()[shard], deep=deep)


def _of_objects(files: ShardFiles, *, deep: bool) -> Iterator[Damaged]:
    """Yield errors for the objects of a shard in a bucket.

    Reads find the copies of this machine only.
    """
    if files.has_locks:
        return
    found = looked(partial(inspect, files, deep=deep), lambda it: bool(it.lost or it.journal))
    if found.lost or found.journal:
        yield Damaged(f"the state {files} is damaged: {wrong(found)}", hint=REMEDY)


def _of_plans(deployment: Deployment) -> Iterator[Damaged]:
    plans, last = deployment.plans(), deployment.catalog.progress(JOB, sys.maxsize)
    yield from _found(lambda: plans.check(last.state.get("plan", 0) if last else 0))
    for number in plans.numbers():
        yield from _found(partial(plans.read, number))


def _of_log(reader: IngestReader, *, deep: bool) -> Iterator[Damaged]:
    found = list[Damage]()

    def look() -> None:
        for part in reader.plan(reader.start())[0]:
            if deep or not reader.has(part):
                for _ in reader.open(part, found.append):
                    pass

    yield from _found(look)
    yield from (Damaged(str(each), hint=RESTORE) for each in found)


def _of_features(deployment: Deployment) -> Iterator[Damaged]:
    for each in damaged_features(deployment):
        yield Damaged(str(each), hint="delete the day's folder, or keep what is left of it")


def damaged_features(deployment: Deployment) -> list[DamagedLine]:
    """Return the lines of the feature log that cannot be read."""
    log, found = FeatureLog(Path(deployment.directory, "features")), list[DamagedLine]()
    for branch in branches(deployment):
        for _ in log.read(branch, damaged=found.append):
            pass
    return found
