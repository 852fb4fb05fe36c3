"""`umbel erase`: its refusals, its output and its exit codes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

from tests.deployed import Deployed
from tests.town import BOB, GONE, SECRET, People, person, where
from umbel.catalog.purges import Purges
from umbel.cli import erase as module
from umbel.cli.main import app
from umbel.errors import InvalidValue, UnknownName
from umbel.runtime.batch import drain
from umbel.runtime.erasures import erased_on


@pytest.fixture
def deployed(tmp_path: Path) -> Iterator[Deployed]:
    made = Deployed(tmp_path / "umbel")
    made.commit([People])
    made.log("people", [person(GONE, 0, SECRET), person(BOB, 0)])
    drain(made.deployment)
    yield made
    made.close()


def run(deployed: Deployed, *arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["erase", *arguments, "--dir", str(deployed.deployment.directory)])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.output


def test_rows_are_erased_and_their_bytes_stay(deployed: Deployed) -> None:
    code, text = run(deployed, "People", f"email={GONE}")
    assert (code, text) == (0, "erased 1 key of People, from revision 2 on\n")
    assert where(deployed.deployment.directory, SECRET)


def test_text_is_not_read_as_a_number(deployed: Deployed) -> None:
    deployed.log("people", [person("1.1", 0), person("1.10", 0)])
    drain(deployed.deployment)
    run(deployed, "People", "email=1.10")
    erased = erased_on(deployed.deployment, "main", deployed.deployment.catalog.latest())
    rows = pl.DataFrame({"email": ["1.1", "1.10"], "region": ["eu", "eu"]})
    assert erased.without("People", rows)["email"].to_list() == ["1.1"]


def test_refusals(deployed: Deployed, tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="did you mean 'People'"):
        run(deployed, "Peple", f"email={GONE}")
    with pytest.raises(InvalidValue, match="name the dataset"):
        run(deployed)
    with pytest.raises(InvalidValue, match="no keys"):
        run(deployed, "People")
    with pytest.raises(ValueError, match="region"):
        run(deployed, "People", "region=eu")
    (tmp_path / "keys").write_text('{"email": "a"}\n7\n')
    with pytest.raises(InvalidValue, match="line 2: not an object"):
        run(deployed, "People", "--from", str(tmp_path / "keys"))
    assert deployed.deployment.catalog.latest() == 1


def test_without_a_worker_it_is_requested(deployed: Deployed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("umbel.cli.waiting.WITHOUT_WORKER", 0.0)
    (tmp_path / "keys").write_text(f'{{"email": "{GONE}"}}\n\n{{"email": "{BOB}"}}\n')
    code, text = run(deployed, "People", "--from", str(tmp_path / "keys"), "--now")
    assert code == 4
    assert "no worker runs" in text
    drain(deployed.deployment)
    assert [where(deployed.deployment.directory, each) for each in (SECRET, GONE, BOB)] == [[], [], []]


def test_bytes_that_came_again_are_erased_again(deployed: Deployed, monkeypatch: pytest.MonkeyPatch) -> None:
    """The revision of the erasures was purged already: nothing was done, and the exit code said that the bytes were gone."""
    monkeypatch.setattr("umbel.cli.waiting.WITHOUT_WORKER", 0.0)
    folder = deployed.deployment.directory
    run(deployed, "People", f"email={GONE}", "--now")
    drain(deployed.deployment)
    assert where(folder, SECRET) == []
    deployed.log("people", [person(GONE, 1, SECRET)])
    drain(deployed.deployment)
    assert where(folder, SECRET)
    assert run(deployed, "--now")[0] == 4
    drain(deployed.deployment)
    assert where(folder, SECRET) == []
    assert "0 rows of state, 0 changes, 1 events" in Purges(deployed.deployment.catalog).progress.notes[0]


def test_where_nothing_is_committed_nothing_is_erased(tmp_path: Path) -> None:
    empty = Deployed(tmp_path / "umbel")
    assert run(empty, "--now") == (0, "nothing is committed yet: there are no rows to erase\n")
    empty.close()


def test_progress_is_printed_and_what_is_left(deployed: Deployed, monkeypatch: pytest.MonkeyPatch) -> None:
    (deployed.deployment.directory / "features").mkdir()
    (deployed.deployment.directory / "features" / "left").write_text(f'{{"email": "{GONE}"}}')
    other = Deployed(deployed.deployment.directory)
    worker = threading.Thread(target=lambda: drain(other.deployment))
    monkeypatch.setattr(module, "PAUSE", 0.01)
    monkeypatch.setattr("umbel.catalog.purges.Purges.request", _then(worker))
    code, text = run(deployed, "People", f"email={GONE}", "--now")
    worker.join()
    other.close()
    assert code == 1
    assert "erased 1 rows of state, 1 changes, 1 events and 0 dead letters" in text
    assert "still there, or part of a longer value: features/left" in text
    assert "umbel backup URL --keep 1" in text


def _then(worker: threading.Thread) -> object:
    from umbel.catalog.purges import Purges

    request = Purges.request

    def requested(self: Purges, revision: int) -> None:
        request(self, revision)
        if worker.ident is None:
            worker.start()

    return requested
