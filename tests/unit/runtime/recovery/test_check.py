"""What a check finds, in the words of the user, and what a repair makes of it."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.deployed import Deployed
from tests.sales import check_all
from tests.selling import Shop
from tests.unit.cli.conftest import Umbel, umbel
from umbel.errors import Damaged, InvalidValue, NotSupported, Transient
from umbel.log.segments import PREAMBLE_BYTES
from umbel.processes.locks import alone
from umbel.runtime.batch import drain
from umbel.runtime.recovery.check import check, repair_all
from umbel.runtime.recovery.finding import CheckFinding
from umbel.runtime.recovery.rebuild import rebuild, rebuild_all
from umbel.state.runs.files import LocalFiles
from umbel.state.runs.journal import HEADER_BYTES

__all__ = ["umbel"]


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(tmp_path)
    for _ in range(2):
        made.sell()
        made.flush()
    made.sell()
    made.write_checkpoint()
    yield made
    made.deployed.close()


def found(shop: Shop) -> list[CheckFinding]:
    return list(check(shop.reopened().deployment))


def files(shop: Shop, pattern: str) -> list[Path]:
    return sorted((shop.folder / "umbel").glob(pattern))


def flipped(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 4
    path.write_bytes(data)


def cut(path: Path, by: int) -> None:
    path.write_bytes(path.read_bytes()[:-by])


def test_nothing_is_found_where_nothing_is_wrong(shop: Shop) -> None:
    assert found(shop) == []


def sums(folder: Path) -> dict[Path, str]:
    return {
        path: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file() and path.suffix not in (".db-wal", ".db-shm", ".lock", ".db") and path.name != "lock"
    }


HARMS: dict[str, tuple[Callable[[Shop], object], str, str]] = {
    "checkpoint": (lambda shop: shutil.rmtree(shop.folder / "umbel/checkpoint"), "checkpoint", ""),
    "manifest": (
        lambda shop: flipped(files(shop, "store/shard-000/manifest/*")[-1], 20),
        "state, shard 0",
        "",
    ),
    "torn request": (
        lambda shop: files(shop, "ingest/web/sales/*.seg")[-1].open("ab").write(b"\x01\x02\x03"),
        "ingest/web/sales",
        "",
    ),
    "flipped request": (
        lambda shop: flipped(files(shop, "ingest/web/sales/*.seg")[-1], PREAMBLE_BYTES + 60),
        "ingest/web/sales",
        "100 rows received after the beginning and before 20",
    ),
    "log file": (
        lambda shop: files(shop, "ingest/web/sales/*.seg")[-1].unlink(),
        "ingest/web/sales",
        "300 rows that have been processed",
    ),
    "run": (
        lambda shop: run_of(shop, "Totals").unlink(),
        "state, shard",
        "of 2 of the state of Totals",
    ),
    "run's byte": (
        lambda shop: flipped(run_of(shop, "Totals"), 3000),
        "state, shard",
        "of 2 of the state of Totals",
    ),
    "journal's end": (
        lambda shop: cut(files(shop, "store/shard-000/journal/*")[-1], 10),
        "state, shard 0",
        "part 1 of 2 of the state of Last, Priced, Totals, Users",
    ),
    "journal's byte": (
        lambda shop: flipped(files(shop, "store/shard-000/journal/*")[-1], -40),
        "state, shard 0",
        "part 1 of 2 of the state of Last, Priced, Totals, Users",
    ),
    "journal": (
        lambda shop: files(shop, "store/shard-000/journal/*")[-1].unlink(),
        "state, shard 0",
        "part 1 of 2 of the state of Last, Priced, Totals, Users",
    ),
    "journal of another shard": (
        lambda shop: shutil.copyfile(
            files(shop, "store/shard-001/journal/*")[-1], files(shop, "store/shard-000/journal/*")[-1]
        ),
        "state, shard 0",
        "part 1 of 2 of the state of Last, Priced, Totals, Users",
    ),
    "plan": (lambda shop: files(shop, "plans/*")[-1].unlink(), "batch plans", "the positions up to which sources were"),
    "tail": (lambda shop: files(shop, "changes/Last-*/_tail/*")[-1].unlink(), "change log of Last", "history of Last"),
    "tail's byte": (
        lambda shop: flipped(files(shop, "changes/Sales-*/_tail/*")[0], 300),
        "change log of Sales",
        "history of Sales",
    ),
    "catalog": (lambda shop: flipped_page(shop), "catalog", "definitions"),
}


def run_of(shop: Shop, dataset: str) -> Path:
    from umbel.state.runs.manifest import read_latest

    place = shop.deployed.deployment
    state_id = place.graph(place.catalog.latest()).outputs[dataset].state_id
    for shard in place.store._shards:  # type: ignore[attr-defined]
        for table, entries in read_latest(shard.files).runs.items():
            if table.startswith(state_id) and max(part.size for part in entries[0].parts) > 3500:
                return Path(shard.files.root / "runs" / entries[0].parts[0].name)
    raise AssertionError("there is no such run")


def flipped_page(shop: Shop) -> None:
    shop.deployed.deployment.catalog.close()
    path = shop.folder / "umbel/catalog.db"
    with contextlib.closing(
        sqlite3.connect(path)
    ) as connection:  # what is in the log beside it would replace the pages
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert path.stat().st_size > 4096 * 3
    for at in range(4096 * 3, path.stat().st_size, 4096):
        flipped(path, at)


@pytest.mark.parametrize("harm", HARMS)
def test_it_is_found_and_reported(shop: Shop, umbel: Umbel, harm: str) -> None:
    do, subject, lost = HARMS[harm]
    shop.deployed.close()
    do(shop)
    before = sums(shop.folder / "umbel" / "store"), sums(shop.folder / "umbel" / "ingest")
    shown = umbel("check", "--dir", str(shop.folder / "umbel"))
    assert shown.exit_code == 1, shown.output
    lines = shown.output.splitlines()
    (at,) = [number for number, line in enumerate(lines) if line.startswith(subject)][:1]
    assert lines[at + 1].startswith(f"  lost: {lost or 'nothing'}") or f" {lost}" in lines[at + 1], shown.output
    assert (sums(shop.folder / "umbel" / "store"), sums(shop.folder / "umbel" / "ingest")) == before


def test_only_rows_that_were_not_processed_are_to_be_sent_again(shop: Shop) -> None:
    """The others are in the state: sent again they would count twice."""
    (segment,) = files(shop, "ingest/web/sales/*.seg")
    end = segment.stat().st_size
    shop.deployed.log("sales", shop.rows[:7])
    flipped(segment, PREAMBLE_BYTES + 60)
    flipped(segment, end + 60)
    processed, new = (each for each in found(shop) if each.subject == "ingest/web/sales")
    assert (processed.lost[:9], processed.remedy) == ("100 rows ", "restore a backup: umbel restore")
    assert (new.lost[:7], new.remedy) == ("7 rows ", "send the rows again; or restore a backup: umbel restore")


def test_a_segment_that_was_cut_before_another_began_is_found(shop: Shop) -> None:
    """A server that finds its last one too short begins the next where the rows were to go on."""
    (segment,) = files(shop, "ingest/web/sales/*.seg")
    cut(segment, segment.stat().st_size // 2)
    shop.reopened().log("sales", shop.rows[:7])
    (one,) = (each for each in found(shop) if each.subject == "ingest/web/sales")
    assert (one.text, one.lost[:9]) == (
        f"{segment.name} is cut: it ends with row 100, and the next begins with 300",
        "200 rows ",
    )
    assert one.remedy == "restore a backup: umbel restore"


def test_a_server_goes_on_after_all_has_been_rebuilt(shop: Shop) -> None:
    """It had seen longer journals, and took the new ones for damaged ones until they were as long, or it was started anew."""
    for _ in range(3):
        shop.sell()
        shop.flush()
    server = Deployed(shop.folder / "umbel", **shop.settings).deployment
    assert server.store.state_ids(0)
    assert rebuild_all(shop.deployed.deployment) == []
    drain(shop.reopened().deployment)
    ends = [each.store.end(0) for each in (shop.deployed.deployment, server)]
    assert ends[0] < ends[1] or ends[0].version < ends[1].version - 1
    assert server.store.state_ids(0) == shop.deployed.deployment.store.state_ids(0)


def test_an_older_copy_of_a_journal_is_found_and_the_worker_refuses_it(shop: Shop, umbel: Umbel) -> None:
    path = files(shop, "store/shard-000/journal/*")[-1]
    older = path.read_bytes()
    shop.sell()
    shop.deployed.close()
    assert path.stat().st_size > len(older)
    path.write_bytes(older)
    shown = umbel("check", "--quick", "--dir", str(shop.folder / "umbel"))
    assert shown.exit_code == 1
    assert f"its journal ends at byte {len(older)}" in shown.output
    with pytest.raises(Damaged, match="finished batches wrote up to byte"):
        shop.reopened().deployment.check_state(deep=True)
    with pytest.raises(Damaged, match="finished batches wrote up to byte"):
        shop.sell()
    assert rebuild_all(shop.deployed.deployment) == []
    shop.reopened()
    shop.process()
    check_all(shop.deployed, shop.rows, shop.users)


def test_a_journal_of_which_nothing_is_readable_has_lost_all_operators(shop: Shop) -> None:
    """Also without runs and other records: what is unreadable may have been the only record of any operator."""
    shop.deployed.close()
    for name in ("runs", "manifest"):
        shutil.rmtree(shop.folder / "umbel/store/shard-000" / name)
    path = files(shop, "store/shard-000/journal/*")[0]
    flipped(path, HEADER_BYTES + 2)
    assert [each.lost for each in found(shop)] == ["part 1 of 2 of the state of Last, Priced, Totals, Users"]


@pytest.mark.parametrize("harm", ["checkpoint", "manifest", "torn request", "log file"])
def test_what_can_be_mended_is_and_all_goes_on(shop: Shop, umbel: Umbel, harm: str) -> None:
    shop.deployed.close()
    HARMS[harm][0](shop)
    mended = umbel("check", "--dir", str(shop.folder / "umbel"), "--repair")
    assert (mended.exit_code, "mended:" in mended.output) == (0, True), mended.output
    shown = umbel("check", "--dir", str(shop.folder / "umbel"))
    assert shown.exit_code == 0 or "ingest/web/sales: 00000000000000000001.seg is missing" in shown.output
    shop.reopened()
    check_all(shop.deployed, shop.rows, shop.users)
    shop.sell()
    check_all(shop.deployed, shop.rows, shop.users)
    assert shop.deployed.deployment.catalog.events(5)[0].process == "check"


@pytest.mark.parametrize("harm", ["journal's end", "plan"])
def test_what_cannot_be_mended_stays_as_it_is(shop: Shop, umbel: Umbel, harm: str) -> None:
    shop.deployed.close()
    HARMS[harm][0](shop)
    before = sums(shop.folder / "umbel")
    shown = umbel("check", "--dir", str(shop.folder / "umbel"), "--repair")
    assert (shown.exit_code, "not mended:" in shown.output, "umbel rebuild --all" in shown.output) == (1, True, True)
    assert sums(shop.folder / "umbel") == before


def test_all_sources_are_read_again(shop: Shop) -> None:
    shop.deployed.close()
    HARMS["journal's end"][0](shop)
    shop.reopened()
    assert rebuild_all(shop.deployed.deployment) == []
    shop.reopened()
    shop.process()
    check_all(shop.deployed, shop.rows, shop.users)


def test_all_sources_are_read_again_with_state_in_another_folder(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/elsewhere"
    shop = Shop(tmp_path, store_url=url)
    for _ in range(2):
        shop.sell()
        shop.flush()
    shop.deployed.close()
    other = Shop(tmp_path / "other", store_url=f"file://{tmp_path}/others")
    other.sell()
    other.deployed.close()
    before = sums(tmp_path / "others")
    foreign = Deployed(tmp_path / "umbel", store_url=f"file://{tmp_path}/others")
    with pytest.raises(InvalidValue, match="not the one that the catalog tells of"):
        rebuild_all(foreign.deployment)
    assert sums(tmp_path / "others") == before
    (tmp_path / "elsewhere/store.json").write_bytes(b"{")
    assert rebuild_all(Deployed(shop.folder / "umbel", **shop.settings).deployment) == []
    assert not any(path.suffix in (".log", ".run", ".json") for path in (tmp_path / "elsewhere").rglob("*"))
    shop.reopened()
    shop.process()
    check_all(shop.deployed, shop.rows, shop.users)


def test_a_store_that_is_not_there_is_reported(shop: Shop) -> None:
    shop.deployed.close()
    forgotten = Deployed(shop.folder / "umbel", store_url=f"file://{shop.folder}/elsewhere")
    (warning,) = rebuild_all(forgotten.deployment)
    assert "do this again with its --store" in warning


@pytest.mark.parametrize("at", range(6))
def test_reading_all_again_may_be_interrupted(shop: Shop, at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever it was: the worker refuses to start, or all is as it was; and it can be repeated."""
    deletes, left = LocalFiles.delete, [at]

    def delete(files: LocalFiles, name: str) -> None:
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        deletes(files, name)

    with monkeypatch.context() as patch, contextlib.suppress(KeyboardInterrupt):
        patch.setattr(LocalFiles, "delete", delete)
        rebuild_all(shop.reopened().deployment)
    try:
        shop.reopened().deployment.check_state(deep=True)
        check_all(shop.deployed, shop.rows, shop.users)
    except Damaged:
        assert at > 1
    else:
        assert at < 2  # up to one of two manifests
    assert rebuild_all(Deployed(shop.folder / "umbel", **shop.settings).deployment) == []
    shop.reopened()
    shop.process()
    check_all(shop.deployed, shop.rows, shop.users)


