"""The catalog: the one place that knows what is committed and how far it is processed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, create_engine, delete, event, func, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session, sessionmaker

from umbel.catalog import tables as t
from umbel.errors import UnknownName, did_you_mean

RAW_LIMIT = 64 << 10
"""Bytes of a refused record that are kept."""

KEPT_BATCHES = 20
TOTAL = -1
"""The batch number under which counts are kept that no replay can touch any more."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record that could not be taken in.

    Args:
        dataset: which would not have it.
        source: the ordinal of the source among the dataset's.
        position: where in the source it was.
        reason: what is wrong with it.
        raw: its bytes, or their beginning.
        size: how many bytes it had.
        field: the field at fault, if one is.
    """

    dataset: str
    source: int
    position: str
    reason: str
    raw: bytes
    size: int
    field: str = ""
    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """What a finished batch leaves for the next.

    Args:
        number: of the batch.
        revision: of the definitions it ran under.
        state: plain data.
    """

    number: int
    revision: int
    state: Mapping[str, Any] = field(default_factory=dict)


class Catalog:
    """The catalog behind a database URL. Safe to use from many processes.

    Args:
        url: as SQLAlchemy has it, `sqlite:///path` or `postgresql+psycopg://…`.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._engine = _engine(url)
        _migrate(self._engine)
        self._session = sessionmaker(self._engine, expire_on_commit=False)

    def close(self) -> None:
        """Close its connections."""
        self._engine.dispose()

    def setting(self, name: str, default: Any) -> Any:
        """Return a setting; the first one to ask fixes it at `default`."""
        with self._session.begin() as session:
            session.execute(self._insert(t.Setting).values(name=name, value=default).on_conflict_do_nothing())
            return session.get_one(t.Setting, name).value

    def commit(self, branch: str, message: str, definitions: bytes) -> int:
        """Put definitions into force; return their revision."""
        with self._session.begin() as session:
            row = t.Commit(branch=branch, message=message, definitions=definitions)
            session.add(row)
            session.flush()
            return row.revision

    def revision(self, branch: str = "main") -> int:
        """Return the revision in force on a branch, 0 for none."""
        with self._session() as session:
            return session.scalar(select(func.max(t.Commit.revision)).where(t.Commit.branch == branch)) or 0

    def definitions(self, revision: int) -> bytes:
        """Return the definitions of a revision."""
        with self._session() as session:
            row = session.get(t.Commit, revision)
        if row is None:
            raise UnknownName(f"there is no revision {revision}")
        return row.definitions

    def commits(self, branch: str = "main") -> Sequence[t.Commit]:
        """Return the commits of a branch, oldest first."""
        with self._session() as session:
            return session.scalars(select(t.Commit).where(t.Commit.branch == branch).order_by(t.Commit.revision)).all()

    def take_over(self, job: str) -> int:
        """Become the owner of a job: raise its epoch and return it."""
        with self._session.begin() as session:
            session.execute(self._insert(t.Job).values(name=job, epoch=0).on_conflict_do_nothing())
            session.execute(update(t.Job).where(t.Job.name == job).values(epoch=t.Job.epoch + 1))
            return session.get_one(t.Job, job).epoch

    def finish(
        self, job: str, progress: Progress, counts: Mapping[tuple[str, str], int], dead: Iterable[DeadLetter] = ()
    ) -> None:
        """Record a finished batch, its counts and its dead letters. Doing so again changes nothing.

        Args:
            job: whose batch it is.
            progress: for the next batch.
            counts: by dataset and name of the count.
            dead: the records refused.
        """
        number = progress.number
        with self._session.begin() as session:
            row = t.Batch(job=job, number=number, revision=progress.revision, progress=dict(progress.state))
            session.merge(row)
            session.execute(delete(t.Batch).where(t.Batch.job == job, t.Batch.number <= number - KEPT_BATCHES))
            session.execute(delete(t.Counter).where(t.Counter.batch == number))
            session.add_all(t.Counter(dataset=of, name=name, batch=number, value=n) for (of, name), n in counts.items())
            session.flush()
            self._fold(session, number - KEPT_BATCHES)
            self._bury(session, dead)

    def progress(self, job: str, before: int) -> Progress | None:
        """Return what the last batch before a number left."""
        found = select(t.Batch).where(t.Batch.job == job, t.Batch.number < before).order_by(t.Batch.number.desc())
        with self._session() as session:
            row = session.scalar(found.limit(1))
        return None if row is None else Progress(row.number, row.revision, row.progress)

    def finished(self, job: str, number: int) -> bool:
        """Whether a batch has been recorded as finished."""
        with self._session() as session:
            return session.get(t.Batch, (job, number)) is not None

    def counts(self) -> dict[tuple[str, str], int]:
        """Return every count, by dataset and name."""
        with self._session() as session:
            rows = session.execute(
                select(t.Counter.dataset, t.Counter.name, func.sum(t.Counter.value)).group_by(
                    t.Counter.dataset, t.Counter.name
                )
            )
            return {(dataset, name): int(value) for dataset, name, value in rows}

    def dead_letters(self, dataset: str | None = None, limit: int = 100) -> list[DeadLetter]:
        """Return the newest dead letters, of one dataset or of all."""
        wanted = select(t.DeadLetter).order_by(t.DeadLetter.id.desc()).limit(limit)
        if dataset is not None:
            wanted = wanted.where(t.DeadLetter.dataset == dataset)
        with self._session() as session:
            return [_letter(row) for row in session.scalars(wanted)]

    def count_dead(self) -> dict[str, int]:
        """Return how many records each dataset has refused."""
        with self._session() as session:
            rows = session.execute(select(t.DeadLetter.dataset, func.count()).group_by(t.DeadLetter.dataset))
            return {str(dataset): int(count) for dataset, count in rows}

    def backfilled(self) -> set[str]:
        """Return the operators whose state is complete."""
        with self._session() as session:
            return set(session.scalars(select(t.Backfill.owner).where(t.Backfill.done)))

    def backfill(self, owners: Iterable[str], *, done: bool) -> None:
        """Note that operators' states are complete, or must be computed."""
        with self._session.begin() as session:
            for owner in owners:
                session.merge(t.Backfill(owner=owner, done=done))

    def put_secret(self, name: str, encrypted: bytes) -> None:
        """Store a secret."""
        with self._session.begin() as session:
            session.merge(t.Secret(name=name, value=encrypted))

    def secret(self, name: str) -> bytes:
        """Return an encrypted secret."""
        with self._session() as session:
            row = session.get(t.Secret, name)
            if row is None:
                known = session.scalars(select(t.Secret.name)).all()
                raise UnknownName(f"there is no secret '{name}'{did_you_mean(name, known)}")
            return row.value

    def delete_secret(self, name: str) -> None:
        """Forget a secret."""
        self.secret(name)
        with self._session.begin() as session:
            session.execute(delete(t.Secret).where(t.Secret.name == name))

    def tell(self, process: str, level: str, text: str) -> None:
        """Note an event."""
        with self._session.begin() as session:
            session.add(t.Event(process=process, level=level, text=text))

    def events(self, limit: int = 100) -> Sequence[t.Event]:
        """Return the newest events."""
        with self._session() as session:
            return session.scalars(select(t.Event).order_by(t.Event.id.desc()).limit(limit)).all()

    def _insert(self, table: type[t.Table]) -> Any:
        dialect = postgresql if self._engine.dialect.name == "postgresql" else sqlite
        return dialect.insert(table)

    def _fold(self, session: Session, until: int) -> None:
        """Add the counts of batches that cannot run again to the totals."""
        old = session.scalars(select(t.Counter).where(t.Counter.batch <= until, t.Counter.batch != TOTAL)).all()
        for row in old:
            total = session.get(t.Counter, (row.dataset, row.name, TOTAL))
            value = row.value + (total.value if total else 0)
            session.merge(t.Counter(dataset=row.dataset, name=row.name, batch=TOTAL, value=value))
            session.delete(row)
            session.flush()

    def _bury(self, session: Session, dead: Iterable[DeadLetter]) -> None:
        for letter in dead:
            values = {
                "dataset": letter.dataset,
                "source": letter.source,
                "position": letter.position,
                "field": letter.field,
                "reason": letter.reason,
                "raw": letter.raw[:RAW_LIMIT],
                "size": letter.size,
            }
            session.execute(self._insert(t.DeadLetter).values(**values).on_conflict_do_nothing())


