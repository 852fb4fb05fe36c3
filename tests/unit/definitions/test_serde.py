"""Definitions as bytes, read where the committing program's modules are not installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

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
