"""Every file of a deployment, harmed at every place: a check finds it, or all answers are as before; none is wrong.

A worker that starts there goes on, or refuses with an error that names the file and what to do. Nightly sweeps
all files; otherwise a sample of them is drawn.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.sales import MINUTES, at
from tests.seeds import new_seed
from tests.selling import Shop
from umbel.cli.work import _damage as refusal
from umbel.errors import UmbelError
from umbel.log.features import FeatureLog
from umbel.runtime.recovery.check import check

WAVES, SAMPLE = 4, 12
KEYS: dict[str, list[dict[str, Any]]] = {
    "Totals": [{"user": user} for user in range(6)],
    "Last": [{"kind": kind} for kind in "abcx"],
}
LOGGED = ("Sales", "Users", "Last", "Priced")
HARMS = ("first", "header", "quarter", "middle", "three quarters", "last", "cut", "halved", "removed", "exchanged")
PLACES = {"first": 0.0, "quarter": 0.25, "middle": 0.5, "three quarters": 0.75, "last": 1.0}


def flipped(path: Path, place: float) -> None:
    data = bytearray(path.read_bytes())
    at = place if isinstance(place, int) else int(len(data) * place)
    data[min(at, len(data) - 1)] ^= 4
    path.write_bytes(data)


def exchanged(path: Path) -> bool:
    """Exchange a file with its neighbour of the same kind, in its folder or in the one of another shard or log."""
    others = [
        *path.parent.glob(f"*{path.suffix}"),
        *path.parents[1].glob(f"*/*{path.suffix}"),
        *path.parents[2].glob(f"*/{path.parent.name}/*{path.suffix}"),
    ]
    if not path.suffix:  # those with other names are of other kinds, apart from numbers
        others = [each for each in others if each.name == path.name or (each.name + path.name).isdecimal()]
    if path.parent.name == "umbel":
        return False
    mine = path.read_bytes()
    other = next((each for each in sorted(others) if each.is_file() and each.read_bytes() not in (b"", mine)), None)
    if other is None:
        return False
    path.write_bytes(other.read_bytes())
    other.write_bytes(mine)
    return True


def harm(path: Path, name: str) -> bool:
    """Do harm to a file; return whether there was something to harm."""
    if name == "exchanged":
        return exchanged(path)
    if name == "removed":
        path.unlink()
    elif name in ("cut", "halved"):
        size = path.stat().st_size
        path.write_bytes(path.read_bytes()[: size - 1 if name == "cut" else size // 2])
    else:
        flipped(path, 20 if name == "header" else PLACES[name])
    return True


def with_remedy(error: UmbelError) -> UmbelError:
    assert error.hint, error
    return error


def answered(part: Callable[[], Any]) -> Any:
    """Return what is answered, or the error that says why not; another error fails the test."""
    try:
        return part()
    except UmbelError as error:
        return with_remedy(error)


def parts_of(shop: Shop) -> dict[str, Callable[[], Any]]:
    deployed = shop.deployed
    points = [at(minute) for minute in MINUTES]

    def looked_up(dataset: str) -> list[Any]:
        keys = [(key, point) for key in KEYS[dataset] for point in points]
        return deployed.lookup(dataset, [key for key, _ in keys], [point for _, point in keys])

    def logged(dataset: str) -> list[Any]:
        return deployed.changes(dataset).rows()

    folder = deployed.deployment.directory / "features"
    return {
        **{f"lookup {name}": lambda name=name: looked_up(name) for name in KEYS},
        **{f"log {name}": lambda name=name: logged(name) for name in LOGGED},
        "features": lambda: list(FeatureLog(folder).read("main")),
        "secret": lambda: deployed.deployment.vault.get("password"),
        "positions": lambda: positions(deployed.deployment.directory / "checkpoint/live/offsets"),
    }


def positions(folder: Path) -> list[str]:
    """Return what umbel reads of Spark's checkpoint."""
    return [path.read_text().splitlines()[-1] for path in sorted(folder.iterdir())]


def answers_of(shop: Shop) -> dict[str, Any]:
    return {name: answered(part) for name, part in parts_of(shop).items()}


