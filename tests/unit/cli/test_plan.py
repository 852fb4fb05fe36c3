"""`umbel plan`: what it prints, for a server and for a folder, and its exit codes."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.cli.conftest import FLIGHTS, Umbel, connected
from tests.unit.serving.conftest import Served
from umbel.client.connection import Unreachable
from umbel.errors import InvalidValue, UnknownName

COUNTS = """
from datetime import datetime

from umbel.connectors import Webhook, source
from umbel.datasets import Count, dataset, field, index, pipeline
from umbel.dtypes import Continuous
from umbel.lib import inputs

__owner__ = "tests@example.com"


@source(Webhook(name="events").endpoint("visits"), disorder="1d", cdc="append")
@dataset
class Visit:
    user: int
    at: datetime


@index
@dataset(version=1)
class Visits:
    user: int = field(key=True)
    visits: int
    at: datetime

    @pipeline
    @inputs(Visit)
    def counted(cls, rows):
        return rows.groupby("user").aggregate(visits=Count(window=Continuous("1h")))
"""
DAILY = COUNTS.replace('"1h"', '"1d"')
RAISED = DAILY.replace("version=1", "version=2")


def written(folder: Path, name: str, text: str) -> str:
    path = folder / f"{name}.py"
    path.write_text(text)
    return str(path)


@pytest.fixture
def visited(tmp_path: Path) -> Iterator[Served]:
    """Return a server that has processed visits."""
    yield from connected(tmp_path / "umbel")


def visit(umbel: Umbel, served: Served, module: str) -> None:
    assert umbel("commit", module).exit_code == 0
    served.log("visits", [{"user": n % 3, "at": "2024-01-01T12:00:00Z"} for n in range(20)])
    served.process()


def test_a_rebuild_by_http_and_for_the_folder(umbel: Umbel, visited: Served, tmp_path: Path) -> None:
    visit(umbel, visited, written(tmp_path, "visits_first", COUNTS))
    raised = written(tmp_path, "visits_raised", RAISED)
    shown = umbel("plan", raised)
    assert shown.exit_code == 0
    lines = [line.split() for line in shown.stdout.splitlines()]
    assert ["dataset", "Visit", "unchanged"] in lines
    assert ["dataset", "Visits", "changed", "version", "1", "→", "2"] in lines
    assert ["pipeline", "Visits", "changed"] in lines
    assert "rebuilt from 20 rows (" in shown.stdout
    assert "of Visit" in shown.stdout
    assert "is deleted after 60 s" in shown.stdout
    assert "at 500,000 rows/s of change logs (assumed: nothing was measured here yet)\n" in shown.stdout
    assert shown.stdout.splitlines()[-1] == "revision 2 would serve until the commit has caught up"
    folder = ("--dir", str(visited.deployment.directory))
    assert umbel("plan", raised, *folder).stdout == shown.stdout
    answers = [json.loads(umbel("plan", raised, "--json", *where).stdout) for where in ((), folder)]
    assert answers[0] == answers[1]
    assert answers[0]["refused"] is None
    assert answers[0]["history"]["rows"] == 20


@pytest.mark.parametrize("is_offline", [False, True])
def test_a_commit_that_would_be_refused(umbel: Umbel, visited: Served, tmp_path: Path, *, is_offline: bool) -> None:
    visit(umbel, visited, written(tmp_path, "visits_kept", COUNTS))
    same = written(tmp_path, "visits_unraised", DAILY)
    where = ("--dir", str(visited.deployment.directory)) if is_offline else ()
    shown = umbel("plan", same, *where)
    assert shown.exit_code == 1
    assert "refused (invalid-value): " in shown.stdout
    assert "dataset 'Visits' has changed, and its version is still 1" in shown.stdout
    said = json.loads(umbel("plan", same, "--json", *where).stdout)["refused"]
    refused = umbel("commit", same).exception
    assert isinstance(refused, InvalidValue)
    assert (said["code"], said["hint"]) == (refused.code, refused.hint)
    guarded = umbel("plan", written(tmp_path, "visits_guarded", RAISED), "--no-backfill", *where)
    assert (guarded.exit_code, "would have to be computed from history" in guarded.stdout) == (1, True)
    nowhere = umbel("plan", same, "--branch", "nowhere", *where)
    assert (nowhere.exit_code, "branch 'nowhere' does not exist" in nowhere.stdout) == (1, True)


def test_a_removal_and_an_increment(umbel: Umbel, visited: Served, tmp_path: Path) -> None:
    visit(umbel, visited, written(tmp_path, "visits_whole", COUNTS))
    left = COUNTS[: COUNTS.index("@index")]
    part = written(tmp_path, "visits_left", left)
    shown = umbel("plan", part).stdout
    lines = [line.split()[:3] for line in shown.splitlines()]
    assert ["dataset", "Visits", "removed"] in lines
    assert "its data is deleted after 60 s" in shown
    assert shown.splitlines()[-1] == "the commit would serve at once"
    partial = umbel("plan", part, "--incremental")
    assert (partial.exit_code, "removed" in partial.stdout) == (0, False)
    assert umbel("plan", part, "--incremental", "--dir", str(visited.deployment.directory)).stdout == partial.stdout


def test_nothing_is_changed(umbel: Umbel, visited: Served, tmp_path: Path) -> None:
    visit(umbel, visited, written(tmp_path, "visits_same", COUNTS))
    place = visited.deployment
    raised = written(tmp_path, "visits_more", RAISED)
    with sqlite3.connect(place.directory / "catalog.db") as connection:
        before = list(connection.iterdump())
        for where in ((), ("--dir", str(place.directory))):
            assert umbel("plan", raised, *where).exit_code == 0
        assert list(connection.iterdump()) == before
    connection.close()


def test_no_deployment_at_all(umbel: Umbel, tmp_path: Path) -> None:
    folder = tmp_path / "nowhere"
    shown = umbel("plan", FLIGHTS, "--dir", str(folder))
    assert shown.exit_code == 0
    assert "there is no deployment in" in shown.stderr
    assert {line.split()[2] for line in shown.stdout.splitlines()[1:-1]} == {"new"}
    assert not folder.exists()
    assert isinstance(umbel("plan", FLIGHTS, "--url", "http://127.0.0.1:9").exception, Unreachable)


def test_events_that_wait_for_a_first_commit_are_history(umbel: Umbel, tmp_path: Path) -> None:
    for served in connected(tmp_path / "first"):
        visit(umbel, served, written(tmp_path, "visits_logged", COUNTS))
        (tmp_path / "second").mkdir()
        (served.deployment.directory / "ingest").rename(tmp_path / "second" / "ingest")
        shown = umbel("plan", str(tmp_path / "visits_logged.py"), "--dir", str(tmp_path / "second"))
        assert "rebuilt from 20 rows" in shown.stdout
        assert "at 100,000 rows/s of sources (assumed: nothing was measured here yet)\n" in shown.stdout
        assert shown.stdout.splitlines()[-1] == "nothing would serve until the commit has caught up"
        assert [each.name for each in (tmp_path / "second").iterdir()] == ["ingest"]
        (tmp_path / "second" / "ingest").rename(served.deployment.directory / "ingest")


def test_a_folder_that_lost_its_catalog_is_no_empty_deployment(umbel: Umbel, tmp_path: Path) -> None:
    (tmp_path / "changes").mkdir()
    assert "the catalog is missing" in str(umbel("plan", FLIGHTS, "--dir", str(tmp_path)).exception)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import nothing_of_this_name", "ModuleNotFoundError: No module named 'nothing_of_this_name'"),
        ("1 +", "SyntaxError"),
        ("raise RuntimeError('no')", "RuntimeError: no"),
    ],
)
def test_a_module_that_cannot_be_imported(umbel: Umbel, tmp_path: Path, text: str, words: str) -> None:
    module = written(tmp_path, f"broken_{abs(hash(text))}", text)
    failed = umbel("plan", module, "--dir", str(tmp_path)).exception
    assert isinstance(failed, InvalidValue)  # which ends the program with 2
    assert f"module '{module}' cannot be imported: {words}" in str(failed)
    assert isinstance(umbel("plan", "no.such", "--dir", str(tmp_path)).exception, UnknownName)


def test_a_definition_that_is_wrong_in_itself_is_a_refusal(umbel: Umbel, tmp_path: Path) -> None:
    wrong = written(tmp_path, "visits_wrong", COUNTS.replace("    visits: int\n", ""))
    shown = umbel("plan", wrong, "--dir", str(tmp_path / "nowhere"))
    assert (shown.exit_code, shown.stdout.startswith("refused (")) == (1, True)
