"""Transactions spread evenly over many users: nearly every row touches a key that is not in the memory of any process.

    python -m benchmarks.many_keys [ROWS [USERS]]

The job is that of `write_path`. Bars are those for 30 million rows over 10 million users, which take a few minutes; `run`
measures a third of it.
"""

from __future__ import annotations

import sys

from benchmarks.data import transactions
from benchmarks.figure import Figure, readable
from benchmarks.process import GIB, measure

ROWS, USERS, FILES = 9_000_000, 3_000_000, 30


def run() -> list[Figure]:
    """Measure umbel."""
    return figures(ROWS, USERS)


def figures(rows: int, users: int) -> list[Figure]:
    """Measure a number of rows over a number of users."""
    measured = measure("benchmarks.write_path", str(transactions(rows, FILES, users=users)))
    report = measured.report
    rate = report["rows"] / report["seconds"]
    return [
        Figure("many keys, start and all", rate, "rows/s", note=f"{rows:,} rows over {users:,} users"),
        Figure("many keys, after the first batch", report["steady"], "rows/s"),
        Figure("many keys, last third / first third", report["late"] / report["early"], "×", at_least=0.9),
        Figure("many keys, folder afterwards", report["disk"] / GIB, "GiB", at_most=2, note="state, logs and all"),
        Figure("many keys, peak memory", measured.pss / GIB, "GiB", note="with the pages of mapped files"),
        Figure("many keys, anonymous memory", max(size for _, size in measured.samples) / GIB, "GiB", at_most=2.5),
    ]


def main(rows: int = ROWS, users: int = USERS) -> None:
    """Print the figures."""
    for figure in figures(rows, users):
        print(f"{figure.name:45} {readable(figure.value):>12} {figure.unit:7} {figure.verdict:15} {figure.note}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
