"""Importing is cheap, layers stay apart at run time too, and what is imported is declared."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

from tests.house.sources import ROOT, modules, tree

LOADED_BY_OTHERS = {"typecheck.py"}
"""Plugins: what loads them is there when they are loaded."""
HEAVY = {"pandas", "polars", "pyarrow", "pyspark", "numpy", "deltalake", "sqlalchemy", "starlette", "google"}

EXTRAS = (
    *(
        "aws",
        "bigquery",
        "hudi",
        "iceberg",
        "kafka",
        "kinesis",
        "mongo",
        "mysql",
        "postgres",
        "pubsub",
        "redshift",
        "s3",
    ),
    "snowflake",
)
"""The groups of dependencies that connectors need."""


def loaded_by(statement: str) -> set[str]:
    """Return the top-level modules that are loaded once a fresh interpreter has run the statement."""
    script = f"{statement}\nimport sys\nprint(*{{name.partition('.')[0] for name in sys.modules}})"
    command = [sys.executable, "-c", script]
    environment = {"PYTHONPATH": str(ROOT / "src"), "PATH": ""}
    return set(subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout.split())


def declared() -> set[str]:
    """Return the names of the dependencies in pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = (text for name in EXTRAS for text in project["optional-dependencies"][name])
    return {_normal(re.split(r"[<>=!~\[; ]", text)[0]) for text in (*project["dependencies"], *extras)}


def imported() -> set[str]:
    """Return the top-level names that the package imports from others."""
    names: set[str] = set()
    for path in modules("src"):
        if path.name in LOADED_BY_OTHERS:
            continue
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
            if isinstance(node, ast.ImportFrom):
                names.add((node.module or "").partition(".")[0])
    return names - set(sys.stdlib_module_names) - {"umbel"}


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_importing_umbel_loads_nothing_heavy() -> None:
    assert loaded_by("import umbel") & HEAVY == set()


def test_commands_and_workers_start_without_pandas() -> None:
    """It is loaded once a function of the user needs it: a fifth of the time to start."""
    assert loaded_by("import umbel.runtime.commit, umbel.spark.job, umbel.spark.tasks") & {"pandas"} == set()


def test_a_catalog_of_this_version_is_opened_without_alembic(tmp_path: Path) -> None:
    opened = f"from umbel.catalog.catalog import Catalog; Catalog({f'sqlite:///{tmp_path}/catalog.db'!r}).close()"
    assert [loaded_by(opened) & {"alembic"} for _ in range(2)] == [{"alembic"}, set()]


def test_the_server_never_loads_spark() -> None:
    names = sorted(path.stem for path in modules("src/umbel/serving") if path.stem != "__init__")
    imports = "\n".join(f"import umbel.serving.{name}" for name in names)
    assert loaded_by(f"import umbel.serving\n{imports}") & {"pyspark", "py4j"} == set()


def test_what_is_imported_is_declared() -> None:
    distributions = packages_distributions()
    needed = {name: {_normal(one) for one in distributions.get(name, [name])} for name in imported()}
    assert sorted(name for name, ones in needed.items() if not ones & declared()) == []


def test_what_is_declared_is_imported() -> None:
    distributions = packages_distributions()
    used = {_normal(one) for name in imported() for one in distributions.get(name, [name])}
    assert sorted(declared() - used - {"httptools"}) == []  # uvicorn's part that is ours to ask for


BY_NAME = {
    "umbel/__init__.py",  # the public names
    "umbel/plugins.py",  # the packages whose modules register what is in them
    "umbel/definitions/serde.py",  # the classes that definitions are made of
    "umbel/state/urls.py",  # stores, by their schemes
    "umbel/expr/__init__.py",  # the families of expression functions
    "umbel/cli/main.py",  # the commands
    "umbel/cli/loading.py",  # the user's program
    "umbel/isolation/forkserver.py",  # what a child is to have loaded
    "umbel/spark/daemon.py",  # the same for Python workers of Spark
    "umbel/functions/references.py",  # what a user's function imports
    "umbel/functions/user_function.py",  # the same, where it has arrived
}
"""The modules that import others by name, which the check of layers cannot see; reasons: docs/decisions/0003-layers.md."""


def test_modules_are_imported_by_name_in_known_places() -> None:
    names = {"import_module", "__import__"}
    found = {
        str(path.relative_to(ROOT / "src"))
        for path in modules("src")
        for node in ast.walk(tree(path))
        if (isinstance(node, ast.Attribute) and node.attr in names) or (isinstance(node, ast.Name) and node.id in names)
    }
    assert found == BY_NAME
