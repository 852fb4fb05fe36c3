"""Random programs on Spark, all in one query: half stream from the start, half are computed from history and stream then."""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.conformance.multiplexed import CENTURY, renamed_operator
from tests.deployed import Deployed, live, wait_until
from tests.laws.engines import Outcome
from tests.laws.programs import programs
from tests.laws.test_programs import check
from tests.laws.twins import Program, Source, Twin
from tests.reference import SECOND, Change
from tests.reference_operators import EVER
from umbel.connectors import Webhook
from umbel.definitions.records import DatasetDefinition, Definitions
from umbel.operators.operator import Keyed, Operator
from umbel.query.lookups import Lookups
from umbel.runtime.commit import commit
from umbel.runtime.deployment import JOB
from umbel.runtime.history import replayed
from umbel.runtime.progress import EventTimeProgress
from umbel.types.schema import TRUNCATION

COUNT = 24
Failures = Mapping[int, Exception | None]


def drawn() -> list[Program]:
    """Return the largest of some random programs: always the same.

    None has rows far ahead of the clock, which a live source refuses.
    """
    found: list[Program] = []

    @settings(
        max_examples=4 * COUNT,
        database=None,
        phases=[Phase.generate],
        derandomize=True,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(programs())
    def collect(program: Program) -> None:
        if program.shift <= SECOND:
            found.append(program)

    collect()
    chosen = sorted(found, key=lambda program: len(repr(program)), reverse=True)[:COUNT]
    return [_upserting(program) for program in chosen]


def _upserting(program: Program) -> Program:
    """Return a program as a webhook has it: rows of JSON, without deletes, each source counts its own rows."""
    sources = {}
    for name, source in program.sources.items():
        sent = [row for row in source.rows if row.weight != TRUNCATION and all(map(_is_json, row.values.values()))]
        rows = (replace(row, at=row.time, weight=1, seq=place) for place, row in enumerate(sent))
        sources[name] = Source(source.schema, tuple(rows))
    return Program(sources, program.derived, CENTURY // SECOND)


def _is_json(value: Any) -> bool:
    return not isinstance(value, float) or math.isfinite(value)


@dataclass(frozen=True)
class Renamed(Outcome):
    """What became of a program whose datasets have a prefix."""

    prefix: str = ""

    def changes(self, dataset: str) -> Any:
        return super().changes(self.prefix + dataset)

    def lookup(self, dataset: str, keys: Any, at: Any) -> Any:
        return super().lookup(self.prefix + dataset, keys, at)


class Playing:
    """A program being played.

    Args:
        deployed: where.
        program: what.
        number: tells its datasets from those of others.
    """

    def __init__(self, deployed: Deployed, program: Program, number: int) -> None:
        self.program, self.prefix, self._deployed = program, f"P{number}", deployed
        self._left: dict[str, list[Change]] = {name: list(source.rows) for name, source in program.sources.items()}

    def definitions(self, *, sources_only: bool) -> Iterator[DatasetDefinition]:
        """Yield its datasets under their names here."""
        for each in self.program.definitions(sources_only=sources_only):
            name = self.prefix + each.name
            sources = tuple(replace(source, connector=Webhook(name="web").endpoint(name)) for source in each.sources)
            output = each.output and renamed_operator(each.output, self.prefix)
            yield replace(each, name=name, sources=sources, output=output)

    def log(self, chance: random.Random, *, everything: bool) -> None:
        """Log some of the rows, or all that are left."""
        for name, rows in self._left.items():
            size = len(rows) if everything else chance.randint(0, len(rows))
            schema = self.program.sources[name].schema
            frame = self.program.frame(name, rows[:size]).select(schema.names)
            if size:
                self._deployed.log(self.prefix + name, frame.to_dicts())
            self._left[name] = rows[size:]

    def logged(self) -> dict[str, int]:
        """Return how many rows each source was fed."""
        return {
            self.prefix + name: len(source.rows) - len(self._left[name])
            for name, source in self.program.sources.items()
        }

    def outcome(self) -> Outcome:
        """Return what became of it."""
        place = self._deployed.deployment
        graph = place.graph(place.catalog.revision())
        lookups = Lookups(graph, place.store, partial(replayed, place))
        nodes = [graph.outputs[self.prefix + name] for name in self.program.derived]
        logs = {node.state_id: [place.changes.read(node)] for node in nodes if node.is_logged}
        stream_times = self._stream_times(graph)
        report = {
            each: stream_times.get(each, -EVER) for twin in self.program.derived.values() for each in _final(twin)
        }
        return Renamed(graph, lookups, logs, stream_times, report, self.prefix)

    def _stream_times(self, graph: Any) -> dict[str, int]:
        last = self._deployed.deployment.catalog.progress(JOB, sys.maxsize)
        reached = EventTimeProgress.of(last.state if last else {}).state["stream_times"]
        ids = {id_: known for twin in self.program.derived.values() for id_, known in self._ids(twin.node.operator)}
        return {
            ids[node.operator.id]: reached[node.state_id]
            for node in graph.nodes
            if node.state_id in reached and node.operator.id in ids
        }

    def _ids(self, operator: Operator) -> Iterator[tuple[str, str]]:
        """Yield the id of each operator here and where the reference knows it."""
        yield renamed_operator(operator, self.prefix).id, operator.id
        for parent in operator.parents:
            yield from self._ids(parent)


def _final(twin: Twin) -> Iterator[str]:
    """Yield the ids of the operators whose results wait for the watermark."""
    waiting = [twin.node.operator]
    for operator in waiting:
        waiting += operator.parents
        if isinstance(operator, Keyed) and operator.is_final:
            yield operator.id


@pytest.fixture(scope="module")
def played(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Failures:
    """Return what became of the programs."""
    deployed, chance = Deployed(tmp_path_factory.mktemp("programs")), random.Random(1)
    playing = [Playing(deployed, program, number) for number, program in enumerate(drawn())]
    catalog = deployed.deployment.catalog

    def put_in_force(late: bool) -> None:
        found = [
            each for n, one in enumerate(playing) for each in one.definitions(sources_only=n % 2 == 1 and not late)
        ]
        commit(deployed.deployment, Definitions({each.name: each for each in found}, {}))

    def log(*, everything: bool) -> dict[str, int]:
        for one in playing:
            one.log(chance, everything=everything)
        return {name: count for one in playing for name, count in one.logged().items()}

    put_in_force(late=False)
    with live(deployed, spark, small=0) as caught_up:
        caught_up(log(everything=False))
        caught_up(log(everything=False))
        put_in_force(late=True)
        caught_up(log(everything=True))
        wait_until(lambda: catalog.progress(JOB, sys.maxsize).revision == catalog.revision(), lambda: "backfilled")
        caught_up({})
    failures = {number: _failure(one) for number, one in enumerate(playing)}
    deployed.close()
    return failures


def _failure(one: Playing) -> Exception | None:
    try:
        check(one.program, one.outcome(), [])
    except Exception as error:
        error.add_note(repr(one.program))
        return error
    return None


@pytest.mark.parametrize("number", range(COUNT))
def test_spark_says_what_plain_python_says(played: Failures, number: int) -> None:
    failure = played[number]
    if failure is not None:
        raise failure