def _letter(row: t.DeadLetter) -> DeadLetter:
    return DeadLetter(row.dataset, row.source, row.position, row.reason, row.raw, row.size, row.field, row.at)


def _engine(url: str) -> Engine:
    engine = create_engine(url, connect_args={"timeout": 60} if url.startswith("sqlite") else {})
    if engine.dialect.name == "sqlite":
        Path(engine.url.database or "").parent.mkdir(parents=True, exist_ok=True)
        event.listen(engine, "connect", _sqlite_settings)
    return engine


def _sqlite_settings(connection: Any, _: Any) -> None:
    for pragma in ("journal_mode=WAL", "busy_timeout=60000", "synchronous=NORMAL"):
        connection.execute(f"PRAGMA {pragma}")


def _migrate(engine: Engine) -> None:
    """Bring the tables up to date; of several processes one does it, the others wait."""
    from alembic import command
    from alembic.config import Config

    with as_file(files("umbel.catalog") / "migrations") as folder, _alone(engine), engine.begin() as connection:
        config = Config(attributes={"connection": connection})
        config.set_main_option("script_location", str(folder).replace("%", "%%"))
        command.upgrade(config, "head")


class _alone:  # noqa: N801
    """Holds a file lock beside an SQLite database; other databases lock by themselves."""

    def __init__(self, engine: Engine) -> None:
        path = engine.url.database if engine.dialect.name == "sqlite" else None
        self._path = path and f"{path}.lock"

    def __enter__(self) -> None:
        if self._path:
            import fcntl

            self._file = os.open(self._path, os.O_CREAT | os.O_RDWR, 0o644)
            fcntl.flock(self._file, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        if self._path:
            with suppress(OSError):
                os.close(self._file)
