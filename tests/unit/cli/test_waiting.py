"""Waiting for a worker: progress on stderr, and the exit code of each way in which it can end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.unit.cli.conftest import FLIGHTS, Umbel, connected, working
from tests.unit.serving import flights
from tests.unit.serving.conftest import DEPARTURES
from umbel.cli import main, waiting
from umbel.client.response import Response


def test_without_a_worker_waiting_ends_and_says_so(
    umbel: Umbel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "WITHOUT_WORKER", 0.2)
    for _ in connected(tmp_path / "umbel"):
        failed = umbel("commit", FLIGHTS, "--wait").exception
        assert isinstance(failed, waiting.WaitError)
        assert (failed.exit_code, "no worker is alive: never started" in str(failed)) == (waiting.NO_WORKER, True)
        late = umbel("commit", FLIGHTS, "--wait", "--timeout", "0").exception
        assert isinstance(late, waiting.WaitError)
        assert late.exit_code == waiting.TOO_LATE


def test_a_backfill_is_shown_in_lines_without_a_terminal(
    umbel: Umbel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "LINE_EVERY", 0.0)
    for served in connected(tmp_path / "umbel"):
        served.log("departures", DEPARTURES)
        served.process()
        raised = tmp_path / "raised_flights.py"
        raised.write_text(
            Path(flights.__file__)
            .read_text()
            .replace("@dataset\nclass Departure", "@dataset(version=2)\nclass Departure")
        )
        with working(served):
            shown = umbel("commit", str(raised), "--wait")
        assert shown.exit_code == 0, shown.exception
        assert "waiting until revision 2 serves: " in shown.stderr
        assert " of 3 rows" in shown.stderr
        assert "serves after" in shown.stdout


def test_a_backfill_that_fails_is_reported_and_abandoned_in_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    status = {"failures": 0, "error": "", "rows_done": 0, "rows_total": 0, "rows_per_second": None, "share": 0.0}
    found = {"revision": 1, "serving": 1, "backfill": "0 %", "rows": None, "worker": "running", "worker_reason": ""}
    answers = [{**found, "status": {**status, "failures": n, "error": "disk full"}} for n in (0, 1, 1, 2, 0, 3, 5)]

    class Answering:
        def send(self, *_: Any, **__: Any) -> Any:
            return Response.of(200, answers.pop(0))

    with pytest.raises(waiting.WaitError, match="has failed 5 times in a row, and is tried again: disk full") as caught:
        waiting.wait_for(Answering(), lambda _: False, "it serves", 60)  # type: ignore[arg-type]
    assert caught.value.exit_code == waiting.FAILING
    assert capsys.readouterr().err.count("the backfill failed and is tried again: disk full") == 4


def test_rate_and_time_left_are_shown() -> None:
    status = {"failures": 0, "error": "", "rows_done": 250_000, "rows_total": 1_000_000, "rows_per_second": 5e4}
    found = {"backfill": "25 %", "rows": None, "status": {**status, "share": 0.25}}
    text = waiting._Waiting("it serves", 60, Console(), Console().status(""))._described(found, 3.0)
    assert text == "25 %, 250,000 of 1,000,000 rows, 50,000 rows/s, about 15 s left"


def test_the_program_ends_with_the_code_of_the_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(**_: Any) -> None:
        raise waiting.WaitError("no worker is alive", hint="umbel work", exit_code=waiting.NO_WORKER)

    monkeypatch.setattr(main, "app", refuse)
    monkeypatch.setattr(main, "private_by_default", lambda: None)
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert ended.value.code == 4
    assert "no worker is alive" in capsys.readouterr().err
