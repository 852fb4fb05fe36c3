"""Point lookups in entries of several sources: they equal those in frames, which fold the entries."""

from __future__ import annotations

import random

import numpy as np
import polars as pl
import pytest

from tests.aggregating import Job, aggregation, frame, instant
from tests.reference import Change
from tests.seeds import seeds
from umbel.aggregates import Average, Count, Max, Min, Sum
from umbel.state.tables import State
from umbel.types.windows import SECOND, Continuous
from umbel.windowing.tile_points import Pointwise
from umbel.windowing.tiling import Tiling

HOUR, FOREVER = Continuous("1h"), Continuous("forever")
AGGREGATES = (
    Count(window=HOUR),
    Sum(of="x", window=HOUR),
    Min(of="x", window=HOUR, default=0),
    Average(of="x", window=FOREVER),
    Max(of="x", window=FOREVER, default=0),
)


@pytest.mark.parametrize("seed", seeds(4, 12))
@pytest.mark.parametrize("with_watermark", [False, True])
def test_entries_of_several_batches(seed: int, with_watermark: bool) -> None:
    """Batches become smaller, so that the store leaves them apart; tiles collapse within batches and across them."""
    chance, seq = random.Random(seed), 0
    job = Job(aggregation(*AGGREGATES, tiling=Tiling(accuracy=0.1, exact=3, disorder="10m")))
    for size in (60, 25, 10, 4, 1):
        rows = []
        for _ in range(size):
            seldom = 36_000 if chance.random() < 0.1 else 0  # few instants of its tile in each batch
            step = 20 if seldom else chance.choice((20, 400, 5000))
            at, seq = (seldom + step * chance.randrange(1, 12)) * SECOND, seq + 1
            rows.append((chance.randint(1, 2), Change(at, at, {"x": chance.randint(-9, 9)}, 1, seq)))
        job.feed(frame(rows), watermark=instant(0) if with_watermark else None)
    points = [(key, chance.randrange(70_000) * SECOND) for key in (1, 2, 3) for _ in range(40)]
    edges = [36_000 + chance.randrange(260) + ahead for ahead in (0, 3600) for _ in range(30)]
    points += [
        (chance.randint(1, 2), at * SECOND) for at in edges
    ]  # where the rarely hit tile enters and leaves the hour
    framed, pointwise, answered = job.lookup(points), Pointwise(job.operator.tiles, job.operator.answered.aggregates), 0
    with job.store.snapshot(0) as reader:
        keys = Job.points(points)["_key"].to_list()
        stored = pointwise.read(State(reader, job.operator.id), keys)
        assert max(map(len, stored)) > 2, "the batches must be apart"
        for number, (slices, (_, at)) in enumerate(zip(stored, points, strict=True)):
            found = pointwise.values([slices], np.array([at]))
            assert (found is None) == framed["_at_history"][number]
            if found is None:
                continue
            answered += 1
            row = framed.row(number, named=True)
            assert found.found.tolist() == [row["_at_found"]]
            if row["_at_found"]:
                assert [list(each) for each in found.values] == [[row[f"a{n}"]] for n in range(len(AGGREGATES))]
                assert pl.Series(found.changed).cast(pl.Datetime("us", "UTC"))[0] == row["_at_changed"]
        together = pointwise.values(stored[:40], np.array([at for _, at in points[:40]]))
        if together is not None:
            assert together.values[0] == framed["a0"][:40].fill_null(0).to_list() or not together.found.all()
    assert answered > 60
