"""Backups of a running deployment, restored elsewhere, where it ends as if it had never been interrupted."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path
from typing import Any, Self

import orjson
import polars as pl
import pytest

from tests.comparing import assert_rows
from tests.deployed import Deployed, wait_until
from tests.kills import Worker
from tests.sales import USERS, Row, at, base, check_all, extended, lines, put, sales
from umbel.api.commit import check_commit
from umbel.log.ingest import IngestLogs
from umbel.log.reading import IngestReader
from umbel.runtime import branches
from umbel.runtime.commit import commit
from umbel.runtime.recovery.backup import BackupReport, backup
from umbel.runtime.recovery.repository import Repository
from umbel.runtime.recovery.restore import restore
from umbel.types.schema import SEQ, WEIGHT

AT_ONCE = 50
"""Rows of one request."""


class Sender:
    """Sends rows to the webhook as fast as it takes them, and puts files, until stopped; remembers the order.

    Args:
        folder: of umbel.
        files: of the other source.
        rate: requests a second.
    """

    def __init__(self, folder: Path, files: Path, rate: float) -> None:
        self.folder, self.files, self._pause = folder, files, 1 / rate
        self.sent, self.put = list[Row](), list[Row]()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        logs, number = IngestLogs(self.folder), 0
        while not self._stop.wait(self._pause):
            rows = sales(number * AT_ONCE, AT_ONCE)
            if number % 20:
                logs.log("web", "sales").append_blocking(lines_of(rows), len(rows))
                self.sent += rows
            else:
                put(self.files / f"a/{number:06d}.ndjson", lines(rows))
                self.put += rows
            number += 1
        logs.close()

    def send_again(self, folder: Path) -> None:
        """Send a restored deployment what its backup does not have."""
        logs = IngestLogs(folder)
        rows = self.sent[IngestReader(folder, "web", "sales").end().row :]
        for first in range(0, len(rows), 1000):
            part = rows[first : first + 1000]
            logs.log("web", "sales").append_blocking(lines_of(part), len(part))
        logs.close()


def lines_of(rows: list[Row]) -> bytes:
    return orjson.dumps([{**row, "t": row["t"].isoformat()} for row in rows])


class Run:
    """A deployment that processes what a sender sends, and is backed up meanwhile.

    Args:
        folder: of everything.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.files = folder, folder / "files"
        self.deployed = Deployed(folder / "umbel")
        self.deployed.commit(base(self.files))
        branches.init(self.deployed.deployment, "trial", "main")
        self.users = USERS[0] + USERS[1]
        self.deployed.log("users", self.users)
        self.worker = Worker(folder / "umbel", folder / "worker.log")
        self.sender = Sender(folder / "umbel", self.files, 20)
        self.backups = list[BackupReport]()

    def finished(self) -> int:
        """Return the number of the last finished batch, having seen to the worker."""
        self.worker.mind()
        last = self.deployed.deployment.catalog.progress("live", 1 << 60)
        return -1 if last is None else last.number

    def go_on(self, batches: int) -> None:
        """Wait until some more batches have finished."""
        until = self.finished() + batches
        wait_until(lambda: self.finished() >= until, lambda: (until, self.said(self.folder)))

    def back_up(self) -> None:
        self.backups.append(backup(self.deployed.deployment, Repository.at(str(self.folder / "backups"))))

    def said(self, folder: Path) -> Any:
        return (folder / "worker.log").read_text(errors="replace")[-3000:]

    def finish(self, deployed: Deployed, worker: Worker, kill_at: float | None = None) -> None:
        """Wait until all rows are processed, killing the worker once on the way."""
        due = {"Sales": len(self.sender.sent) + len(self.sender.put), "Users": len(self.users)}
        deadline = None if kill_at is None else time.monotonic() + kill_at

        def is_done() -> bool:
            nonlocal deadline
            worker.mind()
            if deadline is not None and time.monotonic() > deadline:
                worker.kill("driver")
                deadline = None
            serving = deployed.deployment.catalog.serving(deployed.deployment.catalog.latest())
            heads = deployed.deployment.catalog.heads(deployed.deployment.catalog.latest())
            return deployed.taken() == due and serving == heads

        wait_until(is_done, lambda: (deployed.taken(), due, self.said(self.folder)), within=600)
        worker.end()

    def restored(self, report: BackupReport, chance: random.Random) -> Deployed:
        """Restore a backup, send what came after it again, and process it all; one kill on the way."""
        folder = self.folder / f"restored-{report.backup.id}"
        restore(Repository.at(str(self.folder / "backups")), folder, report.backup.id)
        self.sender.send_again(folder)
        deployed = Deployed(folder)
        commit(deployed.deployment, check_commit(extended(self.files), ()), branch="trial")  # none, if it has it
        worker = Worker(folder, self.folder / "worker.log")
        try:
            self.finish(deployed, worker, chance.uniform(5, 15))
        finally:
            worker.end()
        return deployed


def answers(deployed: Deployed, rows: int) -> list[Any]:
    """Return what is answered on both branches at many instants, and all changes."""
    instants = [at(minute) for minute in (*range(0, int(rows * 1.5), max(1, rows // 40)), rows * 1.5)]
    found = []
    for name, key, values in (("Totals", "user", range(6)), ("Last", "kind", "abc")):
        points = [({key: value}, now) for value in values for now in instants]
        found += deployed.lookup(name, [key for key, _ in points], [now for _, now in points])
    place = deployed.deployment
    graph = place.graph(place.catalog.latest())
    for name in ("Tiers", "Largest", "Totals"):
        node = graph.branch("trial").outputs[name]
        found += net(place.changes.read(node)) if node.is_logged else [sorted(map(place.store.state_ids, (0, 1)))]
    changes = deployed.changes("Priced").drop("_seq")
    return [*found, *sorted(map(repr, changes.rows()))]


def net(changes: pl.DataFrame) -> list[str]:
    """Return what changes come to: how many corrections there are depends on which rows came together."""
    summed = changes.group_by(pl.exclude(SEQ, WEIGHT)).agg(pl.col(WEIGHT).sum()).filter(pl.col(WEIGHT) != 0)
    return sorted(map(repr, summed.rows()))


def run(folder: Path, restores: int, chance: random.Random) -> None:
    made = Run(folder)
    deployed = made.deployed
    try:
        with made.sender:
            made.go_on(2)
            made.back_up()
            commit(deployed.deployment, check_commit(extended(made.files), ()), branch="trial")
            for _ in range(3):
                made.back_up()
                time.sleep(chance.uniform(0, 1))
            made.worker.kill(chance.choice(["driver", "jvm", "python"]))
            made.back_up()
            made.go_on(1)
            for _ in range(2):
                made.back_up()
                time.sleep(chance.uniform(0, 0.5))
        made.finish(deployed, made.worker)
        rows = made.sender.sent + made.sender.put
        check_all(deployed, rows, made.users)
        expected = answers(deployed, len(rows))
        for report in chance.sample(made.backups, restores):
            found = made.restored(report, chance)
            check_all(found, rows, made.users)
            assert_rows(answers(found, len(rows)), expected)
            found.close()
        assert all(each.written < each.backup.size / 2 for each in made.backups[-2:])
    finally:
        made.worker.end()
        deployed.close()


def test_a_restored_backup_ends_equal(tmp_path: Path) -> None:
    run(tmp_path, 1, random.Random())


@pytest.mark.nightly
def test_each_restored_backup_ends_equal(tmp_path: Path) -> None:
    run(tmp_path, 6, random.Random())
