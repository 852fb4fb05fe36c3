"""Redactions of ingest logs that were killed within a record: it is written again before anybody reads the log."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest

from tests.deployed import Deployed
from tests.kills import Killed, kill
from tests.town import BOB, GONE, SECRET, START, Town, damage, filled, person, town, where
from umbel.log.segments import Segment, segments_in
from umbel.processes.locks import alone
from umbel.runtime.batch import drain
from umbel.runtime.recovery.backup import backup
from umbel.runtime.recovery.check import check, repair_all
from umbel.runtime.recovery.repository import Repository
from umbel.runtime.recovery.restore import restore
from umbel.state.failpoints import armed

__all__ = ["filled", "town"]

NEW = "new@example.com"
AT = START + timedelta(days=30)


@pytest.fixture
def torn(town: Town) -> Town:
    """A town with a request that was not processed, and that a killed purge has overwritten in part."""
    town.deployed.log("people", [person(NEW, 9), person(BOB, 9, "robert"), person(GONE, 9, SECRET)])
    town.erase(GONE)
    with armed("redaction noted", 1, kill), pytest.raises(Killed):
        town.process()
    (segment,) = (each for each in segments_in(town.folder / "ingest/web/people") if note_of(each).exists())
    _, places, content = note_of(segment).read_bytes().split(b"\n", 2)
    (*_, (offset, size)) = json.loads(places)
    with segment.path.open("r+b") as file:
        file.seek(offset)
        file.write(content[-size : -size // 2])
    town.reopen()
    return town


def note_of(segment: Segment) -> Path:
    return segment.path.with_suffix(".redaction")


def check_rows(deployed: Deployed) -> None:
    keys = [{"email": each, "region": "eu"} for each in (GONE, NEW, BOB)]
    found = deployed.lookup("People", keys, [AT] * 3)
    assert [row and row["name"] for row in found] == [None, "nobody", "robert"]


def test_a_batch_that_does_not_wait_for_the_purge_reads_all_rows(torn: Town) -> None:
    """The rows of the request were lost: a dead letter of damaged bytes."""
    dead = torn.deployed.deployment.catalog.count_dead()
    with alone(torn.folder, "backup"):
        torn.process()
    assert torn.progress().step == "waits for the end of a backup"
    check_rows(torn.deployed)
    assert torn.deployed.deployment.catalog.count_dead() == dead


def test_a_check_does_not_take_the_rows_for_lost(torn: Town) -> None:
    """Who sent them again, as it told, would have had them twice."""
    place = torn.deployed.deployment
    found = [each for each in check(place) if each.subject != "checkpoint"]
    assert [(each.text, each.lost) for each in found] == [("an erasure of bytes was interrupted", "")]
    assert [done for _, done in repair_all(place, found)] == ["what it was writing is written again"]
    assert damage(torn) == []
    torn.process()
    check_rows(torn.deployed)


def test_a_backup_has_all_rows(torn: Town, tmp_path: Path) -> None:
    repository = Repository.at(str(tmp_path / "backups"))
    backup(torn.deployed.deployment, repository)
    restore(repository, tmp_path / "restored")
    torn.deployed.close()
    torn.folder, torn.deployed = tmp_path / "restored", Deployed(tmp_path / "restored")
    assert damage(torn) == []
    drain(torn.deployed.deployment)
    check_rows(torn.deployed)
    assert where(torn.folder, SECRET) == []
