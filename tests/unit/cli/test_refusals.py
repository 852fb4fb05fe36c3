"""What the command line refuses: with what is wrong, what to do and exit code 2, never with a traceback."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest

from umbel.cli.main import main
from umbel.cli.up import check
from umbel.errors import Transient


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("UMBEL_")]:
        monkeypatch.delenv(name)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PYTHONSAFEPATH", "1")
    monkeypatch.setattr("umbel.cli.up.check", lambda *_: None)  # the port may be taken on this machine
    monkeypatch.setattr("umbel.processes.process_tree.die_with_parent", lambda: None)
    return tmp_path


def refusal_of(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[int, str]:
    """Run umbel in this process; return its exit code and what it said."""
    monkeypatch.setattr(sys, "argv", ["umbel", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    shown = capsys.readouterr()
    return int(ended.value.code or 0), shown.out + shown.err


REFUSED = {
    "a folder that is a file": (["--dir", "file"], "file cannot be made: File exists", "--dir"),
    "a folder below a file": (["--dir", "file/below"], "below cannot be made: Not a directory", "--dir"),
    "a folder that cannot be made": (["--dir", "/proc/umbel"], "/proc/umbel cannot be made", "--dir"),
    "a store without a scheme": (["--store", "somewhere"], "no store is called ''", "file:///path"),
    "a misspelt store": (
        ["--store", "flie:///tmp/x"],
        "no store is called 'flie'; did you mean 'file'?",
        "file:///path",
    ),
    "a store in a file": (["--store", "file://file"], "is not a directory", "--store"),
    "a store below a file": (["--store", "file://file/below"], "is not a directory", "--store"),
    "a store nowhere": (["--store", "file://"], "needs a directory", "file:///path"),
    "an unknown setting": (
        ["--store", "file://s?flushbytes=7"],
        "unknown setting 'flushbytes'; did you mean 'flush_bytes'?",
        "",
    ),
    "a wrong size": (["--store", "file://s?flush_bytes=7GB"], "flush_bytes must be a number of bytes, found '7GB'", ""),
    "a wrong sync": (["--store", "file://s?sync=no"], "sync must be 'on' or 'off', found 'no'", ""),
    "a store of one process": (["--store", "memory://"], "such a store is of one process", "--store"),
    "no URL": (["--catalog", "somewhere"], "--catalog: the catalog's URL cannot be read", "sqlite:///"),
    "another database": (["--catalog", "mysql://h/d"], "a catalog cannot be kept in 'mysql'", "sqlite:///"),
    "a database in a folder": (["--catalog", "sqlite:///."], "cannot be opened: ", "--catalog"),
    "a share that is none": (["--accuracy", "1"], "accuracy must be between 0 and 1", ""),
}


@pytest.mark.parametrize("command", ["up", "work", "serve"])
@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_used(
    what: str, command: str, project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options, reason, remedy = REFUSED[what]
    code, shown = refusal_of([command, *options], monkeypatch, capsys)
    assert (code, reason in shown, remedy in shown, "Traceback" in shown, "secret" in shown) == (
        2,
        True,
        True,
        False,
        False,
    ), shown


def test_a_missing_driver_is_named_with_what_installs_it(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)  # as if it were not installed
    for scheme in ("postgresql", "postgres", "postgresql+psycopg"):
        code, shown = refusal_of(["up", "--catalog", f"{scheme}://h/d"], monkeypatch, capsys)
        assert (code, "secret" in shown) == (2, False)
        assert "the package 'psycopg', which connects to postgresql, is not installed" in shown
        assert "pip install 'umbel[postgres]'" in shown


@pytest.mark.parametrize(
    "command", [["lookup", "Plane", "tailnum=N1"], ["query", "Origin", "-i", "Origin.origin=JFK"], ["feature-log"]]
)
def test_without_a_server_the_error_says_how_to_start_one(
    command: list[str], project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as free:  # bound, and nobody listens
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        code, shown = refusal_of([*command, "--url", url], monkeypatch, capsys)
    assert (code, url in shown, "refused" in shown, "umbel run MODULE" in shown, "--url" in shown) == (
        2,
        True,
        True,
        True,
        True,
    )


@pytest.mark.parametrize(
    "command",
    ["status", "audit", "expectations", "dead-letters A", "token list", "token revoke a", "backup b", "erase --now"],
)
def test_a_command_about_what_is_there_makes_no_deployment(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    code, shown = refusal_of(command.split(), monkeypatch, capsys)
    assert code == 2
    assert "there is no deployment of umbel in .umbel" in shown
    assert "--dir" in shown
    assert [each.name for each in project.iterdir()] == ["file"]


def test_a_folder_of_something_else_is_not_checked(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It became a deployment, private to this account, in which everything was there."""
    project.chmod(0o755)
    code, shown = refusal_of(["check", "--dir", str(project)], monkeypatch, capsys)
    assert (code, "there is no deployment of umbel" in shown) == (2, True)
    assert [each.name for each in project.iterdir()] == ["file"]
    assert project.stat().st_mode & 0o777 == 0o755