def make(folder: Path) -> Shop:
    """Make a deployment with every kind of file."""
    shop = Shop(folder)
    for _ in range(WAVES - 1):
        shop.sell()
        shop.flush()
    shop.deployed.flush_logs()
    shop.sell()
    shop.deployed.log_bytes("sales", b'[{"user": "none"}]', 1)
    shop.process()
    shop.write_checkpoint()
    line = b'{"timestamp":"2026-01-01T00:00:00.000000Z","a":%d}\n'
    FeatureLog(folder / "umbel/features").append("main", "w", "2026-01-01", [line % each for each in range(5)])
    shop.deployed.deployment.vault.add("password", "secret")
    return shop


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], dict[str, Any]]:
    """Return a deployment, and its answers before and after one more wave."""
    shop = make(tmp_path_factory.mktemp("whole"))
    shop.deployed.close()
    later = copied(shop.folder, tmp_path_factory.mktemp("later"))
    before = answers_of(later)
    later.sell()
    after = answers_of(later)
    later.deployed.close()
    assert not [each for each in (*before.values(), *after.values()) if isinstance(each, UmbelError)]
    assert before["lookup Totals"] != after["lookup Totals"]
    return shop.folder, before, after


def copied(folder: Path, target: Path) -> Shop:
    """Return a copy of a deployment."""
    shutil.copytree(folder / "umbel", target / "umbel", dirs_exist_ok=True)
    return Shop.opened(target, WAVES)


def files_of(folder: Path) -> list[Path]:
    root = folder / "umbel"
    return sorted(path.relative_to(root) for path in root.rglob("*") if path.is_file() and path.stat().st_size)


def expect(found: list[str], answers: dict[str, Any], expected: dict[str, Any]) -> None:
    """Demand that answers are right or refused, and right if a check finds nothing."""
    for name, answer in answers.items():
        if isinstance(answer, UmbelError):
            assert found, (name, answer)
        elif answer != expected[name]:
            assert name in MAY_LACK, (name, found)
            assert found, name


MAY_LACK = {"features", "positions"}
"""Damaged lines are passed over, and told; a lost checkpoint is written again, and told."""
FORGOTTEN = {"removed", "halved", "cut"}
"""Harms of the feature log that look like a deleted day, or a line that a crash cut."""


def harmed(whole: tuple[Path, dict[str, Any], dict[str, Any]], path: Path, name: str, folder: Path) -> str:
    """Harm a file of a copy; return what became of it."""
    source, before, after = whole
    shutil.copytree(source / "umbel", folder / "umbel")
    if not harm(folder / "umbel" / path, name):
        return "nothing to exchange"
    try:
        shop = Shop.opened(folder, WAVES)
    except UmbelError as error:
        return f"refused: {with_remedy(error).message}"
    try:
        found = [f"{each.subject}: {each.text}" for each in check(shop.deployed.deployment)]
        if path.parts[0] == "features" and name in FORGOTTEN:
            before, after = ({**each, "features": answers_of(shop)["features"]} for each in (before, after))
        expect(found, answers_of(shop), before)
        if refused := refusal(shop.deployed.deployment):
            assert found, refused
            return f"refused: {refused}"
        stopped = answered(shop.sell)
        if isinstance(stopped, UmbelError):
            assert found, stopped
            return f"stopped: {stopped.message}"
        expect(found, answers_of(shop), after)
        return f"found: {found}" if found else "the same"
    finally:
        with suppress(UmbelError):
            shop.deployed.close()


def test_a_harmed_file_is_found_or_changes_nothing(
    whole: tuple[Path, dict[str, Any], dict[str, Any]], tmp_path: Path
) -> None:
    chance = random.Random(new_seed())
    cases = [(path, name) for path in files_of(whole[0]) for name in HARMS]
    for number, (path, name) in enumerate(chance.sample(cases, SAMPLE)):
        print(path, name, end=": ", flush=True)
        print(harmed(whole, path, name, tmp_path / str(number)))
        shutil.rmtree(tmp_path / str(number))


@pytest.mark.nightly
@pytest.mark.parametrize("name", HARMS)
def test_every_harmed_file_is_found_or_changes_nothing(
    whole: tuple[Path, dict[str, Any], dict[str, Any]], name: str, tmp_path: Path
) -> None:
    wrong = []
    for number, path in enumerate(files_of(whole[0])):
        try:
            print(path, name, harmed(whole, path, name, tmp_path / str(number)), sep=": ", flush=True)
        except Exception as error:
            print(path, name, "FAILED", sep=": ", flush=True)
            wrong.append(f"{path}: {type(error).__name__}: {error!s:.1000}")
        shutil.rmtree(tmp_path / str(number), ignore_errors=True)
    assert not wrong, "\n\n".join(wrong)
