"""Transactions to measure with: NDJSON files whose users follow a Zipf distribution, the same at every run.

python -m benchmarks.data 5000000 20
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl

ROWS = 5_000_000
FILES = 20
USERS = 1_000_000
COUNTRIES = np.array(["US", "IN", "GB", "DE", "FR", "BR", "JP", "VN"])
FIRST = 1_760_000_000_000
"""The earliest instant, in milliseconds since the epoch."""
SPAN = 10 * 86_400_000
"""How much event time the files cover, in milliseconds; each file takes its share, in order."""
SEED = 7
CACHE = Path(__file__).parent / ".data"


def transactions(rows: int = ROWS, files: int = FILES, cache: Path = CACHE, *, users: int | None = None) -> Path:
    """Return a folder of NDJSON files `transactions-000.ndjson`…, made when it is not there yet.

    Each line has uid, amount, merchant_id, country, payment_country and ts (milliseconds since the epoch).

    Args:
        rows: how many, in all files.
        files: how many.
        cache: where the folder is made.
        users: the number of users when rows are spread evenly over them; None for a Zipf distribution.
    """

    def write(folder: Path) -> None:
        generator = np.random.default_rng(SEED)
        for number in range(files):
            part = _file(generator, rows // files, number, files, users)
            part.write_ndjson(folder / f"transactions-{number:03}.ndjson")

    return made_once(cache / f"transactions-{rows}-{files}{'' if users is None else f'-{users}-users'}", write)


def made_once(folder: Path, write: Callable[[Path], None]) -> Path:
    """Return a folder; when it is not there yet, `write` fills it. One that is not finished is never there."""
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as draft:
            write(Path(draft))
            Path(draft).rename(folder)
            Path(draft).mkdir()  # what the context manager will remove
    return folder


def _file(generator: np.random.Generator, rows: int, number: int, files: int, users: int | None) -> pl.DataFrame:
    share = SPAN // files
    begin = FIRST + number * share
    uids = generator.zipf(1.2, rows) % USERS if users is None else generator.integers(0, users, rows)
    return pl.DataFrame(
        {
            "uid": uids.astype(np.int64),
            "amount": generator.gamma(2, 30, rows).round(2),
            "merchant_id": generator.integers(0, 50_000, rows),
            "country": COUNTRIES[generator.integers(0, len(COUNTRIES), rows)],
            "payment_country": COUNTRIES[generator.integers(0, len(COUNTRIES), rows)],
            "ts": np.sort(generator.integers(begin, begin + share, rows)),
        }
    )


if __name__ == "__main__":
    rows_requested, files_requested = (int(argument) for argument in sys.argv[1:3])
    print(transactions(rows_requested, files_requested))
