"""Adding one thing is adding one file: each row of the promise, on a copy of the tree with that file.

The files are those of the package `umbel-extras`: in the tree or in a package, they are the same.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.extending.install import PACKAGE
from tests.extending.server import Running
from tests.extending.test_other_packages import DUMP, IN_PROCESS, ORDERS, SQUARES, check_streamed

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
EXTRAS = PACKAGE / "umbel_extras"
FILES = {
    "expr/money.py": EXTRAS / "money.py",
    "aggregates/squares.py": EXTRAS / "aggregates.py",
    "operators/clip.py": EXTRAS / "operators.py",
    "connectors/journal.py": EXTRAS / "connectors.py",
    "state/extras.py": EXTRAS / "stores.py",
    "cli/greet.py": HERE / "greet.py",
}
"""The file in the tree for each row, and what is in it."""


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a copy of umbel to which the files have been added, and nothing else changed."""
    folder = tmp_path_factory.mktemp("tree")
    shutil.copytree(ROOT / "src" / "umbel", folder / "umbel", ignore=shutil.ignore_patterns("__pycache__"))
    for name, source in FILES.items():
        assert not (folder / "umbel" / name).exists()
        shutil.copy(source, folder / "umbel" / name)
    text = (HERE / "features.py").read_text(encoding="utf-8")
    for module, name in {
        "aggregates": "aggregates.squares",
        "connectors": "connectors.journal",
        "operators": "operators.clip",
    }.items():
        text = text.replace(f"umbel_extras.{module} ", f"umbel.{name} ")
    (folder / "features.py").write_text(text, encoding="utf-8")
    return folder


def run(tree: Path, *command: str, text: str = "", **environment: str) -> str:
    """Run Python on the copy; return what it prints."""
    variables = {**os.environ, "PYTHONPATH": str(tree), **environment}
    done = subprocess.run(
        [sys.executable, *command], env=variables, cwd=ROOT, input=text, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def checked(tree: Path, *arguments: str, **environment: str) -> None:
    """Run tests of the repository on the copy; at least one must pass, and all."""
    options = ["-q", "-p", "no:cacheprovider", "-o", f"pythonpath={tree} {ROOT}"]
    found = run(tree, "-m", "pytest", *options, *arguments, **environment)
    assert " passed" in found, found


EXPRESSION = """
import json, umbel
from umbel.expr import Expr, col
from umbel.expr.registry import catalogue
expr = col("amount").money.with_tax(percent=50)
print(umbel.__file__)
print(expr, expr.typeof({"amount": float}), Expr.from_record(json.loads(json.dumps(expr.to_record()))))
print([row["doc"] for row in catalogue() if row["family"] == "money"])
print(dir(col("amount").money))
"""


def test_an_expression_function(tree: Path) -> None:
    """Type inference, printing, records, the table of the documentation, the laws."""
    place, shown, listed, completed = run(tree, "-c", EXPRESSION).splitlines()
    assert place.startswith(str(tree))
    call = 'col("amount").money.with_tax(50)'
    assert shown == f"{call} <class 'float'> {call}"
    assert listed == "['Add a tax to an amount.']"
    assert completed == "['with_tax']"
    checked(tree, "tests/laws/test_expr.py", "-k", "money.with_tax")


AGGREGATE = """
from umbel import aggregates
from umbel.aggregates.aggregate import AGGREGATES
from umbel.definitions import serde
print(aggregates.SumOfSquares is AGGREGATES.find("sumofsquares"))
print(serde._name(aggregates.SumOfSquares), serde._found(serde._name(aggregates.SumOfSquares)) is aggregates.SumOfSquares)
"""


def test_an_aggregate(tree: Path) -> None:
    """The registry, definitions as bytes, the laws; windows, tiles and stores on the server below."""
    assert run(tree, "-c", AGGREGATE).splitlines() == ["True", "aggregates.squares.SumOfSquares True"]
    checked(tree, "tests/laws/test_registered_aggregates.py", "-k", "SumOfSquares")


OPERATOR = """
from tests.conformance.table import kinds
from umbel.operators.operator import OPERATORS
print("Clip" in kinds(), OPERATORS.find("clip").__module__)
"""


def test_an_operator(tree: Path) -> None:
    """A method of nodes, the list of what conformance cases must prove, definitions as bytes, all in process."""
    assert run(tree, "-c", f"import sys; sys.path.append({str(ROOT)!r}){OPERATOR}") == "True umbel.operators.clip\n"
    run(tree, "-c", DUMP, str(tree / "definitions"))
    found = json.loads(run(tree, "-c", IN_PROCESS, text=json.dumps(ORDERS)))
    assert [row["User.squares"] for row in found] == [SQUARES[1], SQUARES[2]]


CONNECTOR = """
from umbel import connectors
from umbel.connectors.connectors import Journal
print(connectors.Journal is Journal is connectors.CONNECTORS.find("journal"))
print(type(Journal(name="j", folder="/f").file("x").reader(None)).__name__)
"""


def test_a_connector(tree: Path) -> None:
    """`umbel.connectors`, `@source` and its checks, the reader."""
    assert run(tree, "-c", CONNECTOR).splitlines() == ["True", "JournalSource"]
    run(tree, "-c", DUMP, str(tree / "definitions"))


def test_a_store(tree: Path) -> None:
    """A URL with its scheme, and the contracts of stores."""
    checked(
        tree, "tests/contracts/test_store.py", "-k", "extras", UMBEL_CONTRACT_STORES="extras://{directory}?sync=off"
    )


def test_a_command(tree: Path) -> None:
    """The help, and the command."""
    assert "Greet somebody." in run(tree, "-m", "umbel", "--help", COLUMNS="120")
    assert run(tree, "-m", "umbel", "greet", "--name", "there") == "hello there\n"


def test_all_of_them_on_a_server(tree: Path, tmp_path: Path) -> None:
    """Committed, streamed, looked up, with the state in the added store."""
    arguments = ["run", "features", "--store", f"extras://{tmp_path}/store", "-w", "1"]
    running = Running(tmp_path, [tree], *arguments, environment={"JOURNAL": str(tmp_path)})
    try:
        running.wait(running.is_ready)
        check_streamed(running, tmp_path)
    finally:
        running.stop()
