"""The reference pages name everything there is, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import umbel_reference
from sphinx.errors import ExtensionError
from umbel_reference.docstrings import rendered
from umbel_reference.pages import PARTS
from umbel_reference.public import public, undocumented
from umbel_reference.sources import error_classes, metrics, variables

import umbel
from umbel.cli.main import app
from umbel.errors import UmbelError
from umbel.expr.registry import FUNCTIONS
from umbel.serving.app import ROUTES

DOCS = Path(__file__).parents[2] / "docs"


def test_every_command_is_documented() -> None:
    documented = set(re.findall(r"`umbel ([a-z-]+)", (DOCS / "cli.md").read_text(encoding="utf-8")))
    commands = {command.name for command in app.registered_commands}
    assert documented == commands | {group.name for group in app.registered_groups}


def test_every_route_is_documented() -> None:
    documented = set(
        re.findall(r"`(GET|POST|PATCH|DELETE) (/[^`?]*)[^`]*`", (DOCS / "http.md").read_text(encoding="utf-8"))
    )
    assert documented == {(each.method, each.path) for each in ROUTES}


def test_the_reference_leaves_nothing_out() -> None:
    assert list(umbel_reference.errors()) == []


def test_a_public_name_without_docstring_ends_the_build(monkeypatch: pytest.MonkeyPatch) -> None:
    def silent() -> None: ...

    silent.__module__ = "umbel.api.silent"
    monkeypatch.setattr(umbel, "silent", silent, raising=False)
    monkeypatch.setattr(umbel, "__all__", [*umbel.__all__, "silent"])
    assert undocumented() == ["umbel.silent has no docstring"]
    with pytest.raises(ExtensionError, match=r"umbel\.silent has no docstring"):
        umbel_reference.check()


def test_a_public_name_without_page_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    class Astray:
        """A class of a package no page knows."""

        def method(self) -> None: ...

    Astray.__module__ = "umbel.elsewhere"
    monkeypatch.setattr(umbel, "Astray", Astray, raising=False)
    monkeypatch.setattr(umbel, "__all__", [*umbel.__all__, "Astray"])
    first, second = undocumented()
    assert first.startswith("umbel.Astray of umbel.elsewhere has no page")
    assert second == "umbel.Astray.method has no docstring"


def test_a_variable_that_the_page_leaves_out_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(umbel_reference, "variables", lambda: {"UMBEL_FORGOTTEN", "UMBEL_TOKEN"})
    assert list(umbel_reference.errors()) == ["UMBEL_FORGOTTEN is missing from environment.md"]


def test_variables_are_those_the_source_names() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in (DOCS.parent / "src").rglob("*.py"))
    named = set(re.findall(r"""["'](UMBEL_[A-Z_]+)["']""", text))
    assert variables() == named
    limits = {"UMBEL_FUNCTION_ROW_SECONDS", "UMBEL_FUNCTION_BATCH_SECONDS", "UMBEL_FUNCTION_MEMORY"}
    page = (DOCS / "reference" / "environment.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"`(UMBEL_[A-Z_]+)", umbel_reference.filled(page)))
    assert listed == {each for each in named if not each.endswith("_")} | limits | {"UMBEL_SECRET_NAME", "UMBEL_URL_"}


def test_every_public_name_has_a_section() -> None:
    names = public()
    sections = {page: PARTS[f"names {page}"]() for page in {each.page for each in names}}
    for each in names:
        section = sections[each.page]
        assert f"## {each.name}\n" in section
        assert f"`{each.modules[0]}`" in section


def test_every_function_of_expressions_has_a_section() -> None:
    text = PARTS["expressions"]()
    absent = [each.key for each in FUNCTIONS.values() if each.family and f"`.{each.family}.{each.name}" not in text]
    assert absent == []


def test_every_command_has_a_section_with_its_options() -> None:
    text = PARTS["commands"]()
    for command in app.registered_commands:
        assert f"## `umbel {command.name}`" in text
    assert "## `umbel token create`" in text
    assert "| `--backfill, --no-backfill` |" in text
    assert "| `--dir` | `UMBEL_DIR` | .umbel | Where umbel keeps everything. |" in text


def test_every_route_has_a_section() -> None:
    assert re.findall(r"## `(.*)`", PARTS["routes"]()) == [f"{each.method} {each.path}" for each in ROUTES]


def test_metrics_are_those_that_are_registered() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in (DOCS.parent / "src").rglob("*.py"))
    made = set(re.findall(r"""(?:Counter|Gauge|Histogram)\(\s*"(umbel_\w+)\"""", text))
    assert {each.name.removesuffix("_total") for each in metrics()} == {name.removesuffix("_total") for name in made}
    assert all(each.doc for each in metrics())


def test_error_codes_are_those_of_the_classes() -> None:
    found = {each.name: each for each in error_classes()}
    assert found["UmbelError"].code == UmbelError.code
    assert found["UnknownName"].builtins == ("KeyError",)
    text = PARTS["error codes"]()
    assert [each.code for each in found.values() if f"(../errors.md#{each.code})" not in text] == []


def test_a_docstring_becomes_markdown() -> None:
    text = """Do it, to a < b.

    Args:
        one: the first,
            continued.
        two: `a | b`.

    >>> 1 + 1
    2

    Examples:
        umbel a

        umbel b
    """
    assert rendered(text).split("\n\n") == [
        "Do it, to a \\< b.",
        "**Args**",
        "* `one`: the first,\n  continued.\n* `two`: `a | b`.",
        "```pycon\n>>> 1 + 1\n2\n```",
        "```sh\numbel a",
        "umbel b\n```",
    ]
