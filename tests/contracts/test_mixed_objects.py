"""Objects of one deployment's journal in the place of another one's: they are damage, never read."""

from __future__ import annotations

import shutil
from pathlib import Path

import orjson
import pytest

from tests.contracts.bucket_shop import bucket, new_url
from tests.deployed import Deployed
from tests.sales import check_all
from tests.selling import Shop
from umbel.errors import Damaged
from umbel.runtime.batch import drain
from umbel.runtime.recovery.check import check
from umbel.runtime.recovery.rebuild import rebuild_all
from umbel.state.runs.records import JournalRecord
from umbel.state.runs.shard_names import MARK_BYTES

__all__ = ["bucket"]


def sold(folder: Path, waves: int) -> Shop:
    """Return a shop whose state is all in its journal."""
    made = Shop(folder, store_url=new_url(folder))
    for _ in range(waves):
        made.sell()
    return made


def objects_of(shop: Shop, bucket: Path) -> list[Path]:
    """Return the objects of a shard's journal."""
    prefix = shop.settings["store_url"].partition("//state/")[2].partition("?")[0]
    return sorted((bucket / prefix / "shard-000/journal").glob("*.log"))


def test_objects_of_another_journal_are_found_and_not_read(tmp_path: Path, bucket: Path) -> None:
    """They have the same names, places and checksums: only the manifest was known to be of another store."""
    other, shop = sold(tmp_path / "two", 3), sold(tmp_path / "one", 3)
    other.deployed.close()
    shop.write_checkpoint()
    assert list(check(shop.reopened().deployment)) == []
    place = objects_of(shop, bucket)[-1]
    shutil.copyfile(objects_of(other, bucket)[-1], place)
    (found,) = (each for each in check(shop.reopened().deployment) if each.subject == "state, shard 0")
    assert place.name in found.text
    assert "of another deployment" in found.text
    with pytest.raises(Damaged, match="of another deployment"):
        shop.deployed.deployment.check_state(deep=True)
    assert rebuild_all(shop.reopened().deployment) == []
    drain(shop.reopened().deployment)
    check_all(shop.deployed, shop.rows, shop.users)
    shop.deployed.close()


def test_a_server_reads_the_journal_after_all_has_been_rebuilt(tmp_path: Path, bucket: Path) -> None:
    """Its records have another identity than the server knows; that is read again."""
    shop = sold(tmp_path, 3)
    server = Deployed(shop.folder / "umbel", **shop.settings)
    server.deployment.check_state(deep=True)
    assert rebuild_all(shop.reopened().deployment) == []
    drain(shop.reopened().deployment)
    check_all(server, shop.rows, shop.users)
    server.close()
    shop.deployed.close()


def test_objects_of_an_older_version_are_read_anywhere(
    tmp_path: Path, bucket: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack = JournalRecord.pack
    with monkeypatch.context() as older:
        older.setattr(JournalRecord, "pack", lambda record, place=0, mark=b"": pack(record, place))
        shop = sold(tmp_path, 2)
    assert not any(b'"store"' in each.read_bytes() for each in objects_of(shop, bucket))
    shop.reopened()
    shop.sell()
    assert [b'"store"' in each.read_bytes() for each in objects_of(shop, bucket)][-1]
    check_all(shop.reopened(), shop.rows, shop.users)
    shop.deployed.close()


def test_the_mark_of_a_store_is_in_the_records_text() -> None:
    from umbel.state.port import Stamp

    mark = bytes(range(MARK_BYTES))
    data = bytes(JournalRecord(Stamp(1, 2), ("a",)).pack(7, mark))
    payload = data[-(len(data) - 24) :]
    assert JournalRecord.unpack(payload).mark == mark
    text = payload[4 : 4 + int.from_bytes(payload[:4], "little")]
    assert orjson.loads(text)["store"] == mark.hex()
