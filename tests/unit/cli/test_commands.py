"""Commands that ask a server, or a folder."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.unit.cli.conftest import FLIGHTS, Umbel, connected, working
from tests.unit.serving.conftest import NOON, Served
from umbel.cli.main import app
from umbel.errors import UmbelError

LATER = "2013-12-01T16:00:00Z"
COMMANDS = [command.name for command in app.registered_commands if command.name]


def test_every_command_teaches(umbel: Umbel) -> None:
    assert set(COMMANDS) == {
        *(
            "audit",
            "commit",
            "backup",
            "check",
            "completion",
            "corrections",
            "erase",
            "rebuild",
            "restore",
            "dead-letters",
            "expectations",
            "doctor",
            "explain",
            "feature-log",
            "init",
            "log",
            "lookup",
            "plan",
            "query",
            "query-offline",
            "run",
            "serve",
            "status",
            "trace",
            "up",
            "version",
            "warm-up",
            "work",
        )
    }
    for command in COMMANDS:
        shown = umbel(command, "--help")
        assert shown.exit_code == 0
        assert f"umbel {command}" in shown.output.partition("Example")[2], command


def test_the_help_begins_with_what_to_do(umbel: Umbel) -> None:
    assert "umbel run my_features" in umbel("--help").output
    assert umbel().exit_code == 2
    assert umbel("runn").exit_code == 2


def test_versions_are_printed(umbel: Umbel) -> None:
    lines = umbel("version").output.splitlines()
    assert lines[0].startswith("umbel ")
    assert any(line.startswith("polars 2") for line in lines)


def test_events_are_sent_again_to_a_server_that_is_overloaded(
    umbel: Umbel, server: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from umbel.errors import Overloaded
    from umbel.serving.backlog import Backlog

    refusals = [Overloaded("full"), Overloaded("full")]

    def check(*_: object) -> None:
        if refusals:
            raise refusals.pop()

    monkeypatch.setattr(Backlog, "check", check)
    monkeypatch.setattr("umbel.client.connection.time", SimpleNamespace(sleep=lambda _: None))
    (tmp_path / "rows.json").write_text('{"origin": "EWR", "delay": 1, "at": "2013-12-01T12:00:00Z"}\n')
    assert umbel("log", "events", "departures", str(tmp_path / "rows.json")).stdout.split() == ["1", "rows", "accepted"]
    assert refusals == []


def test_the_feature_log(umbel: Umbel, server: Served) -> None:
    query = {"inputs": ["Origin.origin"], "outputs": ["Origin.departures"], "data": {"Origin.origin": ["JFK"]}}
    server.post("/api/v1/query", query | {"as_of": LATER, "log": True, "workflow": "told"})
    (line,) = umbel("feature-log", "--workflow", "told", "--since", NOON).stdout.splitlines()
    assert json.loads(line)["Origin.departures"] == 2
    assert umbel("feature-log", "--until", NOON).stdout == ""


def test_corrections(umbel: Umbel, server: Served) -> None:
    query = {"inputs": ["Origin.origin"], "outputs": ["Origin"], "data": {"Origin.origin": ["SFO"]}}
    server.post("/api/v1/query", query | {"as_of": LATER, "log": True, "workflow": "late"})
    options = ("-i", "Origin.origin", "--workflow", "late")
    assert ["Origin.departures", "1", "0", "0.00%", "–", "–"] in [
        line.split() for line in umbel("corrections", *options).stdout.splitlines()
    ]
    server.log("departures", [{"origin": "SFO", "delay": 20, "ratio": 0.5, "at": "2013-12-01T15:30:00Z"}])
    server.process()
    shown = [line.split() for line in umbel("corrections", *options).stdout.splitlines()]
    assert ["Origin.average", "1", "1", "100.00%", "20", "20"] in shown
    assert ["Origin.is_late", "1", "1", "100.00%", "–", "–"] in shown
    lines = umbel("corrections", "Origin.departures", *options, "--answers").stdout.splitlines()
    assert [json.loads(line) for line in lines] == [
        {
            "timestamp": "2013-12-01T16:00:00.000000Z",
            "workflow": "late",
            "Origin.origin": "SFO",
            "feature": "Origin.departures",
            "served": 0,
            "corrected": 1,
            "change": 1.0,
        }
    ]
    assert umbel("corrections", "-i", "Origin.origin", "--workflow", "never").stdout == "none\n"
    assert "-i User.user" in umbel("corrections").output


def test_a_query(umbel: Umbel, server: Served) -> None:
    shown = umbel("query", "Origin.departures", "Origin.is_late", "-i", "Origin.origin=JFK", "--as-of", LATER).output
    assert [line.split() for line in shown.splitlines()] == [["Origin.departures", "2"], ["Origin.is_late", "True"]]


def test_a_query_that_is_refused(umbel: Umbel, server: Served) -> None:
    failed = umbel("query", "Origin.departure", "-i", "Origin.origin=JFK")
    assert isinstance(failed.exception, UmbelError)
    assert "did you mean 'departures'" in str(failed.exception)
    assert "NAME=VALUE" in umbel("query", "Origin", "-i", "JFK").output


def test_a_lookup(umbel: Umbel, server: Served) -> None:
    shown = umbel("lookup", "DelayOfOrigin", "origin=JFK", "--as-of", LATER)
    assert ["average", "20.0"] in [line.split() for line in shown.output.splitlines()]
    failed = umbel("lookup", "DelayOfOrigin", "origin=nowhere")
    assert (failed.exit_code, failed.output) == (1, "not found\n")


def test_text_is_not_read_as_a_number(umbel: Umbel, server: Served) -> None:
    tails = ["1.10", "1.1", "1e5", "100000.0", "true", "[1]", "007"]
    server.log("planes", [{"tailnum": each, "seats": seats, "at": NOON} for seats, each in enumerate(tails)])
    server.process()
    for seats, each in enumerate(tails):
        assert f" seats    {seats} " in umbel("lookup", "Plane", f"tailnum={each}").output
        assert umbel("query", "Origin.origin", "-i", f"Origin.origin={each}").output.split() == ["Origin.origin", each]
    assert " seats    1 " in umbel("lookup", "Plane", 'tailnum="1.1"').output


def test_a_name_may_occur_once(umbel: Umbel, server: Served, tmp_path: Path) -> None:
    """The last value was taken, without a word: of two keys one was erased."""
    for command in (["lookup", "Plane", "tailnum=1"], ["query", "Origin", "-i", "Origin.origin=1"]):
        failed = umbel(*command, *command[2:])
        assert failed.exit_code == 2
        assert "is given twice" in failed.output
    failed = umbel("erase", "Plane", "tailnum=1", "tailnum=2", "--dir", str(server.deployment.directory))
    assert "'tailnum' is given twice" in failed.output


def test_a_file_that_is_broken_further_on_says_how_much_of_it_was_accepted(
    umbel: Umbel, server: Served, tmp_path: Path
) -> None:
    """Who mended it, and sent it again, had these rows twice."""
    row = json.dumps({"origin": "LGA", "delay": 1, "at": NOON})
    (tmp_path / "rows").write_text(f"{row}\n" * 5 + "{")
    failed = umbel("log", "events", "departures", str(tmp_path / "rows"), "--batch-size", "2")
    assert "line 6: broken JSON" in failed.output
    assert "the first 4 rows were accepted" in failed.output
    assert "accepted" not in umbel("log", "events", "departures", str(tmp_path / "rows")).output


def test_a_misspelt_key_is_named(umbel: Umbel, server: Served) -> None:
    report = str(umbel("lookup", "Plane", "tailnm=N1").exception)
    assert "keys: missing columns ['tailnum']" in report
    assert "is 'tailnm' meant to be 'tailnum'?" in report
    report = str(umbel("query", "Origin", "-i", "Origin.orign=JFK").exception)
    assert "did you mean 'origin'" in report


def test_rows_are_posted_from_files_and_pipes(umbel: Umbel, server: Served, tmp_path: Path) -> None:
    rows = [{"tailnum": f"N{n}", "seats": n, "at": NOON} for n in range(25)]
    file = tmp_path / "planes.ndjson"
    file.write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    assert umbel("log", "events", "planes", str(file), "--batch-size", "10").stdout == "25 rows accepted\n"
    file.write_text(json.dumps(rows) + "\n\n[]\n" + json.dumps(rows[0]))
    assert umbel("log", "events", "planes", str(file), "--batch-size", "10").stdout == "26 rows accepted\n"
    assert umbel("log", "events", "planes", "-", input=json.dumps(rows[0])).stdout == "1 rows accepted\n"
    assert "line 1: broken JSON" in umbel("log", "events", "planes", "-", input="{").output
    assert "there is no file" in umbel("log", "events", "planes", "nothing.ndjson").output
    server.process()
    assert "7" in umbel("lookup", "Plane", "tailnum=N7").output


def test_commits(umbel: Umbel, server: Served) -> None:
    shown = umbel("commit", FLIGHTS, "--preview").output
    assert shown.splitlines()[-1] == "nothing committed (preview)"
    assert "unchanged  DelayOfOrigin, Departure, Greeting, Origin, Plane" in shown
    assert "revision 1 is in force" in umbel("commit", FLIGHTS, "--incremental", "-m", "again").output


def test_dead_letters(umbel: Umbel, server: Served) -> None:
    place = ["--dir", str(server.deployment.directory)]
    shown = umbel("dead-letters", "Departure", *place).output
    assert "soon" in shown
    assert "[red]x" in shown
    assert shown.splitlines()[-1].endswith("in all")
    assert umbel("dead-letters", "Plane", *place).output == "none\n"
    assert "did you mean 'Plane'" in str(umbel("dead-letters", "Plan", *place).exception)


def test_plans_are_explained(umbel: Umbel) -> None:
    assert "DelayOfOrigin = aggregate(#0)" in umbel("explain", FLIGHTS).output
    assert umbel("explain", FLIGHTS, "--mermaid").output.startswith("flowchart LR\n")


@pytest.mark.parametrize(
    ("content", "target", "words"),
    [
        ("", "", "defines no dataset"),
        ("import nothing_of_this_name", "", "nothing_of_this_name"),
        ("from umbel import App\napp = App()", ":ap", "did you mean 'app'"),
    ],
)
def test_modules_that_will_not_do(umbel: Umbel, tmp_path: Path, content: str, target: str, words: str) -> None:
    file = tmp_path / f"module_{abs(hash(content))}.py"
    file.write_text(content)
    assert words in str(umbel("explain", f"{file}{target}").exception)


def test_modules_that_are_not_there(umbel: Umbel) -> None:
    assert "there is no module 'no.such'" in str(umbel("explain", "no.such").exception)
    assert "there is no file" in str(umbel("explain", "nowhere/features.py").exception)


@pytest.mark.parametrize(
    ("target", "words"),
    [("./", "'./' is a folder"), ("", "'' is not the name of a module"), ("nowhere/features", "is not the name")],
)
def test_targets_that_are_no_names_of_modules(umbel: Umbel, target: str, words: str) -> None:
    refused = str(umbel("explain", target).exception)
    assert words in refused
    assert "name a Python file" in refused


def test_log_waits_until_queries_see_the_rows(umbel: Umbel, tmp_path: Path) -> None:
    file = tmp_path / "planes.ndjson"
    file.write_text("\n".join(json.dumps({"tailnum": f"W{n}", "seats": n, "at": NOON}) for n in range(25)))
    for served in connected(tmp_path / "umbel"):
        accepted = umbel("log", "events", "planes", str(file), "--wait", "--timeout", "0")
        assert accepted.stdout == "25 rows accepted\n"
        assert "is a worker running?" in str(accepted.exception)
        with working(served):
            done = umbel("log", "events", "planes", str(file), "--batch-size", "7", "--wait")
            assert done.exit_code == 0, done.exception
            assert done.stdout.splitlines()[1].startswith("rows are processed after ")
            assert "24" in umbel("lookup", "Plane", "tailnum=W24").output
        assert (
            "webhook and endpoint go together" in served.http.get("/api/v1/progress?webhook=events").json()["message"]
        )
        assert served.http.get("/api/v1/progress?webhook=events&endpoint=nothing").status_code == 404


def test_commit_waits_until_the_revision_serves(umbel: Umbel, tmp_path: Path) -> None:
    for served in connected(tmp_path / "umbel"):
        assert "is a worker running?" in str(umbel("commit", FLIGHTS, "--wait", "--timeout", "0").exception)
        with working(served):
            done = umbel("commit", FLIGHTS, "--wait")
            assert (done.exit_code, "revision 1 serves after" in done.output) == (0, True)
            found = served.http.get("/api/v1/progress").json()
            assert (found["serving"], found["backfill"], found["rows"]) == (1, None, None)
