"""Kills at random instants of a live job, whose answers are then compared with those of plain Python."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from tests.deployed import Deployed, wait_until
from tests.sales import USERS, Row, at, base, check_all, put_everywhere

SCRIPT = """
import os
import sys
from pathlib import Path
from umbel.runtime.deployment import Deployment
from umbel.spark.job import LiveJob
from umbel.spark.session import Settings, running

catalog, store, master = (os.environ.get(name) for name in ("UMBEL_CATALOG", "UMBEL_STORE", "UMBEL_MASTER"))
place = Deployment.at(Path(sys.argv[1]), catalog_url=catalog, store_url=store)
options = {"spark.executor.memory": "600m"}
with running(Settings(place.directory, slots=2, master=master, memory="600m", options=options)) as session:
    LiveJob(place, session, small=int(sys.argv[2])).start().awaitTermination()
"""
VICTIMS = ("driver", "jvm", "python", "planner")
SMALL = 3000
"""Waves of rows are larger and run in tasks; what a user does is smaller and runs in the driver."""


class Killed(BaseException):
    """Ends code of this process as a signal would end a worker: nothing handles it."""


def kill() -> None:
    """End what runs in this process, for failpoints."""
    raise Killed


class Worker:
    """The live job in a process of its own, started again whenever it is found dead."""

    def __init__(self, folder: Path, log: Path) -> None:
        self._command, self._log = [sys.executable, "-c", SCRIPT, str(folder), str(SMALL)], log.open("ab")
        self._process: subprocess.Popen[bytes] | None = None

    def mind(self) -> None:
        if self._process is not None and self._process.poll() is None:
            return
        self.end()
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self._process = subprocess.Popen(
            self._command, env=environment, stdout=self._log, stderr=self._log, start_new_session=True
        )

    def kill(self, victim: str) -> bool:
        """Kill the driver, its JVM, a Python worker of Spark or what plans batches; return whether there was one."""
        assert self._process is not None
        try:
            driver = psutil.Process(self._process.pid)
            below = driver.children(recursive=True)
            jvms = [each for each in below if each.name() == "java"]
            workers = [each for jvm in jvms for each in jvm.children(recursive=True)]
            planners = [each for each in below if "umbel.runtime.planner" in each.cmdline()]
        except psutil.NoSuchProcess:
            return False
        found = {"driver": [driver], "jvm": jvms, "python": workers, "planner": planners}[victim]
        if found:
            found[-1].send_signal(signal.SIGKILL)
        return bool(found)

    def end(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


def last_plan(folder: Path) -> str:
    """Return the name of the newest plan of the deployment in a folder."""
    return max((path.name for path in (folder / "umbel" / "plans").glob("*.json")), default="")


def users_of(wave: int) -> list[Row]:
    """Return the rows of users that come with a wave."""
    return USERS[wave] if wave < len(USERS) else [{"user": wave % 6, "tier": f"t{wave}", "t": at(wave)}]


Kill = Callable[[str], object]
"""Kills one that is not part of the worker, by its name."""


def run(folder: Path, victims: list[str], chance: random.Random, others: Kill | None = None, **settings: Any) -> None:
    """Feed a wave of rows per victim, kill it when the wave is being worked on, and compare at the end.

    Args:
        folder: for the deployment and the rows.
        victims: of `VICTIMS`, or those that `others` knows.
        chance: decides when.
        others: kills other victims.
        settings: of the deployment.
    """
    deployed, files = Deployed(folder / "umbel", **settings), folder / "files"
    deployed.commit(base(files))
    rows, users = list[Row](), list[Row]()
    worker = Worker(folder / "umbel", folder / "worker.log")

    def is_planned(before: str) -> bool:
        worker.mind()
        return last_plan(folder) > before

    def is_done() -> bool:
        worker.mind()
        return deployed.taken() == {"Sales": len(rows), "Users": len(users)}

    def state() -> Any:
        return deployed.taken(), len(rows), len(users), (folder / "worker.log").read_text(errors="replace")[-3000:]

    try:
        for wave, victim in enumerate(victims):
            before = last_plan(folder)
            rows += put_everywhere(files, deployed, wave)
            users += (fresh := users_of(wave))
            deployed.log("users", fresh)
            wait_until(lambda: is_planned(before), state)  # noqa: B023
            time.sleep(chance.uniform(0, 1.5))  # any instant of the batch
            (worker.kill if victim in VICTIMS or others is None else others)(victim)
        wait_until(is_done, state, within=900)
        check_all(deployed, rows, users)
    finally:
        worker.end()
        deployed.close()
