"""A check verifies the ids of batches and of messages, beside whoever uses them, and says what their loss means."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.deployed import Deployed
from umbel.connectors.pubsub.seen import BUCKET, SeenIds
from umbel.log.appender import Appender
from umbel.log.records import Entry, digest_of
from umbel.log.segments import directory_of
from umbel.runtime.deployment import Deployment
from umbel.runtime.recovery.check import check, repair_all
from umbel.runtime.recovery.finding import CheckFinding

ENTRIES = [Entry(b"[%d]" % number, 1, 0, digest_of(f"{number}")) for number in range(300)]
MESSAGES = [f"{number:016}" for number in range(300)]
KEYS = {"ids": digest_of("17") or b"", "seen": b"%016d" % 17}


def ids_in(folder: Path, name: str) -> Path:
    """Make the ids of batches or of messages; return their file."""
    if name == "ids":
        log = directory_of(folder, "web", "sales")
        appender = Appender(log)
        appender.append(ENTRIES)
        appender.close()
        return log / "ids" / "data.mdb"
    made = folder / "staged" / "visits-12" / "seen"
    made.mkdir(parents=True)
    seen = SeenIds(made)
    seen.add(MESSAGES, 7, 0.0)
    seen.add(["later"], 8, BUCKET)
    seen.close()
    return made / "data.mdb"


def flipped(data: bytes, key: bytes, by: int) -> bytes:
    """Return a file with a flipped bit of the entries of a key, in whatever page."""
    found, at = bytearray(data), data.find(key)
    assert at > 0
    while at > 0:
        found[at + by] ^= 1
        at = found.find(key, at + 1)
    return bytes(found)


HARMS: dict[str, Callable[[bytes, bytes], bytes]] = {
    "id": lambda data, key: flipped(data, key, len(key) - 1),
    "value": lambda data, key: flipped(data, key, len(key)),
    "cut": lambda data, _: data[: len(data) // 2],
    "no file of ids": lambda data, _: b"garbage!" * (len(data) // 8),
    "pages": lambda data, _: data[:8192] + bytes(each | 0xE0 for each in data[8192:]),
}


def found(deployment: Deployment) -> list[CheckFinding]:
    return [each for each in check(deployment) if "ids of" in each.text]


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("name", KEYS)
def test_damaged_ids_are_found_and_mended(tmp_path: Path, name: str, harm: str) -> None:
    made = Deployed(tmp_path)
    made.commit([])
    file = ids_in(tmp_path, name)
    assert found(made.deployment) == []
    file.write_bytes(HARMS[harm](file.read_bytes(), KEYS[name]))
    (finding,) = found(made.deployment)
    if name == "ids":
        assert (finding.subject, finding.lost) == ("ingest/web/sales", "")
    else:
        assert finding.subject == "staged rows of visits-12"
        assert "delivered again within two hours are doubled" in finding.lost
    ((_, done),) = repair_all(made.deployment, [finding])
    assert done.startswith("deleted")
    assert found(made.deployment) == []
    made.close()


def test_ids_in_use_are_checked(tmp_path: Path) -> None:
    made = Deployed(tmp_path)
    made.commit([])
    ids_in(tmp_path, "ids")
    appender = Appender(directory_of(tmp_path, "web", "sales"))
    assert all(each.is_duplicate for each in appender.append(ENTRIES))
    assert found(made.deployment) == []
    assert not any(each.is_duplicate for each in appender.append([Entry(b"[]", 1, 0, digest_of("new"))]))
    assert [each for each in check(made.deployment, deep=False) if "ids of" in each.text] == []
    appender.close()
    made.close()
