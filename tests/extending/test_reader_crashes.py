"""Readers of other packages that end the process: they rest, so that a worker that is started again gets on with others."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.extending.install import PACKAGE
from tests.extending.pages import put
from tests.extending.shelves import Shelves
from tests.extending.test_connector_contract import Poller
from umbel.connectors.call_mark import LONGEST_REST
from umbel.errors import Transient
from umbel.testing.connectors import read_options

ROOT = Path(__file__).parents[2]
SCRIPT = """
import os, sys, threading
from pathlib import Path
from tests.extending.test_connector_contract import Poller
from umbel.testing.connectors import read_options
from umbel_extras.shelf import Shelf, ShelfReader
original, ending = ShelfReader.read, sys.argv[3]

def read(reader, partition, offset):
    if partition == "b" and ending == "exit":
        os._exit(9)
    if partition == "b" and ending == "page":
        yield next(original(reader, partition, offset))
        os._exit(9)
    if partition == "b" and ending == "order":
        hanging.set()
        threading.Event().wait()
    yield from original(reader, partition, offset)

ShelfReader.read, hanging = read, threading.Event()
reading = Shelf(name="shelf", url=sys.argv[1]).items("a", "b").reader_of(read_options(Path(sys.argv[2])))
if ending == "order":
    threading.Thread(target=reading.read_on, args=[Poller()], daemon=True).start()
    hanging.wait()
    sys.exit(0)
reading.read_on(Poller())
"""


@pytest.fixture
def reading(server: Shelves, tmp_path: Path) -> Any:
    from umbel_extras.shelf import Shelf

    for shelf in "ab":
        put(server, shelf, range(1))
    return Shelf(name="shelf", url=server.url).items("a", "b").reader_of(read_options(tmp_path))


def end_process(server: Shelves, folder: Path, how: str) -> int:
    """Read in a process that ends meanwhile; return its exit code."""
    path = os.pathsep.join(map(str, [ROOT / "src", ROOT, PACKAGE]))
    command = [sys.executable, "-c", SCRIPT, server.url, str(folder), how]
    return subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, check=False).returncode


def test_a_reader_that_ends_the_process_rests(server: Shelves, reading: Any, tmp_path: Path) -> None:
    """It ended the worker as soon as that was started again: no other source was read any more."""
    assert end_process(server, tmp_path, "exit") == 9
    put(server, "a", range(1, 2))  # what another partition has does not count
    assert end_process(server, tmp_path, "exit") == 9
    with pytest.raises(
        Transient, match=r"ended 2 times in a row while partition 'b' was read; it is read again at \d\d:"
    ):
        reading.read_on(Poller())
    mark = reading.folder / "reading"
    os.utime(mark, (0, mark.stat().st_mtime - LONGEST_REST))
    reading.read_on(Poller())
    assert not mark.exists()
    assert {reading.stage.part(each).facts["partition"] for each in reading.stage.numbers()} == {"a", "b"}


@pytest.mark.parametrize("how", ["page", "order"])
def test_a_reader_that_gets_on_does_not_rest(server: Shelves, reading: Any, tmp_path: Path, how: str) -> None:
    """Each process has staged a page, or has ended in order."""
    for number in range(3):
        put(server, "b", range(100 * number, 100 * number + 1))
        assert end_process(server, tmp_path, how) == (9 if how == "page" else 0)
    reading.read_on(Poller())


@pytest.mark.parametrize("content", [b"", b"[", b"[1]", b'["x", 1]', b"{}", b"\xff"])
def test_a_damaged_mark_is_none(reading: Any, content: bytes) -> None:
    reading.folder.mkdir(parents=True)
    (reading.folder / "reading").write_bytes(content)
    reading.read_on(Poller())
    assert len(reading.stage.numbers()) == 2
