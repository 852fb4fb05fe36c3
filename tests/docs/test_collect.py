"""What the page about the collector shows is typed at one, and answers what the page says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.collecting import CollectorProcess

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "collect.md"
CONFIG = "source_field: user\ntarget_field: name\ntransformations: [{name: upper}]\n"


def typed() -> list[tuple[str, str]]:
    """Return the commands of the page with the output that it shows, except for those that start a collector."""
    found: list[tuple[str, str]] = []
    for block in re.findall(r"^```console\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
        for line in block.splitlines(keepends=True):
            if line.startswith("$ "):
                found.append((line[2:].strip(), ""))
            else:
                found[-1] = found[-1][0], found[-1][1] + line
    return [each for each in found if not each[0].startswith("umbel collect --")]


def test_commands_of_the_page_print_what_it_shows(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG)
    collector = CollectorProcess(tmp_path)
    collector.wait()
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    commands = typed()
    assert len(commands) > 10
    for command, shown in commands:
        line = command.replace("localhost:8426", f"127.0.0.1:{collector.port}")
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=tmp_path,
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        printed = done.stdout if done.stdout.endswith("\n") or not done.stdout else done.stdout + "\n"
        pattern = ".*".join(map(re.escape, shown.split("…")))
        assert re.fullmatch(pattern, printed, re.DOTALL), f"{command}\n{printed}"
    assert collector.stop() == 0