def test_a_token_of_no_role_makes_no_deployment(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, shown = refusal_of(["token", "create", "ci", "--role", "boss"], monkeypatch, capsys)
    assert (code, [each.name for each in project.iterdir()]) == (2, ["file"])
    assert "role 'boss' does not exist" in shown


@pytest.mark.parametrize(
    ("text", "target", "said"),
    [
        ("1 / 0", "made_features.py", "ZeroDivisionError"),
        ("", "made_features.py", "defines no dataset"),
        ("from umbel import App\napp = App()", "made_features.py:", "has no umbel.App ''; known: app"),
        ("def app(n): ...", "made_features.py:app", "has no umbel.App 'app'; it is of type function"),
        ("", "made_features.py:app", "app = umbel.App("),
        ("", "no_features.py", "there is no file"),
    ],
)
def test_a_run_that_is_refused_makes_no_folder(
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    text: str,
    target: str,
    said: str,
) -> None:
    (project / "made_features.py").write_text(text)
    code, shown = refusal_of(["run", target, "--dir", "new"], monkeypatch, capsys)
    assert (code, (project / "new").exists(), "Traceback" in shown) == (2, False, False)
    assert said in " ".join(shown.split())


@pytest.mark.parametrize("text", ["from ..helpers import x", "from . import x", "from ...helpers import x"])
def test_a_file_of_a_package_with_relative_imports(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    """The hint said to run it with Python, which fails in the same way."""
    folder = project / "pack" / "sub"
    folder.mkdir(parents=True)
    for each in (folder, folder.parent):
        (each / "__init__.py").touch()
    (folder / "feats.py").write_text(text)
    code, shown = refusal_of(["explain", "pack/sub/feats.py"], monkeypatch, capsys)
    assert code == 2
    assert "attempted relative import" in shown
    assert f"it is a module of a package: name it pack.sub.feats, and run umbel in {project}" in " ".join(shown.split())


@pytest.mark.parametrize(
    ("text", "said", "remedy"),
    [
        ("x = 1\n1 / 0", "ZeroDivisionError: division by zero (at {path}:2)", "mend it"),
        ("x = 1\ndef f(:", "SyntaxError: invalid syntax (at {path}:2)", "mend it"),
        (
            "import no_such_package",
            "ModuleNotFoundError: No module named 'no_such_package' (at {path}:1)",
            "install it for",
        ),
        ("raise SystemExit(4)", "SystemExit: 4 (at {path}:1)", "mend it"),
        ("class E(BaseException):\n    def __str__(self): 1 / 0\nraise E", "E: its text cannot be made", "mend it"),
        ("\0", "SyntaxError: source code string cannot contain null bytes|ValueError", "mend it"),
    ],
)
def test_a_module_that_cannot_be_imported(
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    text: str,
    said: str,
    remedy: str,
) -> None:
    (project / "broken_features.py").write_text(text)
    code, shown = refusal_of(["explain", "./broken_features.py"], monkeypatch, capsys)
    assert code == 2
    assert "module './broken_features.py' cannot be imported: " in shown
    assert any(each.format(path=project / "broken_features.py") in shown for each in said.split("|"))
    assert remedy in shown


@pytest.mark.parametrize("command", [["serve"], ["collect"], ["up"]])
def test_files_that_are_no_certificates(
    command: list[str], project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A server ended with a traceback, and `umbel run` started it again and again."""
    code, said = refusal_of([*command, "--tls-cert", "file", "--tls-key", "file"], monkeypatch, capsys)
    assert code == 2
    assert "TLS cannot use them" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("option", ["--keys", "--schema"])
def test_a_collector_with_files_that_cannot_be_used_does_not_announce_itself(
    option: str, project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "file").write_text("[")
    monkeypatch.setattr("umbel.collector.server._check_port", lambda _: None)
    code, said = refusal_of(["collect", "--dir", "events", option, "file"], monkeypatch, capsys)
    assert code == 2
    assert "POST" not in said
    code, said = refusal_of(["collect", "streams", "--dir", "nowhere"], monkeypatch, capsys)
    assert (code, "there is no folder nowhere" in said) == (2, True)


def test_an_address_of_another_machine_is_no_matter_of_the_port() -> None:
    with pytest.raises(Transient, match=r"cannot listen on 192\.0\.2\.1:8425") as refused:
        check("192.0.2.1", 8425)
    assert refused.value.hint == "name an address of this machine: --host"
