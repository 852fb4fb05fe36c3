"""The process that plans batches: it waits for rows, and its end and its errors are reported."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import psutil
import pytest

import umbel.runtime.planner
from tests.deployed import wait_until
from tests.selling import Shop
from umbel.runtime.planner import Planner, PlanningFailed


@pytest.fixture
def planner(shop: Shop) -> Iterator[Planner]:
    with Planner(shop.deployed.deployment) as started:
        yield started


def is_active() -> bool:
    return True


def plans(shop: Shop) -> list[int]:
    return shop.deployed.deployment.plans().numbers()


def children() -> list[int]:
    found = psutil.Process().children()
    return [each.pid for each in found if "umbel.runtime.planner" in each.cmdline()]


def test_a_plan_is_made_once_and_the_next_one_waits_for_rows(shop: Shop, planner: Planner) -> None:
    last = max(plans(shop))
    assert planner.plan_after(last - 1, is_active) == last
    threading.Timer(0.5, lambda: shop.deployed.log_bytes("sales", b'[{"user": "none"}]', 1)).start()
    begun = time.monotonic()
    assert planner.plan_after(last, is_active) == last + 1
    assert time.monotonic() - begun > 0.4
    assert plans(shop)[-1] == last + 1


def test_nobody_waits_for_rows_once_the_job_is_stopped(shop: Shop, planner: Planner) -> None:
    last, looks = max(plans(shop)), iter([True, True])
    assert planner.plan_after(last, lambda: next(looks, False)) is None
    assert plans(shop)[-1] == last
    assert children() == []


def test_old_plans_are_deleted(shop: Shop, planner: Planner) -> None:
    folder = shop.deployed.deployment.directory / "plans"
    for number in range(100, 161):
        (folder / f"{number:012d}.json").write_bytes((folder / f"{max(plans(shop)):012d}.json").read_bytes())
    assert planner.plan_after(159, is_active) == 160
    assert 109 not in plans(shop)
    assert 110 in plans(shop)


def test_what_ends_the_process_is_reported_and_another_one_goes_on(shop: Shop, planner: Planner) -> None:
    last, killed = max(plans(shop)), set[int]()
    (process,) = children()

    def kills() -> bool:
        for each in children():
            killed.add(each)
            os.kill(each, signal.SIGKILL)
        return True

    with pytest.raises(PlanningFailed, match="plans batches ended by SIGKILL, 3 times in a row"):
        planner.plan_after(last, kills)
    assert len(killed) == 3
    assert process in killed
    shop.deployed.log_bytes("sales", b'[{"user": "none"}]', 1)
    looks = iter([kills])
    assert planner.plan_after(last, lambda: next(looks, is_active)()) == last + 1
    assert "plans batches ended by SIGKILL" in shop.deployed.deployment.catalog.events()[0].text


def test_errors_are_reported_with_their_traceback(shop: Shop, planner: Planner) -> None:
    last = max(plans(shop))
    path = shop.deployed.deployment.directory / "plans" / f"{last:012d}.json"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(PlanningFailed, match="Traceback") as raised:
        planner.plan_after(last, is_active)
    assert f"umbel.errors.Damaged: plan {last} is damaged" in str(raised.value)


def test_another_thread_may_close_it(shop: Shop, planner: Planner) -> None:
    """It is no end that is reported, and no other process is started."""
    last, closed, found = max(plans(shop)), threading.Event(), list[int | None]()
    planner.plan_after(last - 1, is_active)
    waiting = threading.Thread(target=lambda: found.append(planner.plan_after(last, lambda: not closed.is_set())))
    waiting.start()
    time.sleep(0.3)
    closed.set()
    planner.close()
    waiting.join(30)
    assert found == [None]
    assert children() == []
    assert not [each.text for each in shop.deployed.deployment.catalog.events() if "plans batches" in each.text]


def test_it_is_closed_in_order(shop: Shop, planner: Planner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(umbel.runtime.planner, "ENDED_WITHIN", 60.0)  # the machine may be busy
    planner.plan_after(max(plans(shop)) - 1, is_active)
    (process,) = children()
    assert planner.close() == "with exit code 0"
    assert not psutil.pid_exists(process)
    planner.close()  # again


SCRIPT = """
import sys
from pathlib import Path
from umbel.runtime.deployment import Deployment
from umbel.runtime.planner import Planner
planner = Planner(Deployment.at(Path(sys.argv[1])))
planner.start()
print(planner._process.pid, flush=True)
sys.stdin.read()
"""


def test_it_ends_with_the_process_that_started_it(shop: Shop) -> None:
    command = [sys.executable, "-c", SCRIPT, str(shop.folder / "umbel")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        planner = int(parent.stdout.readline())
        parent.kill()
    wait_until(lambda: not psutil.pid_exists(planner), lambda: planner)
