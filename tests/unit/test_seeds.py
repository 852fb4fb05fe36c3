"""Seeds of tests are printed, and those of the environment are used."""

from __future__ import annotations

import pytest

from tests.seeds import SEED, chance_of_seed, new_seed


def test_a_seed_is_printed_and_repeated(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv(SEED, raising=False)
    seed = new_seed()
    assert f"{SEED}={seed} makes the same choices" in capsys.readouterr().out
    assert new_seed() != seed
    monkeypatch.setenv(SEED, str(seed))
    assert [new_seed(), new_seed()] == [seed, seed]
    assert chance_of_seed().random() == chance_of_seed().random()
