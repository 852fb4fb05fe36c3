"""Offline jobs in the catalog, also in one that an older umbel made."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config

from umbel.catalog import catalog as module
from umbel.catalog.catalog import Catalog
from umbel.catalog.offline_jobs import OfflineJob, OfflineJobs

COLUMNS = (
    "id, branch, status, reason, asked, bucket, prefix, epoch, beat, attempts, is_sealed, position, done, taken, failed"
)


def test_jobs_in_progress_of_an_older_catalog(tmp_path: Path) -> None:
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'catalog.db'}")
    config = Config()
    config.set_main_option("script_location", str(Path(module.__file__).parent / "migrations"))
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0008")
        for name, status, attempts, done in (("a", "RUNNING", 4, 0.5), ("b", "COMPLETED", 1, 1.0)):
            end = f"3, 1.5, {attempts}, 0, '{{}}', {done}, 9, 1"
            values = f"'{name}', 'main', '{status}', '', x'00', 'data', 'x/', {end}"
            connection.execute(sa.text(f"INSERT INTO offline_jobs ({COLUMNS}) VALUES ({values})"))
    catalog = Catalog(f"sqlite:///{tmp_path / 'catalog.db'}")
    jobs = OfflineJobs(catalog)
    job, ended = jobs.get("a"), jobs.get("b")
    assert (job.attempts, job.done, job.taken, job.failed, job.parts) == (0, 0.0, 0, 0, {})
    assert (ended.attempts, ended.done, ended.taken, ended.failed) == (1, 1.0, 9, 1)
    begun = jobs.next_open()
    assert begun is not None
    assert begun.id == "a"
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, "0008")
    assert "epoch" in {each["name"] for each in sa.inspect(engine).get_columns("offline_jobs")}
    catalog.close()


@pytest.mark.parametrize("counts", [True, False])
def test_an_end_of_the_process_is_of_the_job_that_ran(tmp_path: Path, counts: bool) -> None:
    catalog = Catalog(f"sqlite:///{tmp_path / 'catalog.db'}")
    jobs = OfflineJobs(catalog)
    first, second = (OfflineJob(name, "main", b"", "data", f"{name}/") for name in "ab")
    for job in (first, second):
        jobs.add(job)
    jobs.begin(first)
    jobs.note(first, "the storage is away")
    jobs.begin(second)
    jobs.interrupted("its process ended with -9", counts=counts)
    waits, ran = jobs.get(first.id), jobs.get(second.id)
    catalog.close()
    assert (waits.status, waits.attempts, waits.reason) == ("PENDING", 1, "the storage is away")
    assert (ran.status, ran.attempts) == ("RUNNING", int(counts))
