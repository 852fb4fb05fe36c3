"""Modules in the folder umbel is started in hide none of Python's and none that umbel needs."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

STANDARD = (
    "queue",
    "json",
    "random",
    "signal",
    "threading",
    "socket",
    "asyncio",
    "csv",
    "secrets",
    "statistics",
    "http",
    "email",
)
OTHERS = ("click", "rich", "polars", "numpy", "sqlalchemy", "starlette", "httpx", "orjson", "umbel", "mako", "h11")
"""Packages that umbel needs, or that these need."""
FEATURES = """
from datetime import datetime

import helper
from umbel import Webhook, dataset, source

__owner__ = helper.OWNER


@source(Webhook(name="web").endpoint("events"), disorder="1d", cdc="append")
@dataset
class Event:
    user: int
    at: datetime
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in (*STANDARD, *OTHERS):
        (tmp_path / f"{name}.py").write_text(f'raise ImportError("the {name} of the user was imported")\n')
    (tmp_path / "helper.py").write_text('OWNER = "me@example.com"\n')
    (tmp_path / "features.py").write_text(FEATURES)
    (tmp_path / "queue.py").write_text(f"{FEATURES}\nassert __name__ != 'queue'\n")
    return tmp_path


def ran(folder: Path, *command: str, prepare: Callable[[], None] | None = None) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    options = {"capture_output": True, "text": True, "env": environment, "preexec_fn": prepare}
    done = subprocess.run(command, cwd=folder, check=False, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


UMBEL = shutil.which("umbel", path=str(Path(sys.executable).parent)) or "umbel"


@pytest.mark.parametrize(
    "start", [[UMBEL], [sys.executable, "-m", "umbel"], [sys.executable, "-P", "-m", "umbel.cli.main"]]
)
@pytest.mark.parametrize("target", ["features", "features.py", "queue.py", "./queue.py"])
def test_commands(start: list[str], target: str, folder: Path) -> None:
    if start[1:] == ["-m", "umbel"]:
        (folder / "umbel.py").unlink()  # Python runs that one, as the command says
    assert "Event" in ran(folder, *start, "explain", target)


def test_a_file_with_a_dot_in_its_name(folder: Path) -> None:
    """`features.v2` would be a module in a package `features`."""
    (folder / "features.v2.py").write_text((folder / "features.py").read_text().replace("Event", "Visit"))
    assert "Visit" in ran(folder, UMBEL, "explain", "features.v2.py")


def without_privileges() -> None:
    """Give up the capabilities by which root reads what it has no permission for."""
    libc, drop_bounding = ctypes.CDLL(None), 24
    for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
        libc.prctl(drop_bounding, capability)


def test_a_folder_that_it_may_not_read(folder: Path) -> None:
    """The root of a volume has such a folder, `lost+found`."""
    closed = folder / "lost+found"
    closed.mkdir(mode=0)
    assert "Event" in ran(folder, UMBEL, "explain", "features.py", prepare=without_privileges)


def test_what_runs_below(folder: Path) -> None:
    """Processes that a command starts, by whatever way, are started as it was."""
    program = (
        "import sys; from pathlib import Path; from umbel.processes.user_folder import importable; importable(Path.cwd())\n"
        "import subprocess, multiprocessing, queue, json, httpx, sqlalchemy, helper, umbel.serving.app\n"
        "print(subprocess.run([sys.executable, '-c', 'import queue, json; print(queue.__file__)'], capture_output=True).stdout)\n"
        "print(helper.OWNER)\n"
    )
    report = ran(folder, sys.executable, "-P", "-c", program)
    assert "me@example.com" in report
    assert str(folder) not in report
    assert "queue.py" in report


def test_a_name_that_another_module_has_is_reported(folder: Path) -> None:
    done = subprocess.run([UMBEL, "explain", "queue"], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "defines no dataset" in done.stderr
    assert "./queue.py" in done.stderr
