"""One run of the reference configuration: by a plain Python worker, by DuckDB, or by umbel; prints its seconds.

    python -m benchmarks.transform_ways python|duckdb|umbel CONFIG INPUT OUTPUT

The seconds are of the work: interpreters have started, and modules are loaded.
"""

from __future__ import annotations

import json
import re
import sys
import textwrap
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

QUERY = """
copy (select
    lower(properties.config_name) as config_value,
    epoch_ms(strptime(sent_at, '%Y-%m-%dT%H:%M:%SZ')) as ts,
    {{id: user_id}} as "user",
    cast(properties.amount as double) as amount,
    regexp_extract(context.page.url, '/p/([0-9]+)', 1) as product
from read_ndjson('{source}', columns={{
    user_id: 'BIGINT', sent_at: 'VARCHAR', properties: 'STRUCT(config_name VARCHAR, amount VARCHAR)',
    context: 'STRUCT(page STRUCT(url VARCHAR))'
}})) to '{target}' (format json)
"""
"""The configuration, written by hand for DuckDB."""


def by_python(config: str, source: str, target: str) -> float:
    """Transform record by record, with `json` and compiled code; return the seconds."""
    import yaml

    documents = list(yaml.safe_load_all(Path(config).read_text(encoding="utf-8")))
    fields = [
        (
            each["source_field"].split("."),
            each["target_field"].split("."),
            list(map(_step, each.get("transformations", []))),
        )
        for each in documents
    ]
    begun = time.perf_counter()
    with (
        Path(source).open("rb") as lines,
        Path(target).open("w", encoding="utf-8") as out,
        Path("/dev/null").open("wb") as dead,
    ):
        for line in lines:
            try:
                out.write(json.dumps(_record(json.loads(line), fields), separators=(",", ":")) + "\n")
            except Exception:  # noqa: BLE001  a dead letter
                dead.write(line)
    return time.perf_counter() - begun


def _record(
    record: dict[str, Any], fields: list[tuple[list[str], list[str], list[Callable[..., Any]]]]
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for path, (*outer, last), steps in fields:
        value: Any = record
        for name in path:
            value = value.get(name) if value is not None else None
        for step in steps:
            value = step(value, record)
        inner = found
        for name in outer:
            inner = inner.setdefault(name, {})
        inner[last] = value
    return found


def _step(step: dict[str, Any]) -> Callable[[Any, Any], Any]:
    if step["name"] == "custom_code":
        scope: dict[str, Any] = {"datetime": datetime, "re": re, "json": json}
        exec(f"def code(source_field, record):\n{textwrap.indent(step['code'], '    ')}", scope)
        code: Callable[[Any, Any], Any] = scope["code"]
        return code
    if step["name"] == "parse_datetime":
        layout = step["format"]
        return lambda value, _: datetime.strptime(value, layout).replace(tzinfo=UTC)
    if step["name"] == "regex_extract":
        search, group = re.compile(step["pattern"]).search, step["group"]
        return lambda value, _: found[group] if (found := search(value)) else None
    if step["type"] == "epoch_ms":
        return lambda value, _: int(value.timestamp() * 1000)
    return lambda value, _: float(value)


def by_duckdb(config: str, source: str, target: str) -> float:
    """Transform with a query on all cores; return the seconds."""
    import duckdb

    connection = duckdb.connect()
    begun = time.perf_counter()
    connection.execute(QUERY.format(source=source, target=target))
    return time.perf_counter() - begun


def by_umbel(config: str, source: str, target: str) -> float:
    """Transform as `umbel transform` does; return the seconds."""
    from umbel.transform.documents import read_file
    from umbel.transform.inputs import inputs
    from umbel.transform.parts import Lines
    from umbel.transform.run import run
    from umbel.transform.workers import TransformWorkers

    with TransformWorkers(read_file(config)) as workers:
        list(workers.results([Lines("", b"{}")] * 2 * workers.count))  # they have started
        with Path(target).open("wb") as out:
            return run(workers, inputs([source]), out).seconds


WAYS = {"python": by_python, "duckdb": by_duckdb, "umbel": by_umbel}

if __name__ == "__main__":
    print(json.dumps({"seconds": WAYS[sys.argv[1]](*sys.argv[2:])}))
