"""Change logs whose links or statistics were damaged: these have no checksums."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.log.test_changes import PLAIN, changes, users
from umbel.errors import Damaged
from umbel.log.change_files import MONTH
from umbel.log.change_tail import FileTail
from umbel.log.changes import ChangeLog


def test_a_transaction_number_that_is_too_large_hides_no_rows(tmp_path: Path) -> None:
    """A flipped bit in the table's log, and the changes of the next batch were dropped as if they had been written."""
    log = ChangeLog(tmp_path / "log", PLAIN)
    for batch in range(3):
        assert log.commit(log.write(changes([(batch, 1)]), batch), "job", batch + 1)
    newest = max((log.path / "_delta_log").glob("*.json"))
    newest.write_text(newest.read_text().replace('"version":3', '"version":7'))
    assert log.reached("job") == 7
    for batch in (3, 4):
        assert log.commit(log.write(changes([(batch, 1)]), batch), "job", batch + 1)
        assert not log.commit(log.write(changes([(batch, 1)]), batch), "job", batch + 1)
    assert log.compact() == 5
    assert not log.commit(log.write(changes([(4, 1)]), 4), "job", 5)
    assert users(log.read()) == [0, 1, 2, 3, 4]


SAID = (
    ('"numRecords": 2', '"numRecords": 6'),
    ("-01T", "-09T"),
    ('"size":', '"size":1'),
    (f'{MONTH}":"2013', f'{MONTH}":"2017'),
)


@pytest.mark.parametrize(("so", "wrong"), SAID, ids=["rows", "instants", "size", "month"])
def test_what_a_table_says_of_its_files_is_checked(tmp_path: Path, so: str, wrong: str) -> None:
    """Files are skipped by it, and expire."""
    log = ChangeLog(tmp_path / "log", PLAIN)
    log.commit(log.write(changes([(1, 0), (2, 0)]), 0), "job", 1)
    log.check(deep=True)
    newest = max((log.path / "_delta_log").glob("*.json"))
    text = newest.read_text().replace(chr(92) + '"', '"')
    assert so in text
    data = newest.read_text()
    for old, new in ((so, wrong), (so.replace('"', chr(92) + '"'), wrong.replace('"', chr(92) + '"'))):
        data = data.replace(old, new)
    newest.write_text(data)
    with pytest.raises(Damaged, match="its table"):
        log.check(deep=True)


def test_a_file_of_a_later_batch_in_the_place_of_one_is_missed(tmp_path: Path) -> None:
    """The links from batch to batch went round and round, and a check never ended."""
    tail = FileTail(tmp_path)
    for batch in range(4):
        tail.put(batch, changes([(batch, 0)]), batch - 1)
    assert tail.missing(3, -1) is None
    (tmp_path / f"{1:012d}.arrow").write_bytes((tmp_path / f"{3:012d}.arrow").read_bytes())
    assert tail.missing(3, -1) == 1
