"""Definitions as bytes, read where the committing program's modules are not installed."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from umbel.aggregates import Count
from umbel.api.commit import check_commit
from umbel.datasets import dataset, field, pipeline
from umbel.definitions.records import Definitions
from umbel.definitions.serde import dump, load
from umbel.errors import InvalidValue
from umbel.graph.tiled import tiled
from umbel.lib import inputs, meta
from umbel.types.windows import Continuous
from umbel.windowing.tiling import Tiling

PROGRAM = """
from datetime import datetime
from umbel import dataset, meta
from umbel.dtypes import struct

@struct
class Money:
    amount: int
    currency: str

@meta(owner="shop@example.com")
@dataset
class Order:
    price: Money
    at: datetime
"""
WRITE = """
import sys
from pathlib import Path
from umbel.api.commit import check_commit
from umbel.definitions.serde import dump
from shop_with_structs import Order
Path(sys.argv[1]).write_bytes(dump(check_commit([Order], [])))
"""
READ = """
import sys
from pathlib import Path
from umbel.definitions.serde import load
dtype = load(Path(sys.argv[1]).read_bytes()).datasets["Order"].schema.dtypes["price"]
value = dtype.make({"amount": 5, "currency": "EUR"})
print(value.amount, value["currency"])
"""


def run(script: str, folder: Path, path: Path) -> str:
    command = [sys.executable, "-c", script, str(path)]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


def test_struct_classes_of_modules_that_are_not_installed_have_stand_ins(tmp_path: Path) -> None:
    program, elsewhere = tmp_path / "program", tmp_path / "elsewhere"
    program.mkdir()
    elsewhere.mkdir()
    (program / "shop_with_structs.py").write_text(PROGRAM, encoding="utf-8")
    run(WRITE, program, tmp_path / "definitions")
    assert run(READ, elsewhere, tmp_path / "definitions") == "5 EUR\n"


def test_a_reader_beside_the_program_does_not_run_it(tmp_path: Path) -> None:
    """A server is often started where the definitions are."""
    (tmp_path / "shop_with_structs.py").write_text(PROGRAM, encoding="utf-8")
    run(WRITE, tmp_path, tmp_path / "definitions")
    (tmp_path / "shop_with_structs.py").write_text("raise SystemExit('the program was run')", encoding="utf-8")
    assert run(READ, tmp_path, tmp_path / "definitions") == "5 EUR\n"


def test_definitions_with_the_tiling_of_a_deployment_can_be_written_and_read() -> None:
    """A deployment applies its tiling after the commit; definitions that have one anyhow are not lost."""

    @meta(owner="shop@example.com")
    @dataset
    class Order:
        user: int
        at: datetime

    @meta(owner="shop@example.com")
    @dataset(index=True)
    class Orders:
        user: int = field(key=True)
        n: int
        at: datetime

        @pipeline
        @inputs(Order)
        def count(cls, orders: Any) -> Any:
            return orders.groupby("user").aggregate(n=Count(window=Continuous("1d")))

    definitions = check_commit([Order, Orders], [])
    made = {each.name: each for each in tiled(definitions.datasets.values(), Tiling(accuracy=0.5, exact=3))}
    found = load(dump(Definitions(made, {}))).datasets["Orders"].output
    assert found.tiling == Tiling(accuracy=0.5, exact=3)
    assert found.id == made["Orders"].output.id != definitions.datasets["Orders"].output.id


def test_what_a_reader_refuses_cannot_be_written() -> None:
    @dataclass(frozen=True)
    class Odd:
        x: int = 1

    Odd.__module__ = "umbel.serving.gate"
    with pytest.raises(InvalidValue, match=r"'serving\.gate\..*Odd' is no class that definitions are made of"):
        dump(Definitions({}, {}, env=Odd()))
