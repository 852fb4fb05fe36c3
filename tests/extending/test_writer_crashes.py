"""Writers of other packages that end the process: they rest, so that a worker that is started again gets on."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.connectors.sink_shop import Shop
from tests.extending.shelves import Shelves
from umbel.connectors.call_mark import LONGEST_REST
from umbel.connectors.sinks import RowChange
from umbel.errors import Transient

ROOT = Path(__file__).parents[2]
SCRIPT = """
import os, sys
from pathlib import Path
from umbel.runtime.deliveries import SinkDelivery, sinks
from umbel.runtime.deployment import Deployment
from umbel_extras.shelf import Items, ShelfWriter

place, ending = Deployment.at(Path(sys.argv[1])), sys.argv[2]
if ending == "writer":
    Items.writer = lambda *_: os._exit(9)
else:
    ShelfWriter.deliver = lambda *_: os._exit(9) if ending == "deliver" else None
for each in sinks(place, place.catalog.revision()).values():
    if each.dataset == "Large":
        SinkDelivery(place, each).step()
"""


@pytest.fixture
def sent() -> list[RowChange]:
    return []


@pytest.fixture
def made(server: Shelves, tmp_path: Path, sent: list[RowChange], monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    from umbel_extras.shelf import Shelf, ShelfWriter

    monkeypatch.setattr(ShelfWriter, "deliver", lambda _, key, changes: sent.extend(changes))
    shelf = Shelf(name="shelf", url=server.url)
    with closing(Shop(tmp_path, shelf.items("large"), shelf.items("norse"))) as found:
        yield found


def step(made: Shop, site: Path, ending: str) -> int:
    """Deliver in a process whose writer may end it; return its exit code."""
    path = os.pathsep.join(map(str, [ROOT / "src", ROOT, site]))
    command = [sys.executable, "-c", SCRIPT, str(made.folder), ending]
    return subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, check=False).returncode


@pytest.mark.parametrize("ending", ["writer", "deliver"])
def test_a_writer_that_ends_the_process_rests(made: Shop, sent: list[RowChange], site: Path, ending: str) -> None:
    """It ended the worker as soon as that was started again: no batch was finished any more."""
    made.sell(20, 30)
    made.move(1, "Oslo")
    made.drain()
    assert [step(made, site, ending) for _ in range(2)] == [9, 9]
    for _ in range(2):
        with pytest.raises(Transient, match=r"ended 2 times in a row while it was written to; .* again at \d\d:\d\d"):
            made.delivery("Large").step()
    assert made.delivery("Norse").step() == 1
    (mark,) = (made.folder / "sinking").rglob("*ing")
    os.utime(mark, (0, mark.stat().st_mtime - LONGEST_REST))
    assert made.delivery("Large").step() == 2
    assert not mark.exists()
    assert len(sent) == 3


def test_a_writer_that_gets_on_does_not_rest(made: Shop, site: Path) -> None:
    for amount in (20, 30):
        made.sell(amount)
        made.drain()
        assert [step(made, site, ending) for ending in ("deliver", "none")] == [9, 0]
