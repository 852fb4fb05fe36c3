"""Checks of what a deployment has stored, in the words of its user, and repairs.

A check reads and changes nothing: it runs beside a running deployment. A repair needs a stopped one.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

import polars as pl

from umbel.connectors.pubsub.seen import CLOCK, SEEN, TIMES
from umbel.connectors.staging import Stage
from umbel.connectors.webhook import WebhookConnector
from umbel.errors import Damaged, HistoryDropped, NotSupported, Terminal
from umbel.graph.graph import Graph, GraphNode
from umbel.log.batch_ids import IDS, LOCATION
from umbel.log.entry_check import damage_of
from umbel.log.environments import erase_environment
from umbel.log.inspection import inspect as inspect_log
from umbel.log.inspection import mend as mend_log
from umbel.log.inspection import mend_heads, mend_start
from umbel.log.redaction import finish_redaction, is_unfinished
from umbel.log.segments import LogPosition, directory_of
from umbel.log.tail import Tail
from umbel.processes.locks import alone
from umbel.runtime.deployment import JOB, Deployment
from umbel.runtime.integrity import damaged_features
from umbel.runtime.recovery import checkpoint
from umbel.runtime.recovery.cut import LINKS, folders_of_links, ingest_logs
from umbel.runtime.recovery.finding import ALL, BACKUP, CheckFinding, reason_of
from umbel.runtime.recovery.rebuild import computable, request
from umbel.runtime.recovery.state_check import check_state, looked, wrong
from umbel.state import disk
from umbel.state.runs.files import LocalFiles
from umbel.state.runs.inspection import inspect

UNREADABLE = (Damaged, OSError, ValueError, pl.exceptions.PolarsError)
"""What reading a damaged file or row raises."""


def check(deployment: Deployment, *, deep: bool = True) -> Iterator[CheckFinding]:
    """Yield what is wrong with a deployment's files.

    Args:
        deployment: the deployment; it may be running.
        deep: False to look only whether everything is there.
    """
    yield from _caught(
        "catalog", lambda: deployment.catalog.check(deep=deep), "definitions, positions, secrets or counts"
    )
    try:
        deployment.graph(deployment.catalog.latest())
    except Damaged as error:
        yield CheckFinding("catalog", error.message, "definitions")
        yield from check_files(deployment.directory, deep=deep)
        return
    yield from _guarded("checkpoint", _checkpoint(deployment), "nothing: the catalog knows the last finished batch")
    yield from _guarded("batch plans", _plans(deployment), "the positions up to which sources were read")
    yield from _guarded("state", check_state(deployment, deep=deep), "all state")
    yield from _guarded("change logs", _change_logs(deployment, deep=deep), "all changes that are logged")
    for name, folder in ingest_logs(deployment.directory):
        yield from _guarded(name, _ingest(deployment, name, folder, deep=deep), "rows that were not processed yet")
        yield from _guarded(name, _batch_ids(name, folder, deep=deep), "")
    yield from _guarded("staged rows", _staged(deployment, deep=deep), "rows that were not processed yet")
    yield from _guarded("staged rows", _message_ids(deployment, deep=deep), "which messages were delivered")
    yield from _guarded("feature log", _features(deployment, deep=deep), "answers that were logged")
    yield from _guarded("secrets", _secrets(deployment), "secrets that are stored by name")
    yield from _guarded("files", _left_over(deployment), "nothing")


def check_files(directory: Path, *, deep: bool = True) -> Iterator[CheckFinding]:
    """Yield what is wrong with the files of a deployment whose catalog cannot be read."""
    for folder in sorted((directory / "store").glob("shard-[0-9]*")):
        found = inspect(LocalFiles(folder), deep=deep)
        if found.lost or found.journal:
            yield CheckFinding(f"state, {folder.name}", wrong(found), f"state of {len(found.lost)} operators")
    for name, folder in ingest_logs(directory):
        for each in inspect_log(folder, deep=deep).damage:
            yield CheckFinding(name, each.text, each.lost)


def repair_all(deployment: Deployment, found: list[CheckFinding]) -> Iterator[tuple[CheckFinding, str]]:
    """Mend findings; yield each with the action, empty if it cannot be mended.

    Raises:
        Transient: the deployment runs.
    """
    with ExitStack() as locks:
        for what in ("worker", "supervisor", "server"):
            locks.enter_context(alone(deployment.directory, what))
        for each in found:
            try:
                yield each, each.mend() if each.mend is not None else ""
            except (Damaged, HistoryDropped, NotSupported):
                yield each, ""
            except OSError as error:  # of the disk: what is wrong can be mended, though not now
                place = f"{error.filename}: " if error.filename else ""
                remedy = f"{place}{error.strerror or error}; {disk.remedy_of(error.errno)}, and repeat this"
                yield replace(each, remedy=remedy), ""


def _caught(subject: str, look: Callable[[], object], lost: str) -> Iterator[CheckFinding]:
    try:
        look()
    except UNREADABLE as error:
        yield CheckFinding(subject, reason_of(error), lost)


def _guarded(subject: str, findings: Iterator[CheckFinding], lost: str) -> Iterator[CheckFinding]:
    """Yield findings; if they cannot be made, that is one."""
    try:
        yield from findings
    except UNREADABLE as error:
        yield CheckFinding(subject, reason_of(error), lost, ALL)


def _checkpoint(deployment: Deployment) -> Iterator[CheckFinding]:
    parts = deployment.catalog, deployment.directory
    if older := checkpoint.is_catalog_older(*parts):
        yield CheckFinding("catalog", older, "commits, erasures, tokens and dead letters since then", BACKUP)
    if loss := checkpoint.loss(*parts):
        yield CheckFinding(
            "checkpoint",
            f"{loss}; the catalog knows the last finished batch",
            mend=lambda: f"written again, after batch {checkpoint.write(*parts)}",
        )


def _plans(deployment: Deployment) -> Iterator[CheckFinding]:
    plans, last = deployment.plans(), deployment.catalog.progress(JOB, sys.maxsize)
    due = last.state.get("plan", 0) if last else 0
    for number in sorted({*([due] if due else []), *plans.numbers()}):
        lost = "the positions up to which sources were read" if number >= due else ""
        remedy = ALL if lost else "nothing: it is needed no more"
        for each in _caught("batch plans", partial(plans.read, number), lost):
            yield CheckFinding(each.subject, each.text, each.lost, remedy)


def _change_logs(deployment: Deployment, *, deep: bool) -> Iterator[CheckFinding]:
    graph, done = deployment.graph(deployment.catalog.latest()), deployment.catalog.backfilled()
    for node in graph.nodes:
        if not node.is_logged or node.state_id not in done:
            continue
        name = node.dataset or node.state_id
        for each in _caught(
            f"change log of {name}", partial(deployment.changes.check, node, deep=deep), f"history of {name}"
        ):
            yield CheckFinding(each.subject, each.text, each.lost, ALL, _rebuilt(deployment, graph, node))


def _rebuilt(deployment: Deployment, graph: Graph, node: GraphNode) -> Callable[[], str] | None:
    try:
        made = computable(deployment, graph, {node.state_id})
    except (Damaged, HistoryDropped, NotSupported):
        return None

    def mend() -> str:
        request(deployment, made)
        return f"the worker rebuilds {', '.join(made.datasets)}"

    return mend


def _ingest(deployment: Deployment, name: str, folder: Path, *, deep: bool) -> Iterator[CheckFinding]:
    last = deployment.catalog.progress(JOB, sys.maxsize)
    read, done = (_read(deployment, name, plan) for plan in (None, last.state.get("plan", 0) if last else 0))
    look = partial(inspect_log, folder, deep=deep, read=read)
    found = looked(look, lambda it: bool(it.damage or it.torn or it.is_short))
    if found.damage and is_unfinished(folder):  # of the damage, what the redaction writes again is not known before
        yield CheckFinding(name, "an erasure of bytes was interrupted", mend=partial(_redacted, folder))
        return
    for each in found.damage:
        is_done = done is not None and each.begin < (done.segment, done.offset)
        yield CheckFinding(name, each.text, each.lost, BACKUP if is_done else f"send the rows again; or {BACKUP}")
    if found.torn or found.is_short:
        text = f"a request was cut: {found.torn} bytes that were never answered" if found.torn else found.short
        yield CheckFinding(name, text, found.lost_end, mend=partial(mend_log, folder, read))
    if found.heads:
        names = ", ".join(segment.path.name for segment, _ in found.heads)
        text = f"{names}: the first bytes are not as they were written; the rows are there"
        yield CheckFinding(name, text, mend=partial(mend_heads, found))
    if found.is_start_damaged:
        text = "oldest: the record of the first position is not as it was written"
        yield CheckFinding(name, text, mend=partial(mend_start, folder))
    if found.indexes:
        yield CheckFinding(
            name, f"{len(found.indexes)} indexes do not fit their segments", mend=partial(_without, found.indexes)
        )


def _batch_ids(name: str, folder: Path, *, deep: bool) -> Iterator[CheckFinding]:
    if not deep or not (folder / IDS).is_dir():
        return
    tail = Tail(folder)
    try:
        damage = damage_of(folder / IDS, LOCATION.size, tail.locked())
    finally:
        tail.close()
    if damage:
        text = f"the ids of batches are damaged: {damage}; they are read from the records when they are needed"
        yield CheckFinding(name, text, mend=partial(_erased, folder / IDS))


def _message_ids(deployment: Deployment, *, deep: bool) -> Iterator[CheckFinding]:
    for folder in sorted((deployment.directory / "staged").glob(f"*/{SEEN}")) if deep else ():
        damage = looked(partial(damage_of, folder, TIMES.size, nullcontext(), CLOCK), bool)
        if damage:
            source = folder.parent.name
            lost = f"which messages of {source} were delivered: those that are delivered again within two hours are doubled"
            text = f"the ids of messages are damaged: {damage}"
            yield CheckFinding(f"staged rows of {source}", text, lost, mend=partial(_erased, folder))


def _erased(folder: Path) -> str:
    erase_environment(folder)
    return "deleted: those of the rows that are there are read again"


def _redacted(folder: Path) -> str:
    finish_redaction(folder)
    return "what it was writing is written again"


def _without(paths: list[Path]) -> str:
    for path in paths:
        path.unlink(missing_ok=True)
    return "deleted: reading needs none"


def _read(deployment: Deployment, name: str, plan: int | None = None) -> LogPosition | None:
    """Return the position up to which an ingest log was planned, if any.

    Args:
        deployment: the deployment.
        name: of the log.
        plan: the number of the plan, None for the last one.
    """
    try:
        number = deployment.plans().last() if plan is None else plan
        positions = deployment.plans().read(number).positions if number else {}
        graph, found = deployment.graph(deployment.catalog.latest()), list[LogPosition]()
        for each in graph.sources():
            connector = each.definition.connector
            if isinstance(connector, WebhookConnector) and each.key in positions:
                folder = directory_of(deployment.directory, connector.source.name, connector.endpoint)
                if folder.relative_to(deployment.directory).as_posix() == name:
                    found.append(LogPosition.from_json(positions[each.key]))
        return max(found, default=None)
    except (Damaged, OSError):
        return None


def _staged(deployment: Deployment, *, deep: bool) -> Iterator[CheckFinding]:
    folder = deployment.directory / "staged"
    for source in sorted(folder.iterdir()) if folder.is_dir() else ():
        stage = Stage(source)
        subject, rows = f"staged rows of {source.name}", f"rows of source {source.name} that are not processed"
        yield from _caught(subject, stage.state, f"how far source {source.name} was read, or {rows}")
        yield from _caught(subject, stage.check, rows)
        for number in stage.numbers():
            yield from _caught(subject, partial(stage.read if deep else stage.part, number), rows)


def _features(deployment: Deployment, *, deep: bool) -> Iterator[CheckFinding]:
    for each in damaged_features(deployment) if deep else ():
        yield CheckFinding(
            "feature log", str(each), f"{each.size} bytes of logged features", "nothing: it is passed over"
        )


def _secrets(deployment: Deployment) -> Iterator[CheckFinding]:
    try:
        deployment.vault.check()
    except (Terminal, OSError) as error:
        remedy = "put back secret.key, which is in no backup; or set the secrets again"
        yield CheckFinding("secrets", reason_of(error), "what is read with these secrets", remedy)


def _left_over(deployment: Deployment) -> Iterator[CheckFinding]:
    try:
        folders = folders_of_links(deployment)
    except UNREADABLE:  # the state cannot be opened, which is reported as such
        folders = [deployment.directory / LINKS]
    left = [each for each in folders if each.exists()]

    def delete() -> str:
        with alone(deployment.directory, "backup"):
            for each in left:
                shutil.rmtree(each, ignore_errors=True)
        return "deleted"

    if left and not _is_backing_up(deployment.directory):
        yield CheckFinding("backup", "files of a backup that was killed are still pinned", mend=delete)


def _is_backing_up(directory: Path) -> bool:
    from umbel.errors import Transient

    try:
        with alone(directory, "backup"):
            return False
    except Transient:
        return True
