"""What the processes of extractors are told of the datasets they look up."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import sys
from datetime import datetime
from pathlib import Path
from umbel import dataset, field, meta
from umbel.api.commit import check_commit
from umbel.definitions.serde import dump
from umbel.dtypes import struct

@struct
class Money:
    amount: int
    currency: str

@meta(owner="shop@example.com")
@dataset(index=True)
class Price:
    item: str = field(key=True)
    price: Money
    at: datetime

Path(sys.argv[1]).write_bytes(dump(check_commit([Price], [])))
"""
SERVER = """
import socket, subprocess, sys
from pathlib import Path
from types import SimpleNamespace
from umbel.definitions.serde import load
from umbel.isolation.wire import send
from umbel.query.isolated import DATASET, answered
session = SimpleNamespace(dataset=load(Path(sys.argv[1]).read_bytes()).datasets.__getitem__)
here, there = socket.socketpair()
send(here, (False, answered(session, (DATASET, "Price"))))
subprocess.run([sys.executable, "-c", sys.argv[2], str(there.fileno())], pass_fds=[there.fileno()], check=True)
"""
CHILD = """
import socket, sys
from umbel.isolation import child
from umbel.query.isolated import _Session
child._questions[:] = [child.Questions(socket.socket(fileno=int(sys.argv[1])))]
with child._questions[0].allowed():
    price = _Session().dataset("Price").dtypes["price"].make({"amount": 5, "currency": "EUR"})
print(type(price).__name__, price.amount, price["currency"])
"""


def test_a_struct_of_a_script_is_known_in_the_process_of_an_extractor(tmp_path: Path) -> None:
    """Its class is of a `__main__` that neither the server nor the child has."""
    shown = ""
    for script, *arguments in ((SCRIPT,), (SERVER, CHILD)):
        command = [sys.executable, "-c", script, str(tmp_path / "definitions"), *arguments]
        shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert shown == "Money 5 EUR\n"