def test_a_source_cannot_be_rebuilt_from_its_own_log(shop: Shop) -> None:
    with pytest.raises(NotSupported, match=r"Sales, Users cannot be rebuilt alone|Users cannot be rebuilt alone"):
        rebuild(shop.deployed.deployment, ["Users"])


def test_a_file_of_commits_is_no_file_of_offsets(shop: Shop) -> None:
    """Spark would stop at it: it has the offsets of no source."""
    commit, *_ = files(shop, "checkpoint/live/commits/*")
    for path in files(shop, "checkpoint/live/offsets/*"):
        before = path.read_bytes()
        path.write_bytes(commit.read_bytes())
        assert [each.subject for each in found(shop)] == ["checkpoint"], path
        path.write_bytes(before)
    assert found(shop) == []


def test_another_identity_of_the_store_is_found_and_not_mended(shop: Shop) -> None:
    (path,) = files(shop, "store/store.json")
    text = path.read_text()
    at = text.index('"identity": "') + len('"identity": "')
    path.write_text(text[:at] + ("0" if text[at] != "0" else "1") + text[at + 1 :])
    (finding,) = found(shop)
    assert (finding.subject, finding.lost, finding.mend) == ("state", "all state", None)
    with pytest.raises(Damaged, match="not the one that the catalog tells of"):
        shop.deployed.deployment.check_state(deep=True)


