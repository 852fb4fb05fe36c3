"""The transformation worker beside a plain Python worker and DuckDB, on the same nested records.

    python -m benchmarks.transform [RECORDS [STREAMED]]

The reference configuration is `transform.yaml`: custom code, dates, casts, renaming, a regular expression. Runs of the three
alternate; the best of each counts. Memory is of the whole process tree, shared pages divided.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

from benchmarks.data import CACHE
from benchmarks.figure import Figure
from benchmarks.process import Measured, Watch, measure
from umbel.transform.inputs import PART_BYTES

RECORDS, STREAMED = 1_000_000, 5_000_000
TRIALS = 3
SEED = 11
CONFIG = Path(__file__).with_name("transform.yaml")
TRANSLATED = 'return source_field.get("config_name").lower()'
UNTRANSLATED = 'return "-".join(sorted(re.findall("[a-z]+", source_field.get("config_name").lower())))'
"""Code outside of the subset that becomes a Polars expression."""
PYTHON_BAR, DUCKDB_BAR, UNTRANSLATED_BAR = 5.9, 0.7, 2.5
MEMORY_BAR = 2.0
MIB = 1 << 20
MEMORY_NOTE = "the bar is twice Python's and the lines of a batch per core; Polars, once loaded, takes 55 MiB"
NAMES = ("Dark_Mode", "Checkout", "SEARCH", "New-Onboarding", "beta_feed")


def run() -> list[Figure]:
    """Measure the three ways in turn."""
    return figures(RECORDS, STREAMED)


def figures(count: int, streamed: int) -> list[Figure]:
    """Measure on so many records, and the memory of a longer stream."""
    source = records(count)
    with TemporaryDirectory(dir=CACHE) as folder:
        reference = _measured(CONFIG, source, Path(folder), ("python", "duckdb", "umbel"))
        changed = Path(folder) / "untranslated.yaml"
        changed.write_text(CONFIG.read_text(encoding="utf-8").replace(TRANSLATED, UNTRANSLATED), encoding="utf-8")
        python = _measured(changed, source, Path(folder), ("python", "umbel"))
    rates = {way: count / min(each.report["seconds"] for each in runs) for way, runs in reference.items()}
    memory = {way: min(each.pss for each in runs) / MIB for way, runs in reference.items()}
    slow = {way: count / min(each.report["seconds"] for each in runs) for way, runs in python.items()}
    batch = PART_BYTES * (psutil.cpu_count() or 1) / MIB
    note = f"{count:,} records of {source.stat().st_size // count} bytes"
    return [
        *(Figure(f"transform: {way}", rate, "records/s", note=note) for way, rate in rates.items()),
        Figure("transform: umbel / Python", rates["umbel"] / rates["python"], "×", at_least=PYTHON_BAR),
        Figure("transform: umbel / DuckDB", rates["umbel"] / rates["duckdb"], "×", at_least=DUCKDB_BAR),
        Figure(
            "transform, untranslatable code: umbel / Python",
            slow["umbel"] / slow["python"],
            "×",
            at_least=UNTRANSLATED_BAR,
        ),
        *(Figure(f"transform: peak memory of {way}", each, "MiB") for way, each in memory.items() if way != "umbel"),
        Figure(
            "transform: peak memory of umbel",
            memory["umbel"],
            "MiB",
            at_most=MEMORY_BAR * memory["python"] + batch,
            note=MEMORY_NOTE,
        ),
        *_flat(source, streamed // count),
    ]


def records(count: int) -> Path:
    """Return a file of nested records, made when it is not there yet."""
    path = CACHE / f"events-{count}.ndjson"
    if not path.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        generator, first = random.Random(SEED), datetime(2024, 1, 1, tzinfo=UTC)
        draft = path.with_suffix(".draft")
        with draft.open("w", encoding="utf-8") as file:
            for number in range(count):
                file.write(
                    json.dumps(_event(generator, number, first + timedelta(seconds=number)), separators=(",", ":"))
                    + "\n"
                )
        draft.rename(path)
    return path


def _event(generator: random.Random, number: int, sent: datetime) -> dict[str, object]:
    page = {
        "url": f"https://shop.example/p/{generator.randrange(10**5)}?ref=mail&c={generator.randrange(1000)}",
        "title": "Product",
    }
    agent = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 Chrome/126.0"
    context = {
        "ip": f"10.0.{number % 256}.{number % 251}",
        "user_agent": agent,
        "library": {"name": "analytics.js", "version": "2.11.1"},
        "page": page,
    }
    items = [{"sku": f"S{generator.randrange(10**4)}", "n": generator.randrange(1, 5)} for _ in range(2)]
    properties = {
        "config_name": generator.choice(NAMES),
        "amount": f"{generator.randrange(100_000) / 100:.2f}",
        "currency": "EUR",
        "items": items,
        "ok": True,
        "score": generator.random(),
    }
    return {
        "message_id": f"m-{number:08d}-{generator.getrandbits(64):016x}",
        "type": "track",
        "event": "config_changed",
        "user_id": generator.randrange(10**6),
        "sent_at": sent.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "context": context,
        "properties": properties,
    }


def _measured(config: Path, source: Path, folder: Path, ways: tuple[str, ...]) -> dict[str, list[Measured]]:
    """Run the ways in turn, several times; check that their results agree."""
    found: dict[str, list[Measured]] = {way: [] for way in ways}
    for _ in range(TRIALS):
        for way in ways:
            target = folder / f"{way}.json"
            found[way].append(measure("benchmarks.transform_ways", way, str(config), str(source), str(target)))
    if (folder / "python.json").read_bytes() != (folder / "umbel.json").read_bytes():
        raise SystemExit("umbel's records differ from those of the Python worker")
    return found


def _flat(source: Path, times: int) -> list[Figure]:
    """Measure whether the memory of a long stream grows, of `umbel transform` as a filter."""
    command = [sys.executable, "-m", "umbel", "transform", "--config", str(CONFIG), "--quiet"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    watch = Watch(process.pid)
    watch.start()
    begun = time.monotonic()
    assert process.stdin is not None
    with process.stdin as stdin:
        for _ in range(times):
            with source.open("rb") as file:
                while piece := file.read(MIB):
                    stdin.write(piece)
    process.wait()
    seconds = time.monotonic() - begun
    watch.stop()
    sizes = [anonymous for _, anonymous in watch.samples if anonymous]
    third = len(sizes) // 4
    early, late = (max(part) / MIB for part in (sizes[third : 2 * third], sizes[-third:]))
    note = (
        f"{times:,} times the file, as a filter, {times * sum(1 for _ in source.open('rb')) / seconds:,.0f} records/s"
    )
    return [
        Figure(
            "transform: memory at the end of a stream / in its second quarter",
            late / early,
            "×",
            at_most=1.1,
            note=note,
        )
    ]


if __name__ == "__main__":
    for figure in figures(*[int(each.replace("_", "")) for each in sys.argv[1:]] or (RECORDS, STREAMED)):
        print(f"{figure.name}: {figure.value:,.2f} {figure.unit} {figure.bar} {figure.verdict} {figure.note}")
    print(f"{psutil.cpu_count()} cores")
