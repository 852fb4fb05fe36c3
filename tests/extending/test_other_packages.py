"""A package of its own adds one thing of each kind to a running server: committed, streamed, looked up."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.extending.install import declare
from tests.extending.server import Running

ROOT = Path(__file__).parents[2]
FEATURES = Path(__file__).parent / "features.py"
ORDERS = [(1, 10.0), (1, 1000.0), (2, 4.0)]
SQUARES = {1: (10.0 * 1.5) ** 2 + (100.0 * 1.5) ** 2, 2: 36.0}

IN_PROCESS = """
import json
from datetime import UTC, datetime
import pandas as pd
import features
from umbel.connectors import Webhook, source
from umbel.testing import mock

orders = json.loads(input())
web = Webhook(name="web")
features.Order = source(web.endpoint("orders"), disorder="1d", cdc="append", env="test")(features.Order)

@mock
def check(client):
    client.commit(message="m", datasets=[features.Order, features.Spending], featuresets=[features.User], env="test")
    rows = [{"user": user, "amount": amount, "at": datetime(2024, 1, 1, tzinfo=UTC)} for user, amount in orders]
    client.log("web", "orders", pd.DataFrame(rows))
    found = client.query(outputs=[features.User], inputs=["User.user"], input_dataframe=pd.DataFrame({"User.user": [1, 2]}))
    print(found.to_json(orient="records"))

check()
"""
DUMP = """
import sys
from pathlib import Path
import features
from umbel.api.commit import check_commit
from umbel.definitions.serde import dump, load
data = dump(check_commit([features.Order, features.Spending], [features.User]))
assert dump(load(data)) == data
Path(sys.argv[1]).write_bytes(data)
"""
LOAD = """
import sys
from pathlib import Path
from umbel.definitions.serde import load
from umbel.errors import UmbelError
try:
    load(Path(sys.argv[1]).read_bytes())
    print("loaded")
except UmbelError as error:
    print(error.code, error)
loaded = [name for name in sys.modules if name.startswith("umbel_extras")]
print(loaded)
"""


def run(script: str, *arguments: str, path: list[Path], text: str = "") -> str:
    """Run a script in a process that imports from these folders; return what it prints."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, [ROOT / "src", *path]))}
    command = [sys.executable, "-c", script, *arguments]
    done = subprocess.run(command, env=environment, input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the program alone."""
    folder = tmp_path_factory.mktemp("program")
    (folder / "features.py").write_text(FEATURES.read_text(encoding="utf-8"), encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def definitions(site: Path, program: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file with the program's definitions."""
    file = tmp_path_factory.mktemp("definitions") / "definitions"
    run(DUMP, str(file), path=[site, program])
    return file


def test_in_process(site: Path, program: Path) -> None:
    found = json.loads(run(IN_PROCESS, path=[site, program], text=json.dumps(ORDERS)))
    assert [row["User.squares"] for row in found] == [SQUARES[1], SQUARES[2]]
    assert found[1]["User.gross"] == pytest.approx(SQUARES[2] * 1.19)


def check_streamed(running: Running, folder: Path) -> None:
    """Check that orders in a file are streamed and looked up, and that the state is in the added store."""
    with (folder / "orders.jsonl").open("a", encoding="utf-8") as file:
        for user, amount in ORDERS:
            file.write(json.dumps({"user": user, "amount": amount, "at": "2024-01-01T00:00:00Z"}) + "\n")
    for user, squares in SQUARES.items():  # each shard's commit is visible by itself
        running.wait(
            lambda user=user, squares=squares: running.query("User", {"User.user": user})["User.squares"] == squares
        )
    found = running.query("User", {"User.user": 2})
    assert found["User.gross"] == pytest.approx(SQUARES[2] * 1.19)
    assert (folder / "store" / "state").is_dir()


def test_on_a_running_server(site: Path, program: Path, tmp_path: Path) -> None:
    path, store = [ROOT / "src", site, program], f"extras://{tmp_path}/store"
    running = Running(tmp_path, path, "up", "--store", store, "-w", "1", environment={"JOURNAL": str(tmp_path)})
    try:
        running.wait(running.is_ready)
        running.commit("features")
        check_streamed(running, tmp_path)
    finally:
        running.stop()


def test_what_is_not_installed_is_named(definitions: Path) -> None:
    found = run(LOAD, str(definitions), path=[])
    assert found.startswith("package definitions use 'umbel_extras.")
    assert "of the package 'umbel-extras', which is not installed here" in found
    assert "install 'umbel-extras' on the server and on every worker" in found


def test_what_can_be_imported_and_is_not_registered_is_not_imported(
    definitions: Path, site: Path, tmp_path: Path
) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "umbel_extras").symlink_to(site / "umbel_extras")
    found = run(LOAD, str(definitions), path=[bare])
    assert "which is not installed here" in found
    assert found.endswith("\n[]\n")


def test_what_an_installed_package_does_not_register_is_refused(definitions: Path, tmp_path: Path) -> None:
    site = declare(
        tmp_path / "site", "umbel-extras", "umbel.operators", {"other": "other_extras:Other"}, {"other_extras": OTHER}
    )
    found = run(LOAD, str(definitions), path=[site])
    assert "which package 'umbel-extras' 1.0 (other_extras:Other) does not register" in found


OTHER = """
from umbel.operators.dropnull import DropNull
class Other(DropNull): ...
"""
