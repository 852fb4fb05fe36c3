"""Memory that was freed is the system's again."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys

import pytest

from umbel.processes.allocation import RETAINING, retain_freed_memory, retaining

PROGRAM = """
import numpy as np, psutil
from umbel.processes.allocation import release_unused_memory
own = psutil.Process()
blocks = [np.ones(8000) for _ in range(4000)]
last = blocks.pop()
full = own.memory_info().rss
del blocks
before = own.memory_info().rss
release_unused_memory()
print(full - own.memory_info().rss, full - before, int(last.sum()))
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="the C library is not glibc")
def test_freed_memory_is_returned() -> None:
    program = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    released, already, used = map(int, program.stdout.split())
    assert used == 8000
    assert already < 64 << 20, "the case: the allocator kept it"
    assert released > 150 << 20, "most of 244 MiB; the system may have taken some of it before"


AGAIN = """
import json, os, sys
from umbel.processes.allocation import RETAINING, retain_freed_memory
retain_freed_memory()
print(json.dumps([os.getpid(), sys.argv[1:], {name: os.environ[name] for name in RETAINING}]))
"""


def test_a_program_starts_again_once_with_the_settings_that_it_lacks() -> None:
    name = next(iter(RETAINING))
    environment = {each: value for each, value in os.environ.items() if each not in RETAINING} | {name: "narenas:1"}
    command = [sys.executable, "-P", "-c", AGAIN, "work", "--dir", "a b"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as program:
        process, arguments, found = json.loads(program.communicate(timeout=60)[0])
    assert process == program.pid
    assert arguments == ["work", "--dir", "a b"]
    assert found == {**RETAINING, name: "narenas:1"}, "what the user has set remains"


def test_settings_are_added_to_an_environment() -> None:
    assert retaining({}) == RETAINING
    assert retaining({"HOME": "/h"}) == {**RETAINING, "HOME": "/h"}


def test_a_program_with_arguments_of_its_own_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["umbel", "work", "--dir", "of a test"])
    for name in RETAINING:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.execve", lambda *_: pytest.fail("it started again"))
    retain_freed_memory()


GAPS = """
import sys
import psutil
from umbel.processes.allocation import trim
own = psutil.Process()
before = own.memory_info().rss
blocks = [b"x" * (64000 if number % 2 else 600) for number in range(4000)]
blocks = blocks[::2]
full = own.memory_info().rss
trim()
print(full - before, own.memory_info().rss - before, "pyarrow" in sys.modules)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="the C library is not glibc")
def test_gaps_between_blocks_are_returned() -> None:
    program = subprocess.run([sys.executable, "-c", GAPS], capture_output=True, text=True, check=True)
    full, left, loads_arrow = program.stdout.split()
    assert int(full) > 64 << 20, "the case: the blocks between were retained"
    assert int(left) < 32 << 20
    assert loads_arrow == "False", "the process that reads and writes for a transformation has no use for it"
