"""Files of JSON whose checksum is right, and whose content is not what umbel writes, are damage with a remedy."""

from __future__ import annotations

import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.deployed import Deployed
from tests.sales import at, sales
from tests.selling import Shop
from umbel.errors import Damaged
from umbel.processes.status import FILE as STATUS
from umbel.processes.status import read_status
from umbel.runtime.batch import drain
from umbel.runtime.recovery.check import check
from umbel.runtime.sink_lags import FILE as SINK_LAGS
from umbel.runtime.sink_lags import sink_lags
from umbel.runtime.source_lags import FILE as SOURCE_LAGS
from umbel.runtime.source_lags import source_lags

HOSTILE = {
    "nested lists": b"[" * 100_000 + b"]" * 100_000,
    "nested objects": b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
    "list": b"[]",
    "number": b"5",
    "null": b"null",
    "object": b"{}",
    "digits": b"9" * 5_000,
    "no text": b"\xff\xfe\x00",
}
FILES: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "store/store.json": ("state", bytes),
    "store/shard-000/manifest/000000000002.json": (
        "state, shard 0",
        lambda data: b"%08x\n%b" % (zlib.crc32(data), data),
    ),
    "plans/000000000004.json": ("batch plans", lambda data: b'{"crc":"%08x","plan":%b}' % (zlib.crc32(data), data)),
    "ingest/web/sales/oldest": ("ingest/web/sales", lambda data: b"%08x %b" % (zlib.crc32(data), data)),
    "checkpoint/live/metadata": ("checkpoint", bytes),
}
"""The files, the subject of the finding, and the form of a content that passes its checksum."""
STATUSES = {SOURCE_LAGS: source_lags, SINK_LAGS: sink_lags, STATUS: read_status}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    shop = Shop(tmp_path_factory.mktemp("whole"))
    for _ in range(3):
        shop.sell()
        shop.flush()
    shop.sell()
    shop.write_checkpoint()
    shop.deployed.log("sales", sales(400, 100))
    shop.deployed.close()
    return shop.folder / "umbel"


def outcome(folder: Path, use: Callable[[Deployed], Any]) -> Any:
    """Return what a use of a deployment returns, the remedy where it is refused as damaged."""
    deployed = Deployed(folder)
    try:
        return use(deployed)
    except Damaged as error:
        return error.hint
    finally:
        deployed.deployment.catalog.close()


def totals(deployed: Deployed) -> None:
    deployed.lookup("Totals", [{"user": 1}], [at(10**6)])


def process(deployed: Deployed) -> None:
    drain(deployed.deployment)


@pytest.mark.parametrize("content", HOSTILE)
@pytest.mark.parametrize("name", FILES)
def test_hostile_json_is_found_and_refused_as_damage(whole: Path, name: str, content: str, tmp_path: Path) -> None:
    folder, (subject, packed) = tmp_path / "umbel", FILES[name]
    shutil.copytree(whole, folder)
    assert (folder / name).exists()
    (folder / name).write_bytes(packed(HOSTILE[content]))
    assert subject in outcome(folder, lambda deployed: {each.subject for each in check(deployed.deployment)})
    for use in (totals, process):
        assert "umbel check" in str(outcome(folder, use) or "umbel check")


@pytest.mark.parametrize("name", STATUSES)
def test_hostile_reports_of_the_worker_are_as_if_there_were_none(name: str, tmp_path: Path) -> None:
    for content in HOSTILE.values():
        (tmp_path / name).write_bytes(content)
        assert not STATUSES[name](tmp_path)
