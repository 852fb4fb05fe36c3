"""Checks and repairs of state, in files and in buckets."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import unquote, urlsplit

from umbel.errors import Damaged, HistoryDropped, NotSupported
from umbel.graph.graph import Graph
from umbel.runtime.deployment import JOB
from umbel.runtime.journal_ends import noted_ends
from umbel.runtime.recovery.finding import ALL, CheckFinding, reason_of
from umbel.runtime.recovery.rebuild import computable, request, titles
from umbel.runtime.recovery.state_targets import MARK
from umbel.runtime.state_claim import claims
from umbel.state.description import NAME, StoreDescription
from umbel.state.durable import CLAIMS, ELSEWHERE, NEW, DurableStore
from umbel.state.runs.files import LocalFiles, ShardFiles
from umbel.state.runs.inspection import ShardInspection, inspect, repair
from umbel.state.runs.shard_names import KnownStore
from umbel.state.urls import open_store

if TYPE_CHECKING:
    from umbel.runtime.deployment import Deployment
    from umbel.state.port import Store

LOOKS, PAUSE = 4, 0.1
"""Times that something wrong is looked at, and seconds between them."""
T = TypeVar("T")


def looked(look: Callable[[], T], is_wrong: Callable[[T], bool]) -> T:
    """Look again where something is wrong: files are replaced while a deployment runs."""
    for _ in range(LOOKS - 1):
        with suppress(FileNotFoundError):
            found = look()
            if not is_wrong(found):
                return found
        time.sleep(PAUSE)
    return look()


def check_state(deployment: Deployment, *, deep: bool) -> Iterator[CheckFinding]:
    """Yield the damage of the state, shard by shard."""
    folder = _folder(deployment.store_url)
    try:
        store = deployment.store
        is_described = not isinstance(store, DurableStore) or store.identity is not None
        if isinstance(store, DurableStore):
            with suppress(Damaged):  # it notes that as its refusal
                store.check_claim(claims(deployment))
        wrong = "" if is_described or deployment.noted_store is None else f"there is no {NAME}"
        if is_described and isinstance(store, DurableStore) and deployment.noted_store not in (None, store.identity):
            text = f"{store.root}/{NAME} has another id than the catalog tells of"
            yield CheckFinding("state", text, "all state", f"name the store of the worker: --store; {ALL}")
            return  # nothing of it is to be mended for this deployment
        if is_described and isinstance(store, DurableStore) and store.refusal:
            yield CheckFinding("state", store.refusal, remedy=NEW)
            return
    except (Damaged, OSError) as error:
        store, is_described, wrong = None, False, reason_of(error)
    root, files = _files(deployment, store, folder)
    if wrong:
        yield from _undescribed(deployment, root, files, wrong)
    if not is_described and not any(each.list("journal") for each in files):
        return
    graph = deployment.graph(deployment.catalog.latest())
    for number, each in enumerate(files):
        yield from _of_shard(deployment, graph, number, each, deep=deep)


def _folder(url: str) -> Path | None:
    """Return the folder of a store in files, None for another one."""
    parts = urlsplit(url)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


def _files(
    deployment: Deployment, store: Store | None, folder: Path | None
) -> tuple[ShardFiles | None, list[ShardFiles]]:
    """Return the files of a store itself, if any, and those of its shards.

    Args:
        deployment: the deployment.
        store: its store, None where that cannot be opened.
        folder: of the store, None if it is not in files.
    """
    if folder is not None:
        shards: list[ShardFiles] = [LocalFiles(folder / f"shard-{each:03d}") for each in range(deployment.shards)]
        for each in shards:
            each.store = KnownStore(deployment.noted_store)
        return LocalFiles(folder), shards
    found = open_store(deployment.store_url, deployment.shards) if store is None else store
    return (found.root, found.files()) if isinstance(found, DurableStore) else (None, [])


def _undescribed(
    deployment: Deployment, root: ShardFiles | None, shards: Sequence[ShardFiles], wrong: str
) -> Iterator[CheckFinding]:
    """Yield the finding of a store whose description is missing or damaged."""
    identity = deployment.noted_store
    if root is None or identity is None or not any(each.list("journal") for each in shards):
        yield CheckFinding("state", wrong, "all state", ALL if root is None else f"{ELSEWHERE}; if it is lost, {ALL}")
        return
    claimed = root.list(CLAIMS)
    if claimed and root.read(f"{CLAIMS}/{claimed[-1]}").decode() not in claims(deployment):
        yield CheckFinding("state", f"{wrong}, and a worker of another folder has written it", "all state", NEW)
        return
    if root.size(MARK) is not None:
        yield CheckFinding("state", f"{wrong}: a restore did not end", "all state", "repeat that: umbel restore")
        return

    def mend() -> str:
        StoreDescription.write(root, deployment.shards, identity)
        return "written again, as the catalog knows it"

    yield CheckFinding("state", wrong, mend=mend)


def _of_shard(
    deployment: Deployment, graph: Graph, shard: int, files: ShardFiles, *, deep: bool
) -> Iterator[CheckFinding]:
    subject = f"state, shard {shard}"
    ends = noted_ends(deployment.catalog, JOB)
    least = ends[shard] if shard < len(ends) else None
    look = partial(inspect, files, deep=deep, least=least)
    found = looked(look, lambda it: bool(it.lost or it.journal or it.damaged or it.torn))
    if not found.state_ids and not files.list("journal") and (files.has_locks or not found.manifest.version):
        found.journal = "all files of the journal are missing"
    if found.journal:  # what has been lost of it may have been the only record of any operator
        found.state_ids |= {node.state_id for node in graph.nodes if node.is_keyed}
    if found.lost or found.journal:
        yield _lost(deployment, graph, shard, files, found)
    elif found.damaged:

        def restore() -> str:
            repair(files, found)
            return f"version {found.manifest.version}, the one before, counts"

        yield CheckFinding(subject, f"manifest {', '.join(found.damaged)} is not as it was written", mend=restore)
    elif found.torn:

        def cut() -> str:
            repair(files, found)
            return f"{found.torn} bytes cut off, or committed where they were whole"

        yield CheckFinding(subject, f"a write was cut: {found.torn} bytes that no batch relies on", mend=cut)


def _lost(deployment: Deployment, graph: Graph, shard: int, files: ShardFiles, found: ShardInspection) -> CheckFinding:
    """Return the finding of a shard whose state is not whole."""
    needed = found.lost & {node.state_id for node in graph.nodes}

    def mend() -> str:
        made = computable(deployment, graph, needed)
        if needed:  # first: what has been given up is not found again by the check after a crash
            request(deployment, made)
        repair(files, found)
        return f"given up; the worker rebuilds {', '.join(made.datasets)}" if needed else "given up: nothing needed it"

    remedy, can = ALL, True
    try:
        computable(deployment, graph, needed)
    except (Damaged, HistoryDropped, NotSupported) as error:
        remedy, can = f"{error.message}: {ALL}", False
    text = f"part {shard + 1} of {deployment.shards} of the state of {', '.join(titles(graph, needed)) or 'nothing'}"
    return CheckFinding(f"state, shard {shard}", wrong(found), text, remedy, mend if can else None)


def wrong(found: ShardInspection) -> str:
    """Return what is wrong with a shard."""
    runs = [error for errors in found.runs.values() for error in errors]
    return "; ".join(
        [*([found.journal] if found.journal else []), *runs[:5], *([f"and {len(runs) - 5} more"] if runs[5:] else [])]
    )
