"""Run the benchmarks, print the table, write `benchmarks/results.json`.

    python -m benchmarks.run                 all
    python -m benchmarks.run write_path …    some, by the name of their file

A benchmark is a module of this folder with a function `run() -> list[Figure]`. Each runs in a process of its own, one
after the other. The command fails when a bar is missed.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import psutil
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from benchmarks.figure import Figure, readable
from umbel.spark import aot_cache

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "results.json"
PACKAGES = ("pyspark", "polars", "pyarrow")
STYLES = {True: "green", False: "red", None: ""}
ONE = "--one"


def names() -> list[str]:
    """Return the names of the benchmarks in this folder."""
    return sorted(path.stem for path in FOLDER.glob("*.py") if "\ndef run(" in path.read_text(encoding="utf-8"))


def main(requested: list[str]) -> int:
    """Run the named benchmarks, all by default; return how many figures miss their bar."""
    known = [name for name in names() if name != Path(__file__).stem]
    if unknown := sorted(set(requested) - set(known)):
        raise SystemExit(f"no benchmark {', '.join(unknown)}; there are: {', '.join(known)}")
    console = Console(width=None if sys.stdout.isatty() else 140)
    _warm_up()
    results, failed = dict[str, list[Figure]](), list[str]()
    for name in requested or known:
        with console.status(f"{name} …"):
            begun = time.monotonic()
            try:
                results[name] = in_own_process(name)
            except subprocess.CalledProcessError:  # its error is above
                failed.append(name)
        took = f"{time.monotonic() - begun:.0f} s"
        console.print(f"[red]{name}: failed after {took}[/red]" if name in failed else f"[dim]{name}: {took}[/dim]")
    console.print(table(results))
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}; to run them again: python -m benchmarks.run {' '.join(failed)}")
    if not requested:
        RESULTS.write_text(json.dumps(record(results), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return sum(figure.is_reached is False for figures in results.values() for figure in figures)


def _warm_up() -> None:
    """Let every Spark of the run start from what Java has learned, the baseline's too."""
    cache = aot_cache.location()
    if cache is not None and not cache.exists():
        aot_cache.make()


def in_own_process(name: str) -> list[Figure]:
    """Run one benchmark in a process of its own and return its figures."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "figures.json"
        subprocess.run([sys.executable, "-m", "benchmarks.run", ONE, name, str(target)], check=True)
        return [Figure(**figure) for figure in json.loads(target.read_text(encoding="utf-8"))]


def one(name: str, target: str) -> None:
    """Run one benchmark here and write its figures to a file."""
    figures = import_module(f"benchmarks.{name}").run()
    Path(target).write_text(json.dumps([asdict(figure) for figure in figures]), encoding="utf-8")


def table(results: dict[str, list[Figure]]) -> Table:
    """Return the table of all figures with their bars and verdicts."""
    shown = Table("benchmark", "figure", "", "bar", "verdict", "note")
    shown.columns[2].justify = "right"
    for name, figures in results.items():
        for figure in figures:
            value = f"{readable(figure.value)} {figure.unit}"
            shown.add_row(
                name,
                escape(figure.name),
                value,
                figure.bar,
                figure.verdict,
                escape(figure.note),
                style=STYLES[figure.is_reached],
            )
        shown.add_section()
    return shown


def record(results: dict[str, list[Figure]]) -> dict[str, object]:
    """Return what is written to the results file: the figures, and the machine they are from."""
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {
            "cores": os.cpu_count(),
            "memory_gib": round(psutil.virtual_memory().total / (1 << 30), 1),
            "system": platform.system(),
            "python": platform.python_version(),
        },
        "packages": {name: version(name) for name in PACKAGES},
        "figures": {
            name: [asdict(figure) | {"is_reached": figure.is_reached} for figure in figures]
            for name, figures in results.items()
        },
    }


if __name__ == "__main__":
    if sys.argv[1:2] == [ONE]:
        one(*sys.argv[2:4])
    else:
        sys.exit(1 if main(sys.argv[1:]) else 0)
