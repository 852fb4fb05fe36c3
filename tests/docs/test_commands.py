"""Commands, requests and settings that the pages show are those that umbel has; those of a running umbel are typed at one.

The tutorial's are typed by its own test.
"""

from __future__ import annotations

import configparser
import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
from umbel_reference.sources import metrics

from tests.docs.reader import Reader
from tests.docs.tutorial import Command
from umbel.cli.main import app
from umbel.serving.app import ROUTES

ROOT = Path(__file__).parents[2]
WRITTEN = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = [path for path in WRITTEN if "_build" not in path.parts]
FENCE = re.compile(r"^```(?P<kind>\w+)[^\n]*\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(*kinds: str) -> Iterator[tuple[Path, int, str]]:
    """Yield the blocks of these kinds: page, line and text."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for fence in FENCE.finditer(text):
            if fence["kind"] in kinds:
                yield page, text.count("\n", 0, fence.start("text")) + 1, fence["text"]


def commands(*pages: str) -> list[Command]:
    """Return the command lines of shell blocks, joined where one goes on, with the page's line; of all pages by default."""
    found = []
    for page, line, text in blocks("console"):
        if not pages or page.name in pages:
            joined = text.replace("\\\n", " ")
            found += [
                Command(line, each.removeprefix("$ "), None) for each in joined.splitlines() if each.startswith("$ ")
            ]
    return found


def words(text: str) -> list[list[str]]:
    """Return the words of each program call in a command line that calls umbel, without its name."""
    calls = [shlex.split(each, comments=True) for each in re.split(r"\||&&", text)]
    named = [[each for each in call if not re.fullmatch(r"[A-Z_]+=\S*", each)] for call in calls]
    return [call[1:] for call in named if call and call[0] == "umbel"]


@cache
def whole_command() -> Any:
    """Return the command line of umbel."""
    return typer.main.get_command(app)


def check_call(arguments: list[str], *, is_whole: bool) -> None:
    """Parse the arguments of `umbel` as the command line does, without running anything.

    Args:
        arguments: as typed.
        is_whole: True if no argument may be missing; the prose of pages shortens commands.

    Raises:
        Exception: an error of the command line's.
    """
    command: Any = whole_command()
    context = command.context_class(command, info_name="umbel")
    while hasattr(command, "resolve_command") and arguments[:1] != ["--help"]:
        if command.invoke_without_command and (not arguments or arguments[0].startswith("-")):
            break  # its own options, without a subcommand
        _, command, arguments = command.resolve_command(context, arguments)
        context = command.context_class(command, info_name=command.name, parent=context)
    if is_whole and "--help" not in arguments:
        command.make_context(command.name, list(arguments))
    command.make_parser(context).parse_args(list(arguments))


@pytest.mark.parametrize("page", PAGES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_commands_of_a_page_are_umbels(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("cert.pem", "key.pem", "features.py", "config.yaml", "schema.json", "keys.toml"):
        (tmp_path / name).touch()
    text = page.read_text(encoding="utf-8")
    typed = [(each.text, True) for each in commands(page.name)]
    mentioned = [(each, False) for each in re.findall(r"`(umbel [a-z][^`\n]*)`", text) if "…" not in each]
    for line, is_whole in typed + mentioned:
        for call in words(line):
            try:
                check_call(call, is_whole=is_whole)
            except Exception as error:
                raise AssertionError(f"{page.name}: {line}: {error}") from error


WRONG = [
    "umbel lokup Spending",
    "A=1 umbel lookup Spending u=1 --as-off x",
    "umbel commit",
    "echo x | umbel log a b - --wiat",
]


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_command_is_found(wrong: str) -> None:
    with pytest.raises(Exception, match=r"No such|Missing"):
        check_call(words(wrong)[0], is_whole=True)


def test_requests_go_to_routes_and_carry_json() -> None:
    found = 0
    for command in commands():
        if "curl" in command.text:
            call = shlex.split(command.text)
            ((port, path),) = re.findall(r"localhost:(8425|8426)(/[^?'\s]*)", command.text)
            if port == "8426":  # a collector's, typed by test_collect.py
                continue
            method = "POST" if "-d" in call else "GET"
            patterns = [re.sub(r"\{\w+\}", "[^/]+", each.path) for each in ROUTES if each.method == method]
            assert any(re.fullmatch(each, path) for each in patterns), command.text
            if "-d" in call and not (body := call[call.index("-d") + 1]).startswith("@"):
                json.loads(body)
            found += 1
    assert found > 2


def test_settings_and_values_can_be_read() -> None:
    for page, line, text in blocks("json"):
        for each in [text] if text.startswith("{\n") or text.count("\n{") == 0 else text.splitlines():
            assert json.loads(each), f"{page.name}:{line}"
    for page, line, text in blocks("toml"):
        assert tomllib.loads(text), f"{page.name}:{line}"
    for page, line, text in blocks("ini"):
        parser = configparser.RawConfigParser(strict=False)
        parser.optionxform = str  # type: ignore[assignment, method-assign]
        parser.read_string(text)
        check_call(words(parser["Service"]["ExecStart"].rpartition("/bin/")[2])[0], is_whole=True)
        assert parser.sections() == ["Unit", "Service", "Install"], f"{page.name}:{line}"
    for page, line, text in blocks("py"):
        compile(text, f"{page.name}:{line}", "exec")
    known = {each.name for each in metrics()}
    for _, _, text in blocks("yaml"):
        assert set(re.findall(r"\bumbel_\w+", text)) <= known


DEFINITIONS = """
from datetime import datetime

from umbel import Continuous, Dataset, F, Sum, Webhook
from umbel import dataset, expectations, featureset, field, index, inputs, pipeline, source
from umbel.lib.expectations import expect_column_values_to_be_between

__owner__ = "shop@example.com"


@source(Webhook(name="shop").endpoint("orders"), disorder="1d", cdc="append")
@dataset
class Order:
    user: str
    amount: float
    at: datetime

    @expectations
    def checks(cls):
        return [expect_column_values_to_be_between("amount", min_value=0)]


@index
@dataset
class Spending:
    user: str = field(key=True)
    spent: float
    at: datetime

    @pipeline
    @inputs(Order)
    def by_user(cls, orders: Dataset):
        return orders.groupby("user").aggregate(spent=Sum(of="amount", window=Continuous("1h")))


@featureset
class User:
    user: str
    spent: float = F(Spending.spent, default=0.0)
"""
TYPED = ("debug.md", "monitor.md", "training-sets.md", "upgrade.md", "security.md", "production.md", "backup.md")
NOT_HERE = re.compile(r"systemctl|\btar\b|\bcp\b|\bpip\b|umbel up|s3:|--track")
"""Commands of an operating system, of another server, or of an offline job, which tests/contracts have."""


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    reader = Reader(tmp_path, "features.py")
    yield reader
    reader.stop()


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_commands_of_the_pages_work(reader: Reader) -> None:
    reader.save("features.py", DEFINITIONS)
    reader.start("umbel run features.py -w 1", Command(0, "umbel run", "…\numbel: ready after …\n…"), "umbel run")
    event = '{"user": "ada", "amount": 30.0, "at": "2026-03-02T09:40:00Z"}'
    failed = [] if reader.type(Command(0, f"echo '{event}' | umbel log shop orders - --wait", None)) == 0 else ["log"]
    clone = [text for page, _, text in blocks("py") if page.name == "upgrade.md"]
    reader.save("clone.py", clone[0])
    lines = [Command(0, "python clone.py", None), *commands(*TYPED)]
    for command in lines:
        if not NOT_HERE.search(command.text):
            text = command.text.replace("/var/lib/umbel", ".umbel").replace("curl -s", "curl -sf")
            text = text.replace("/mnt/backups", "backups")
            if reader.type(Command(command.line, text, None)) != 0:
                failed.append(text)
    assert failed == []
    assert len(lines) > 20
