"""The tutorial works: its files are saved, its commands typed, and they print what it shows."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.docs.tutorial import Change, Command, File, is_printed, steps
from tests.scenarios.server import free_port

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"
PATIENCE = 180.0
PORT = "8425"
"""The port that the page speaks of; the test takes a free one."""


class Reader:
    """Somebody with an empty folder, who does what the page says."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, str(free_port())
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        own = {name: value for name, value in os.environ.items() if not name.startswith(("UMBEL_", "PYTEST_"))}
        url = f"http://localhost:{self.port}"
        self.environment = {**own, "PATH": path, "UMBEL_PORT": self.port, "UMBEL_URL": url, "COLUMNS": "100"}
        self.running: subprocess.Popen[bytes] | None = None

    def save(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text.replace(PORT, self.port), encoding="utf-8")

    def change(self, change: Change) -> None:
        path = self.folder / change.name
        path.write_text(change.applied(path.read_text(encoding="utf-8")), encoding="utf-8")

    def type(self, command: Command) -> None:
        text, where = command.text.replace(PORT, self.port), f"{PAGE.name}:{command.line}: {command.text}"
        if text.startswith("umbel run"):
            self.start(text, command, where)
            return
        ran = subprocess.run(
            ["bash", "-c", text], cwd=self.folder, env=self.environment, timeout=PATIENCE, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
        if command.output is not None:
            assert is_printed(command.output.replace(PORT, self.port), ran.stdout), f"{where} prints\n{ran.stdout}"

    def start(self, text: str, command: Command, where: str) -> None:
        assert self.running is None, f"{where}: it runs already"
        log, shown = self.folder / "run.log", (command.output or "").replace(PORT, self.port)
        with log.open("wb") as out:
            self.running = subprocess.Popen(
                text.split(), cwd=self.folder, env=self.environment, stdout=out, stderr=out, stdin=subprocess.DEVNULL
            )
        deadline = time.monotonic() + PATIENCE
        while not is_printed(shown, log.read_text(encoding="utf-8")):
            said = log.read_text(encoding="utf-8")
            assert time.monotonic() < deadline, f"{where} prints\n{said}"
            assert self.running.poll() is None, f"{where} ended:\n{said}"
            time.sleep(0.1)

    def stop(self) -> None:
        if self.running is not None:
            family = psutil.Process(self.running.pid).children(recursive=True) if self.running.poll() is None else []
            self.running.send_signal(signal.SIGINT)
            try:
                self.running.wait(60)
            except subprocess.TimeoutExpired:
                self.running.kill()
            _, left = psutil.wait_procs(family, timeout=20)
            for each in left:
                each.kill()
            assert left == []


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    reader = Reader(tmp_path)
    yield reader
    reader.stop()


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_the_tutorial_works(reader: Reader) -> None:
    for step in steps(PAGE.read_text(encoding="utf-8")):
        match step:
            case File(name, text):
                reader.save(name, text)
            case Change():
                reader.change(step)
            case Command():
                reader.type(step)
    assert reader.running is not None


def test_a_page_is_read_as_it_is_meant() -> None:
    page = (
        "```python\n# a.py\nx = 1\ny = 2\n```\n```diff\n--- a.py\n@@\n x = 1\n-y = 2\n+y = 3\n```\n"
        "```sh\npip install umbel\n```\n```sh\nls\n```\n```console\n$ echo a\na\n$ true\n```\n"
    )
    assert list(steps(page)) == [
        File("a.py", "# a.py\nx = 1\ny = 2\n"),
        Change("a.py", "x = 1\ny = 2\n", "x = 1\ny = 3\n"),
        Command(17, "ls\n", None),
        Command(20, "echo a", "a\n"),
        Command(22, "true", ""),
    ]


def test_a_change_must_fit_once() -> None:
    assert Change("a.py", "y\n", "z\n").applied("x\ny\n") == "x\nz\n"
    for text in ("x\n", "y\ny\n"):
        with pytest.raises(AssertionError, match="does not have this once"):
            Change("a.py", "y\n", "z\n").applied(text)


@pytest.mark.parametrize(
    ("shown", "printed", "expected"),
    [
        ("a\n", "\na  \n", True),
        ("a\n", "a\nb\n", False),
        ("after … s\n", "after 1.5 s\n", True),
        ("after … s\n", "after 1.5\ns\n", False),
        ("…\nend\n", "a\nb\nend\n", True),
        ("…\nend\n", "a\nb\n", False),
        ("", "", True),
        ("", "a\n", False),
    ],
)
def test_an_output_is_compared_with_what_is_shown(shown: str, printed: str, expected: bool) -> None:
    assert is_printed(shown, printed) is expected
