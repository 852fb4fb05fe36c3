"""Dead letters are bounded, and what is not stored is counted."""

from __future__ import annotations

import random
from pathlib import Path

import orjson
import pytest

from tests.unit.cli.conftest import Umbel, umbel
from tests.unit.serving.flights import DATASETS
from umbel.api.commit import check_commit
from umbel.catalog.catalog import DeadLetter
from umbel.cli.checks import SettingCheck, deployed
from umbel.log.ingest import IngestLog
from umbel.runtime import dead_letters
from umbel.runtime.batch import drain
from umbel.runtime.commit import commit
from umbel.runtime.dead_letters import DeadLetters
from umbel.runtime.deployment import Deployment

__all__ = ["umbel"]


def letter(number: int, size: int = 10) -> DeadLetter:
    return DeadLetter("D", 0, f"{number:04d}", "wrong", b"x" * size, size)


@pytest.mark.parametrize("size", [10, 30 << 10])
def test_the_same_ones_are_retained_in_whatever_order_they_come(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(dead_letters, "BYTES", 1 << 20)
    letters = [letter(number, size) for number in range(300)]
    expected = min(100, (1 << 20) // size)
    for seed in range(5):
        random.Random(seed).shuffle(letters)
        stored_letters = DeadLetters(100)
        for begin in range(0, 300, 7):
            stored_letters.add(letters[begin : begin + 7])
        stored, dropped = stored_letters.retained()
        assert sorted(each.position for each in stored) == [f"{number:04d}" for number in range(expected)]
        assert dropped == {"D": 300 - expected}


@pytest.mark.parametrize(("per_request", "per_batch", "stored"), [(3, 5, 5), (3, 500, 7), (500, 60, 60)])
def test_they_are_bounded_per_request_and_per_batch(
    tmp_path: Path, umbel: Umbel, monkeypatch: pytest.MonkeyPatch, per_request: int, per_batch: int, stored: int
) -> None:
    monkeypatch.setenv("UMBEL_DEAD_LETTERS_PER_REQUEST", str(per_request))
    monkeypatch.setenv("UMBEL_DEAD_LETTERS_PER_BATCH", str(per_batch))
    place = Deployment.at(tmp_path, shards=1)
    commit(place, check_commit(DATASETS, []))
    log = IngestLog(place.directory, "events", "departures")
    bad = [{"origin": "JFK", "delay": "no", "at": "2013-12-01T15:00:00Z"}] * 50
    for count in (50, 50, 1):
        log.append_blocking(orjson.dumps(bad[:count]), count)
    log.close()
    drain(place)
    assert place.catalog.counts() == {
        ("Departure", "dead"): 101,
        ("Departure", "dead_reason:wrong type"): 101,
        ("Departure", "dead_dropped"): 101 - stored,
    }
    assert place.catalog.count_dead() == {"Departure": stored}
    shown = umbel("dead-letters", "Departure", "--dir", str(tmp_path)).output
    assert f"{stored} in all\n{101 - stored} more were counted, and not stored" in shown
    findings = {each.subject: each.found for each in deployed(SettingCheck(tmp_path, "127.0.0.1", 1))}
    assert findings["dead letters"] == f"Departure has refused {stored}, and {101 - stored} more that were not stored"


def test_a_terminal_obeys_no_record(tmp_path: Path, umbel: Umbel) -> None:
    """What a sender wrote was printed as it is: an escape sequence cleared the operator's screen."""
    place = Deployment.at(tmp_path, shards=1)
    commit(place, check_commit(DATASETS, []))
    log = IngestLog(place.directory, "events", "departures")
    log.append_blocking(b'{"origin": "\x1b[2J\r", "delay"', 1)
    log.close()
    drain(place)
    shown = umbel("dead-letters", "Departure", "--dir", str(tmp_path)).output
    assert r"\x1b[2J\x0d" in shown
    assert "\x1b" not in shown
