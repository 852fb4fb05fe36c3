"""A project that uses umbel is clean under `mypy --strict`, and editors complete what its classes have."""

from __future__ import annotations

from mypy import api

from tests.house.sources import ROOT
from tests.typing import shop


def test_a_project_is_clean_when_checked_strictly() -> None:
    config, sample = ROOT / "tests" / "typing" / "mypy.ini", ROOT / "tests" / "typing" / "shop.py"
    cache = ROOT / ".mypy_cache" / "house"
    report, _, status = api.run(["--config-file", str(config), "--cache-dir", str(cache), str(sample)])
    assert status == 0, report


def test_a_mistake_is_found() -> None:
    config, cache = ROOT / "tests" / "typing" / "mypy.ini", ROOT / ".mypy_cache" / "house"
    mistake = "from tests.typing.shop import Order, User\nUser.lookop\nx: str = Order.price\n"
    report, _, status = api.run(["--config-file", str(config), "--cache-dir", str(cache), "-c", mistake])
    assert status == 1
    assert 'has no attribute "lookop"' in report
    assert "Incompatible types" in report


def test_the_project_works() -> None:
    shop.test_buyers()


def test_editors_complete_at_run_time() -> None:
    assert {"uid", "country", "lookup", "fields", "key_fields", "schema"} <= set(dir(shop.User))
    assert {"uid", "total", "greeting", "features", "all"} <= set(dir(shop.Buyer))
