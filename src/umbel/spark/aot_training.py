"""The training run for the AOT cache: a stream of events counted in windows.

It exercises the driver and tasks.

python -m umbel.spark.aot_training '["FOLDER", "CACHE TO WRITE"]'
"""

from __future__ import annotations

import json
import sys
import threading
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from umbel.connectors import Webhook, source
from umbel.datasets import Count, dataset, field, pipeline
from umbel.dtypes import Continuous
from umbel.lib import inputs

__owner__ = "umbel@example.com"

ROUNDS = 3
WITHIN = 120.0


@source(Webhook(name="training").endpoint("events"), disorder="1d", cdc="append")
@dataset
class TrainingEvent:
    """An event of a user."""

    user: int
    at: datetime


@dataset(index=True)
class Counted:
    """The number of events of a user."""

    user: int = field(key=True)
    count: int
    at: datetime

    @pipeline
    @inputs(TrainingEvent)
    def counted(cls, events: Any) -> Any:  # noqa: N805
        """Count over a day."""
        return events.groupby("user").aggregate(count=Count(window=Continuous("1d")))


def train(folder: Path, cache: Path) -> None:
    """Run some batches of the job; Java writes the cache when it ends."""
    from umbel.api.commit import check_commit
    from umbel.log.ingest import IngestLog
    from umbel.runtime.commit import commit
    from umbel.runtime.deployment import Deployment
    from umbel.spark.job import LiveJob
    from umbel.spark.session import Settings, start, stop

    deployment, datasets = Deployment.at(folder / "umbel", shards=2), list[Any]([TrainingEvent, Counted])
    commit(deployment, check_commit(datasets, []))
    events, ran = IngestLog(deployment.directory, "training", "events"), threading.Semaphore(0)
    session = start(Settings(folder / "umbel", java_options=f'"-XX:AOTCacheOutput={cache}"'))
    try:
        LiveJob(deployment, session, small=0, on_batch=lambda *_: ran.release()).start()
        for _ in range(ROUNDS):
            events.append_blocking(json.dumps([{"user": 1, "at": time.time()}]).encode(), 1)
            if not ran.acquire(timeout=WITHIN):
                raise TimeoutError(f"no batch ran within {WITHIN} s")
    finally:
        stop(session, within=WITHIN)
        events.close()


if __name__ == "__main__":
    train(*map(Path, json.loads(sys.argv[1])))
