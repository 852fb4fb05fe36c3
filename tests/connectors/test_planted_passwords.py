"""`umbel run` with passwords of sources and sinks planted everywhere: they are in nothing that it writes, shows or answers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.connectors.mysql_shop import ORDERS
from tests.connectors.test_postgres_run import PostgresRun
from tests.running_files import contents
from tests.servers.kafka import PASSWORD, Broker
from tests.servers.mysql import MySQLServer
from tests.servers.postgres import PostgresServer

PROGRAM = "tests.connectors.planted_features"
TOPIC, DATABASE = "planted", "planted"
CATALOG = "catalog.db"
"""The file of the catalog, which has passwords that are texts as they are written."""
PAGES = ("metrics", "progress", "lineage", "commit", "branch/list", "branch/status", "nothing")
OF_DATASETS = ("inspect", "dead_letters", "expectations")
COMMANDS = (
    ("doctor",),
    ("status",),
    ("plan", PROGRAM),
    ("explain", "User", PROGRAM),
    ("dead-letters", "Event"),
    ("secret", "list"),
    ("commit", PROGRAM),
)


class PlantedRun(PostgresRun):
    def command(self, port: int) -> list[str]:
        return [PROGRAM if "features" in each else each for each in super().command(port)]


@pytest.fixture
def run(
    tmp_path: Path,
    broker: Broker,
    postgres_server: PostgresServer,
    mysql_server: MySQLServer,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[PlantedRun]:
    """Return a run with a row of each source, and a message that is none."""
    broker.create(TOPIC)
    broker.grant("TOPIC", TOPIC, "DESCRIBE", "READ")
    broker.produce(TOPIC, [b'{"n": 1, "at": "2026-03-01T00:00:00Z"}', b"no row"])
    postgres_server.run(f"CREATE DATABASE {DATABASE}")
    postgres_server.run(ORDERS.replace("orders", "users").replace("datetime(6)", "timestamptz"), database=DATABASE)
    postgres_server.run("INSERT INTO users VALUES (1, 'a', now())", database=DATABASE)
    mysql_server.run(f"CREATE DATABASE {DATABASE}")
    mysql_server.run(ORDERS, "INSERT INTO orders VALUES (1, 'a', now(6))", database=DATABASE)
    secret, settings = tmp_path / "password", tmp_path / "settings.json"
    secret.write_text(PASSWORD)
    ports = {"postgres": postgres_server.port, "mysql": mysql_server.port, "kafka": broker.sasl_address}
    settings.write_text(
        json.dumps({"password": PASSWORD, "file": str(secret), "database": DATABASE, "topic": TOPIC, **ports})
    )
    for name in [name for name, value in os.environ.items() if PASSWORD in value]:
        monkeypatch.delenv(name)  # a deployment of an earlier test handed it on to processes of its own
    monkeypatch.setenv("PLANTED_SETTINGS", str(settings))
    folder = tmp_path / "run"
    folder.mkdir()
    assert umbel(folder, "secret", "set", "my", text=PASSWORD).returncode == 0
    made = PlantedRun(folder)
    try:
        yield made
    finally:
        made.end()


def umbel(folder: Path, *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "umbel.cli.main", *arguments, "--dir", str(folder / "umbel")]
    path = os.pathsep.join(filter(None, sys.path))
    environment = {**os.environ, "PYTHONPATH": path, "COLUMNS": "300"}
    return subprocess.run(
        command, env=environment, input=text, capture_output=True, text=True, timeout=120, check=False
    )


def counts(run: PlantedRun) -> tuple[Any, ...]:
    """Return the note of the user, and the rows of the other sources and dead letters."""
    answer = run.http.post(
        "/api/v1/query", json={"inputs": ["Shopper.id"], "outputs": ["Shopper.note"], "data": {"Shopper.id": [1]}}
    ).json()
    rows = [run.http.get(f"/api/v1/dataset/{name}/inspect").json() for name in ("Order", "Event")]
    letters = run.http.get("/api/v1/dataset/Event/dead_letters").json()
    return (
        answer.get("Shopper.note"),
        *("updated_at" in str(each) or "'n'" in str(each) for each in rows),
        bool(letters),
    )


def test_passwords_are_found_nowhere(run: PlantedRun) -> None:
    run.wait_until_ready()
    run.wait(lambda: counts(run) == (["a"], True, True, True))
    run.wait(lambda: "sink of 'Large'" in run.said)  # it cannot be delivered to
    shown = {path: run.http.get(f"/api/v1/{path}").text for path in PAGES}
    shown |= {
        f"{name}/{each}": run.http.get(f"/api/v1/dataset/{name}/{each}").text
        for name in names()
        for each in OF_DATASETS
    }
    shown |= {" ".join(words): said(run, *words) for words in COMMANDS}
    assert all("no row" in shown[name] for name in ("Event/dead_letters", "dead-letters Event"))
    shown |= of_processes(run)
    run.worker().send_signal(signal.SIGABRT)  # prints where each thread is
    run.wait(lambda: "worker ended" in run.out.read_text())
    found = [name for name, text in shown.items() if PASSWORD in text]
    assert found == []
    files = dict(contents(run.folder, besides=CATALOG))
    assert any("log" in path.name for path in files)
    assert [path for path, content in files.items() if PASSWORD.encode() in content] == []


def names() -> list[str]:
    return ["User", "Order", "Event"]


def said(run: PlantedRun, *words: str) -> str:
    done = umbel(run.folder, *words)
    return done.stdout + done.stderr


def of_processes(run: PlantedRun) -> dict[str, str]:
    """Return the arguments and environments of the processes: Spark's configuration is among those of its JVM."""
    found = {}
    for each in (psutil.Process(run.process.pid), *run.family()):
        try:
            found[str(each)] = " ".join(each.cmdline()) + str(each.environ())
        except psutil.Error:
            continue
    assert any("java" in name + text for name, text in found.items())
    return found