def test_a_running_deployment_is_not_mended(shop: Shop) -> None:
    with (
        alone(shop.deployed.deployment.directory, "worker"),
        pytest.raises(Transient, match="another worker runs"),
    ):
        list(repair_all(shop.deployed.deployment, []))


def test_a_rebuild_does_not_switch_a_commit_that_waits(shop: Shop) -> None:
    catalog = shop.deployed.deployment.catalog
    waiting = catalog.commit("main", "new version", catalog.definitions(1), waits=True)
    assert catalog.serving(waiting)["main"] == 1
    made = rebuild(shop.deployed.deployment, ["Totals"])
    assert made.datasets == ("Totals",)
    assert catalog.latest() == waiting + 1
    assert catalog.serving(catalog.latest())["main"] == 1
    assert not made.state_ids & catalog.backfilled()


def test_a_value_of_the_catalog_that_cannot_be_decoded_is_a_finding_beside_others(shop: Shop, umbel: Umbel) -> None:
    """It ended each command, the check too, with a trace of the calls."""
    journal = files(shop, "store/shard-*/journal/*")[0]
    flipped(journal, journal.stat().st_size // 2)
    catalog = shop.folder / "umbel" / "catalog.db"
    with contextlib.closing(sqlite3.connect(catalog)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    data = catalog.read_bytes()
    assert b'"plan":' in data
    catalog.write_bytes(data.replace(b'"plan":', b'"plan";'))
    subjects = {each.subject for each in found(shop)}
    assert {"catalog", "batch plans"} <= subjects
    assert any(each.startswith("state") for each in subjects)
    result = umbel("check", "--dir", str(shop.folder / "umbel"))
    assert result.exit_code == 1
    assert "is not JSON" in result.output
