"""`umbel init`: the project it makes passes its own test, can be explained, and has only commands that exist."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import Result

from tests.docs.test_commands import check_call, words
from tests.unit.cli.conftest import Umbel

FILES = {".gitignore", "README.md", "features.py", "orders.ndjson", "pyproject.toml", "test_features.py"}


@pytest.fixture
def folder(umbel: Umbel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a project just made."""
    monkeypatch.chdir(tmp_path)
    made = umbel("init", "my-shop")
    assert made.exit_code == 0, made.output
    assert "Next: cd my-shop && pytest && umbel run features" in made.stdout
    return tmp_path / "my-shop"


def ran(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a module of Python in a folder, as its user would."""
    own = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "UMBEL_", "PYTHONPATH"))
    }
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=folder,
        env=own,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def test_the_project_passes_its_own_test(folder: Path) -> None:
    assert {each.name for each in folder.iterdir()} == FILES
    tested = ran(folder, "pytest", "-q", "-p", "no:cacheprovider")
    assert tested.returncode == 0, tested.stdout
    assert "3 passed" in tested.stdout


def test_a_mistake_in_the_definitions_fails_its_tests(folder: Path) -> None:
    definitions = folder / "features.py"
    definitions.write_text(definitions.read_text(encoding="utf-8").replace('"7d"', '"1d"'), encoding="utf-8")
    assert "2 failed, 1 passed" in ran(folder, "pytest", "-q", "-p", "no:cacheprovider").stdout


def test_the_project_can_be_committed(folder: Path) -> None:
    explained = ran(folder, "umbel", "explain", "features")
    assert explained.returncode == 0, explained.stdout
    assert "Spending" in explained.stdout


def test_its_readme_has_commands_that_exist(folder: Path) -> None:
    lines = (folder / "README.md").read_text(encoding="utf-8").splitlines()
    calls = [call for line in lines if line.startswith("$ ") for call in words(line.removeprefix("$ "))]
    assert [call[0] for call in calls] == ["run", "log", "query", "commit"]
    for call in calls:
        check_call(call, is_whole=True)


def test_the_project_has_the_permissions_of_its_users_other_files(tmp_path: Path) -> None:
    """umbel's own folder is private to its account; a project is shared with colleagues."""
    command = [
        sys.executable,
        "-c",
        "import os; os.umask(0o022); from umbel.cli.main import main; main()",
        "init",
        "shared",
    ]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    assert (tmp_path / "shared").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "shared" / "features.py").stat().st_mode & 0o777 == 0o644


def test_an_empty_folder_is_filled(umbel: Umbel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shop").mkdir()
    monkeypatch.chdir(tmp_path / "shop")
    assert umbel("init", ".").exit_code == 0
    assert 'name = "shop"' in (tmp_path / "shop" / "pyproject.toml").read_text(encoding="utf-8")


def error_of(result: Result) -> str:
    assert result.exit_code != 0
    return str(result.exception)


def test_a_folder_with_files_is_left_alone(umbel: Umbel, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    message = error_of(umbel("init", str(tmp_path)))
    assert f"{tmp_path} is not empty: it has mine.txt" in message
    assert "umbel init my-features" in message
    assert [each.name for each in tmp_path.iterdir()] == ["mine.txt"]


def test_a_file_is_no_folder(umbel: Umbel, tmp_path: Path) -> None:
    (tmp_path / "shop").write_text("mine")
    assert f"{tmp_path / 'shop'} is a file" in error_of(umbel("init", str(tmp_path / "shop")))


@pytest.mark.parametrize("name", ["-", "a b", 'x"y', "x\ny", "_"])
def test_a_name_that_is_none_is_refused(umbel: Umbel, tmp_path: Path, name: str) -> None:
    message = error_of(umbel("init", str(tmp_path / name)))
    assert "is not a name of a project" in message
    assert list(tmp_path.iterdir()) == []


def test_help_teaches(umbel: Umbel) -> None:
    shown = umbel("init", "--help").stdout
    assert "umbel init shop" in shown
    assert "sample data" in shown


def test_a_repository_without_files_is_filled(umbel: Umbel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fresh" / ".git").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "fresh")
    assert umbel("init", ".").exit_code == 0
