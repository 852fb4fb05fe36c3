"""The catalog: the one place that knows what is committed and how far it is processed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, cast

from sqlalchemy import CursorResult, delete, func, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session, sessionmaker

from umbel.catalog import tables as t
from umbel.catalog.engine import migrated
from umbel.errors import Terminal, UnknownName, did_you_mean

RAW_LIMIT = 64 << 10
"""Bytes of a refused record that are kept."""

KEPT_BATCHES = 20
MAIN = "main"
DELETED = b""
"""The definitions of a commit that deleted its branch."""
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
        self._engine = migrated(url)
        self._session = sessionmaker(self._engine, expire_on_commit=False)

    def close(self) -> None:
        """Close its connections."""
        self._engine.dispose()

    @property
    def sessions(self) -> sessionmaker[Session]:
        """What makes sessions on it, for what else is kept there."""
        return self._session

    def setting(self, name: str, default: Any) -> Any:
        """Return a setting; the first one to ask fixes it at `default`."""
        with self._session.begin() as session:
            session.execute(self._insert(t.Setting).values(name=name, value=default).on_conflict_do_nothing())
            return session.get_one(t.Setting, name).value

    def note(self, name: str, value: Any) -> None:
        """Set a setting, whatever it was."""
        with self._session.begin() as session:
            session.merge(t.Setting(name=name, value=value))

    def noted(self, name: str) -> Any:
        """Return a setting, None when there is none."""
        with self._session() as session:
            found = session.get(t.Setting, name)
            return None if found is None else found.value

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

    def latest(self) -> int:
        """Return the last revision of any branch, 0 for none."""
        with self._session() as session:
            return session.scalar(select(func.max(t.Commit.revision))) or 0

    def heads(self, until: int) -> dict[str, int]:
        """Return the branches as of a revision with the revision in force on each; main first."""
        last = (
            select(t.Commit.branch, func.max(t.Commit.revision), func.min(t.Commit.revision))
            .where(t.Commit.revision <= until)
            .group_by(t.Commit.branch)
        )
        with self._session() as session:
            rows = session.execute(last).all()
            gone = set(session.scalars(select(t.Commit.revision).where(t.Commit.definitions == DELETED)))
        alive = [(branch != MAIN, first, branch, head) for branch, head, first in rows if head not in gone]
        return {branch: head for _, _, branch, head in sorted(alive)}

    def head(self, branch: str) -> int:
        """Return the revision in force on a branch; main always exists, and may have nothing.

        Raises:
            UnknownName: there is no such branch.
        """
        heads = {MAIN: 0, **self.heads(self.latest())}
        if branch not in heads:
            known = ", ".join(heads)
            raise UnknownName(f"branch '{branch}' does not exist; branches: {known}", hint="init_branch makes one")
        return heads[branch]

    def definitions(self, revision: int) -> bytes:
        """Return the definitions of a revision; none where it deleted its branch."""
        with self._session() as session:
            row = session.get(t.Commit, revision)
        if row is None:
            raise UnknownName(f"there is no revision {revision}")
        return row.definitions

    def remove(self, branch: str) -> int:
        """Delete a branch; return the revision that does."""
        return self.commit(branch, "delete", DELETED)

    def erase(self, branch: str, dataset: str, identity: str, keys: bytes) -> int:
        """Note keys as erased on a branch; return the revision from which on they are.

        Args:
            branch: whose rows.
            dataset: its name.
            identity: of its definition: another one begins without erasures.
            keys: what is erased.
        """
        with self._session.begin() as session:
            last = select(t.Commit).where(t.Commit.branch == branch).order_by(t.Commit.revision.desc()).limit(1)
            same = session.scalars(last).one().definitions
            row = t.Commit(branch=branch, message=f"erase rows of {dataset}", definitions=same)
            session.add(row)
            session.flush()
            session.add(t.Erasure(revision=row.revision, branch=branch, dataset=dataset, identity=identity, keys=keys))
            return row.revision

    def clone(self, branch: str, origin: str) -> int:
        """Make a branch with the definitions in force on another and what is erased there; return its first revision."""
        erased = self.erasures(origin, self.latest())
        revision = self.commit(branch, f"clone of {origin}", self.definitions(self.head(origin)))
        with self._session.begin() as session:
            for dataset, identity, keys in erased:
                session.add(t.Erasure(revision=revision, branch=branch, dataset=dataset, identity=identity, keys=keys))
        return revision

    def erasures(self, branch: str, until: int) -> list[tuple[str, str, bytes]]:
        """Return what is erased on a branch as of a revision: dataset, identity of its definition, keys."""
        begun = func.coalesce(func.max(t.Commit.revision), 0)
        deleted = select(begun).where(t.Commit.branch == branch, t.Commit.definitions == DELETED)
        wanted = select(t.Erasure).where(
            t.Erasure.branch == branch,
            t.Erasure.revision <= until,
            t.Erasure.revision > deleted.where(t.Commit.revision <= until).scalar_subquery(),
        )
        with self._session() as session:
            return [(each.dataset, each.identity, each.keys) for each in session.scalars(wanted.order_by(t.Erasure.id))]

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
        self,
        job: str,
        progress: Progress,
        counts: Mapping[tuple[str, str], int],
        dead: Iterable[DeadLetter] = (),
        *,
        epoch: int,
    ) -> None:
        """Record a finished batch, its counts and its dead letters. Doing so again changes nothing.

        Args:
            job: whose batch it is.
            progress: for the next batch.
            counts: by dataset and name of the count.
            dead: the records refused.
            epoch: what `take_over` returned to the one who ran it.

        Raises:
            Terminal: somebody else has taken the job over.
        """
        number = progress.number
        counters = [
            t.Counter(job=job, dataset=of, name=name, batch=number, value=n) for (of, name), n in counts.items()
        ]
        with self._session.begin() as session:
            self._check_owner(session, job, epoch)
            row = t.Batch(job=job, number=number, revision=progress.revision, progress=dict(progress.state))
            session.merge(row)
            session.execute(delete(t.Batch).where(t.Batch.job == job, t.Batch.number <= number - KEPT_BATCHES))
            session.execute(delete(t.Counter).where(t.Counter.job == job, t.Counter.batch == number))
            session.add_all(counters)
            session.flush()
            self._fold(session, job, number - KEPT_BATCHES)
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

    def add_secret(self, name: str, encrypted: bytes) -> bool:
        """Store a new secret; return False when there is one of this name."""
        with self._session.begin() as session:
            added = session.execute(self._insert(t.Secret).values(name=name, value=encrypted).on_conflict_do_nothing())
            return bool(cast("CursorResult[Any]", added).rowcount)

    def secret_names(self) -> Sequence[str]:
        """Return the names of all secrets, sorted."""
        with self._session() as session:
            return session.scalars(select(t.Secret.name).order_by(t.Secret.name)).all()

    def secret(self, name: str) -> bytes:
        """Return an encrypted secret."""
        with self._session() as session:
            row = session.get(t.Secret, name)
            if row is None:
                raise UnknownName(f"there is no secret '{name}'{did_you_mean(name, self.secret_names())}")
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

    def _check_owner(self, session: Session, job: str, epoch: int) -> None:
        # An update, not a look: it takes the write lock, so nobody can take the job over until this commits.
        mine = update(t.Job).where(t.Job.name == job, t.Job.epoch == epoch).values(epoch=epoch)
        if not cast("CursorResult[Any]", session.execute(mine)).rowcount:
            raise Terminal(f"job '{job}': another worker has taken it over from epoch {epoch}")

    def _fold(self, session: Session, job: str, until: int) -> None:
        """Add the counts of batches that cannot run again to the totals."""
        old = select(t.Counter).where(t.Counter.job == job, t.Counter.batch <= until, t.Counter.batch != TOTAL)
        for row in session.scalars(old).all():
            total = session.get(t.Counter, (job, row.dataset, row.name, TOTAL))
            value = row.value + (total.value if total else 0)
            session.merge(t.Counter(job=job, dataset=row.dataset, name=row.name, batch=TOTAL, value=value))
            session.delete(row)
            session.flush()

    def _bury(self, session: Session, dead: Iterable[DeadLetter]) -> None:
        rows = [
            {
                "dataset": letter.dataset,
                "source": letter.source,
                "position": letter.position,
                "field": letter.field,
                "reason": letter.reason,
                "raw": letter.raw[:RAW_LIMIT],
                "size": letter.size,
            }
            for letter in dead
        ]
        if rows:
            session.execute(self._insert(t.DeadLetter).on_conflict_do_nothing(), rows)


def _letter(row: t.DeadLetter) -> DeadLetter:
    return DeadLetter(row.dataset, row.source, row.position, row.reason, row.raw, row.size, row.field, row.at)
