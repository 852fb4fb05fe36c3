"""`umbel status` and `umbel doctor` of a deployment that is damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.selling import Shop
from tests.unit.cli.conftest import Umbel


@pytest.mark.parametrize("command", ["status", "doctor"])
def test_damage_hides_only_what_is_read_from_it(tmp_path: Path, umbel: Umbel, command: str) -> None:
    """It told the damaged plan and nothing else: neither the worker nor sinks nor dead letters."""
    shop = Shop(tmp_path)
    shop.sell()
    plan = max((tmp_path / "umbel" / "plans").glob("*.json"))
    plan.write_bytes(plan.read_bytes()[:-2])
    shop.deployed.close()
    found = umbel(command, "--dir", str(tmp_path / "umbel"))
    assert found.exit_code == 1
    lines = [" ".join(line.split()) for line in found.output.splitlines()]
    assert any("worker" in line and "never started" in line for line in lines), lines
    assert any("lag of webhooks" in line and "cannot be told: plan " in line for line in lines), lines
    assert "→ umbel check tells more" in lines
