"""The reference pages name everything there is, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

from umbel.cli.main import app
from umbel.serving.app import ROUTES

DOCS = Path(__file__).parents[2] / "docs"


def test_every_command_is_documented() -> None:
    documented = set(re.findall(r"`umbel ([a-z-]+)", (DOCS / "cli.md").read_text(encoding="utf-8")))
    assert documented == {command.name for command in app.registered_commands}


def test_every_route_is_documented() -> None:
    documented = set(re.findall(r"`(GET|POST|PATCH|DELETE) (/[^`]*)`", (DOCS / "http.md").read_text(encoding="utf-8")))
    assert documented == {(method, path) for method, path, _ in ROUTES}
