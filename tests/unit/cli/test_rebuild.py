"""`umbel rebuild --wait`: it returns when the work is done, and when nobody does it."""

from __future__ import annotations

import pytest

from tests.selling import Shop
from tests.unit.cli.conftest import Umbel
from umbel.api.commit import check_commit
from umbel.cli import waiting
from umbel.runtime.commit import commit
from umbel.runtime.recovery.rebuild import rebuild, share


@pytest.mark.parametrize(
    ("option", "code", "message"),
    [
        ("--timeout=60", waiting.NO_WORKER, "no worker is alive: never started"),
        ("--timeout=0", waiting.TOO_LATE, "0 s were not enough until Totals is rebuilt; it goes on: 0 %"),
    ],
)
def test_waiting_ends_where_nobody_does_it(
    shop: Shop, umbel: Umbel, monkeypatch: pytest.MonkeyPatch, option: str, code: int, message: str
) -> None:
    """It waited for ever, and said nothing."""
    monkeypatch.setattr(waiting, "WITHOUT_WORKER", 0.0)
    done = umbel("rebuild", "Totals", "--wait", option, "--dir", str(shop.folder / "umbel"))
    assert isinstance(done.exception, waiting.WaitError)
    assert (done.exception.exit_code, message in str(done.exception)) == (code, True)


def test_what_a_commit_removes_is_not_waited_for(shop: Shop) -> None:
    place = shop.deployed.deployment
    made = rebuild(place, ["Totals"])
    assert share(place, made) == 0.0
    commit(place, check_commit([], ()))
    assert share(place, made) == 1.0
