"""The worker is killed again and again while files come; in the end the dataset is what the files are."""

from __future__ import annotations

import gzip
import random
import threading
import time
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pytest

from tests.connectors.killing import Worker, killed
from tests.connectors.s3_shop import lines
from tests.connectors.shop_datasets import deployed, letters
from tests.deployed import wait_until
from tests.seeds import chance_of_seed
from umbel.connectors import Files, source
from umbel.datasets import dataset

__owner__ = "shop@example.com"
FILES, KILLS = 250, 15
BROKEN = 10
"""Every so many files one has a line that is no JSON."""


def clicks(folder: Path) -> type:
    """Return the dataset of the files of a folder, packed or not."""

    @source(Files(name="site", folder=str(folder)).path("**/*.json*"), disorder="3650d", cdc="append", every="1s")
    @dataset
    class Clicks:
        user: int
        at: datetime

    return Clicks


def packed(content: bytes, number: int) -> tuple[str, bytes]:
    """Return the ending of a file and its bytes."""
    if number % 3 == 1:
        return ".json.gz", gzip.compress(content)
    if number % 3 == 2:
        return ".json.zst", pa.compress(content, codec="zstd", asbytes=True)
    return ".json", content


def written(folder: Path, chance: random.Random, rows: int) -> None:
    """Put in files of so many rows, each at once."""
    for number in range(FILES):
        content = lines(range(number * rows, (number + 1) * rows))
        if number % BROKEN == 0:
            content += b'{"user": \n'
        ending, stored = packed(content, number)
        (folder / ".new").write_bytes(stored)
        place = folder / f"{number % 7}"
        place.mkdir(exist_ok=True)
        (folder / ".new").rename(place / f"{number:03}{ending}")
        time.sleep(chance.uniform(0.0, 0.15))


@pytest.mark.nightly
@pytest.mark.parametrize("rows", [4_000], ids=["a million rows"])
def test_every_row_comes_once(tmp_path: Path, rows: int) -> None:
    chance, folder, log = chance_of_seed(), tmp_path / "site", tmp_path / "worker.log"
    total = {"Clicks": FILES * rows + FILES // BROKEN}
    folder.mkdir()
    with deployed(tmp_path, clicks(folder)) as made:
        worker = Worker(tmp_path / "umbel", log)
        writer = threading.Thread(target=written, args=(folder, random.Random(chance.random()), rows))
        try:
            killed(worker, writer, KILLS, chance)

            def is_done() -> bool:
                worker.mind()
                return made.taken().get("Clicks", 0) >= total["Clicks"]

            wait_until(is_done, lambda: (made.taken(), log.read_text()[-3000:]), 240)
            worker.end()
            assert made.taken() == total
            assert sorted(made.changes("Clicks")["user"]) == list(range(FILES * rows))
            assert len(letters(made)) == FILES // BROKEN
        finally:
            worker.end()
            writer.join()
