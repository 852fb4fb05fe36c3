"""The program as a shell starts it: by its name or by `python -m umbel`, its version, and what completes it."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError

from tests.unit.cli.conftest import FLIGHTS, Umbel
from umbel import __version__
from umbel.cli import main as program

MODULE = [sys.executable, "-m", "umbel"]


def ran(*arguments: str, **environment: str) -> str:
    done = subprocess.run(
        [*MODULE, *arguments], capture_output=True, text=True, check=True, env={**os.environ, **environment}
    )
    return done.stdout


def test_python_m_umbel_is_umbel() -> None:
    assert ran("--version") == f"umbel {__version__}\n"
    assert "Usage: umbel " in ran("--help", COLUMNS="100")


def test_ctrl_c_while_modules_are_loaded_leaves_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    for command in (MODULE, [sys.executable, "-c", "from umbel.__main__ import run; run()"]):
        environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_text_that_the_terminal_cannot_show_is_spelled() -> None:
    """It was a traceback of an UnicodeEncodeError, as with a locale of ISO-8859-1."""
    assert "[DATASET\\u2026]" in ran("rebuild", "--help", PYTHONIOENCODING="ascii", COLUMNS="100")


def test_a_run_prints_its_commit_in_whole_lines(umbel: Umbel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a log they were broken at 80 columns, in the middle of names."""
    monkeypatch.setenv("COLUMNS", "40")
    for name in ("check", "up"):
        monkeypatch.setattr(f"umbel.cli.up.{name}", lambda *_: None)
    done = umbel("run", FLIGHTS, "--dir", str(tmp_path / "umbel"))
    assert done.exit_code == 0, done.output
    (new,) = [line for line in done.stderr.splitlines() if line.startswith("umbel: new: ")]
    assert len(new) > 40
    assert all(line.startswith("umbel: ") for line in done.stderr.splitlines())


def test_the_version_is_an_option_and_a_command(umbel: Umbel) -> None:
    assert umbel("--version").stdout == f"umbel {__version__}\n"
    assert umbel("version").stdout.startswith(f"umbel {__version__}\n")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_that_completes(umbel: Umbel, shell: str) -> None:
    script = umbel("completion", shell).stdout
    assert f"_UMBEL_COMPLETE=complete_{shell}" in script
    assert "umbel" in script


def test_a_shell_that_is_not_known(umbel: Umbel) -> None:
    failed = umbel("completion", "tcsh")
    assert failed.exit_code == 2
    assert "bash" in failed.output


@pytest.mark.parametrize(
    ("shell", "variables"),
    [
        ("bash", {"COMP_WORDS": "umbel dead", "COMP_CWORD": "1"}),
        ("zsh", {"_TYPER_COMPLETE_ARGS": "umbel dead"}),
        ("fish", {"_TYPER_COMPLETE_ARGS": "umbel dead", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}),
    ],
)
def test_what_the_scripts_ask_is_answered(shell: str, variables: dict[str, str]) -> None:
    assert "dead-letters" in ran(_UMBEL_COMPLETE=f"complete_{shell}", **variables)


def test_bash_completes_commands_and_options(tmp_path: Path) -> None:
    bash = shutil.which("bash")
    assert bash is not None
    program = tmp_path / "umbel"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m umbel "$@"\n')
    program.chmod(0o755)
    script = (
        "source <(umbel completion bash)\n"
        'for typed in "umbel dead" "umbel query-offline --tr"; do\n'
        "  COMP_WORDS=($typed); COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 )); _umbel_completion umbel; echo ${COMPREPLY[@]}\n"
        "done\n"
    )
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [bash, "-c", script], capture_output=True, text=True, check=True, env={**os.environ, "PATH": path}
    )
    assert done.stdout.splitlines() == ["dead-letters", "--track"]


FULL = sqlite3.OperationalError("database or disk is full")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (FULL, "error the catalog: database or disk is full\n  hint: free some disk space\n"),
        (
            OperationalError("INSERT", {}, FULL),
            "error the catalog: database or disk is full\n  hint: free some disk space\n",
        ),
        (sqlite3.OperationalError("database is locked"), "error the catalog: database is locked\n"),
        (
            sqlite3.OperationalError("disk I/O error"),
            "error the catalog: disk I/O error\n  hint: free some disk space, if the disk is full; or else check it\n",
        ),
        (
            OSError(errno.ENOSPC, "No space left on device"),
            "error No space left on device\n  hint: free some disk space\n",
        ),
        (
            OSError(errno.EDQUOT, "Disk quota exceeded"),
            "error Disk quota exceeded\n  hint: free some disk space\n",
        ),
        (PermissionError(errno.EACCES, "Permission denied", "/x"), "error /x: Permission denied\n"),
    ],
)
def test_a_full_disk_is_an_error_without_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception, text: str
) -> None:
    def fail(**_: object) -> None:
        raise error

    monkeypatch.setattr(program, "app", fail)
    with pytest.raises(SystemExit) as ended:
        program.main()
    assert (ended.value.code, capsys.readouterr().err) == (2, text)


def test_other_errors_are_those_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**_: object) -> None:
        raise LookupError("a fault")

    monkeypatch.setattr(program, "app", fail)
    with pytest.raises(LookupError):
        program.main()
