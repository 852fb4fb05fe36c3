"""The catalog: the single record of commits and of processing progress."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, cast

from sqlalchemy import CursorResult, delete, false, func, insert, literal, select, text, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session, sessionmaker

from umbel.catalog import definition_pieces
from umbel.catalog import tables as t
from umbel.catalog.checksums import with_sum, without_sum
from umbel.catalog.engine import check, migrated
from umbel.catalog.late_records import LATE, LateRecords
from umbel.catalog.row_sums import COVERED, DECISIVE, check_rows
from umbel.errors import Conflict, UnknownName
from umbel.state.port import Fenced

RAW_LIMIT = 64 << 10
"""Bytes stored of a rejected record."""

RETAINED_BATCHES = 20
MAIN = "main"
DELETED = b""
"""The definitions of a commit that deleted its branch."""
IS_DELETED = func.length(t.Commit.definitions) == 0
"""The condition on such commits; to compare the definitions, a database would read all of them."""
FOLDED_AT_ONCE = 10
"""Batches whose counts are added to the totals together."""
TOTAL = -1
"""The batch number of counts that no replay can change any more."""


@dataclass(frozen=True, slots=True)
class JobEpoch:
    """The epoch in which a worker took over a job.

    Its writes are refused once another worker has.

    Args:
        job: the job.
        epoch: as returned by `Catalog.take_over`.
    """

    job: str
    epoch: int


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A rejected record.

    Args:
        dataset: the dataset that rejected it.
        source: the ordinal of the source among the dataset's.
        position: its position in the source.
        reason: the error.
        raw: its bytes, or their beginning.
        size: its original size in bytes.
        field: the field with the error, if one is.
        at: when it was stored.
        origin: the fingerprint of its source as defined.
    """

    dataset: str
    source: int
    position: str
    reason: str
    raw: bytes
    size: int
    field: str = ""
    at: datetime | None = None
    origin: str = ""


@dataclass(frozen=True, slots=True)
class JobProgress:
    """The state passed from a finished batch to the next.

    Args:
        number: of the batch.
        revision: of the definitions it ran under.
        state: plain data.
    """

    number: int
    revision: int
    state: Mapping[str, Any] = field(default_factory=dict)


def changed_since(branch: str, revision: int) -> Conflict:
    """Return the error of a commit not made from a branch's last revision."""
    return Conflict(
        f"branch '{branch}' has changed since revision {revision}, from which this commit was made",
        hint="read the definitions again, and commit what is made from them",
    )


def add_commit(session: Session, branch: str, message: str, definitions: bytes, *, waits: bool = False) -> int:
    """Add a commit to those of a transaction; return its revision."""
    stored = definition_pieces.store(session, definitions)
    row = t.Commit(branch=branch, message=message, definitions=stored, waits=waits)
    session.add(row)
    session.flush()
    return row.revision


class Catalog:
    """The catalog behind a database URL. Safe to use from many processes.

    Args:
        url: in SQLAlchemy's form, `sqlite:///path` or `postgresql+psycopg://…`.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._engine = migrated(url)
        self._session = sessionmaker(self._engine, expire_on_commit=False)
        self._late = LateRecords()

    def close(self) -> None:
        """Close its connections."""
        self._engine.dispose()

    def check(self, *, deep: bool = False) -> None:
        """Check the catalog for damage.

        Raises:
            Damaged: there is some.
        """
        check(self._engine, deep=deep)
        check_rows(self._engine, COVERED)
        with self._session() as session:
            revisions = session.scalars(select(t.Commit.revision)).all()
        for revision in revisions:
            self.definitions(revision)

    def check_decisive(self) -> None:
        """Check the rows on which depends what is processed and answered.

        Raises:
            Damaged: one is not as it was written.
        """
        check_rows(self._engine, DECISIVE)

    @property
    def sessions(self) -> sessionmaker[Session]:
        """The session factory, for other parts that store data in the catalog."""
        return self._session

    def setting(self, name: str, default: Any) -> Any:
        """Return a setting; the first call fixes it at `default`."""
        if (known := self.noted(name)) is not None:  # a database that is read-only for a while can be read
            return known
        with self._session.begin() as session:
            session.execute(self._insert(t.SettingRow).values(name=name, value=default).on_conflict_do_nothing())
            return session.get_one(t.SettingRow, name).value

    def note(self, name: str, value: Any, by: JobEpoch | None = None) -> None:
        """Set a setting, replacing an existing value.

        Args:
            name: of the setting.
            value: JSON-compatible.
            by: the worker that notes it, None for another process.

        Raises:
            Fenced: another worker has taken over the job.
        """
        with self._session.begin() as session:
            self._check(session, by)
            noted = self._insert(t.SettingRow).values(name=name, value=value)
            replaced = {"value": noted.excluded.value}
            session.execute(noted.on_conflict_do_update(index_elements=["name"], set_=replaced))

    def noted(self, name: str) -> Any:
        """Return a setting, None if there is none."""
        with self._session() as session:
            found = session.get(t.SettingRow, name)
            return None if found is None else found.value

    def commit(
        self, branch: str, message: str, definitions: bytes, *, waits: bool = False, after: int | None = None
    ) -> int:
        """Commit definitions; return their revision.

        Args:
            branch: their branch.
            message: the reason.
            definitions: as bytes.
            waits: True if the earlier definitions serve until `switch`.
            after: the branch's last revision, from which they were made; None for any.

        Raises:
            Conflict: there is a later one.
        """
        with self.committing(branch, after) as session:
            return add_commit(session, branch, message, definitions, waits=waits)

    @contextmanager
    def committing(self, branch: str, after: int | None) -> Iterator[Session]:
        """Yield a transaction beside which nobody commits or erases, see `commit`.

        Raises:
            Conflict: the branch has a later revision than `after`.
        """
        with self._session.begin() as session:
            if session.get_bind().dialect.name == "postgresql":
                session.execute(text("LOCK TABLE commits, erasures IN EXCLUSIVE MODE"))
            else:  # SQLite has one writer at a time, from its first change on
                session.execute(update(t.Commit).where(false()).values(branch=branch))
            own = select(func.max(t.Commit.revision)).where(t.Commit.branch == branch)
            if after is not None and (session.scalar(own) or 0) != after:
                raise changed_since(branch, after)
            yield session

    def revision(self, branch: str = "main") -> int:
        """Return the revision in force on a branch, 0 for none."""
        with self._session() as session:
            return session.scalar(select(func.max(t.Commit.revision)).where(t.Commit.branch == branch)) or 0

    def latest(self) -> int:
        """Return the last revision of any branch, 0 for none."""
        with self._session() as session:
            return session.scalar(select(func.max(t.Commit.revision))) or 0

    def heads(self, until: int) -> dict[str, int]:
        """Return the head revision of each branch as of a revision; main first."""
        last = (
            select(t.Commit.branch, func.max(t.Commit.revision), func.min(t.Commit.revision))
            .where(t.Commit.revision <= until)
            .group_by(t.Commit.branch)
        )
        with self._session() as session:
            rows = session.execute(last).all()
            gone = set(session.scalars(select(t.Commit.revision).where(IS_DELETED)))
        alive = [(branch != MAIN, first, branch, head) for branch, head, first in rows if head not in gone]
        return {branch: head for _, _, branch, head in sorted(alive)}

    def serving(self, until: int) -> dict[str, int]:
        """Return each branch's serving revision as of a revision, 0 while the first waits."""
        last = (
            select(t.Commit.branch, func.max(t.Commit.revision))
            .where(t.Commit.revision <= until, ~t.Commit.waits)
            .group_by(t.Commit.branch)
        )
        with self._session() as session:
            rows = {str(branch): int(revision) for branch, revision in session.execute(last)}
            gone = set(session.scalars(select(t.Commit.revision).where(IS_DELETED)))
        found = {branch: rows.get(branch, 0) for branch in self.heads(until)}
        return {branch: 0 if revision in gone else revision for branch, revision in found.items()}

    def head(self, branch: str) -> int:
        """Return the revision in force on a branch; main always exists, and may be empty.

        Raises:
            UnknownName: there is no such branch.
        """
        heads = {MAIN: 0, **self.heads(self.latest())}
        if branch not in heads:
            known = ", ".join(heads)
            raise UnknownName(f"branch '{branch}' does not exist; branches: {known}", hint="init_branch makes one")
        return heads[branch]

    def definitions(self, revision: int) -> bytes:
        """Return the definitions of a revision; empty if it deleted its branch."""
        with self._session() as session:
            row = session.get(t.Commit, revision)
            if row is None:
                raise UnknownName(f"there is no revision {revision}")
            return definition_pieces.read(session, row.definitions, f"the definitions of revision {revision}")

    def remove(self, branch: str) -> int:
        """Delete a branch; return the revision of the deletion."""
        return self.commit(branch, "delete", DELETED)

    def erase(self, branch: str, dataset: str, identities: Iterable[str], keys: bytes) -> int:
        """Record keys as erased on a branch; return the revision of the erasure.

        Args:
            branch: the branch of the rows.
            dataset: its name.
            identities: of its erase keys, and of those of the definition that is being backfilled.
            keys: the erased keys.
        """
        with self._session.begin() as session:
            last = select(t.Commit).where(t.Commit.branch == branch).order_by(t.Commit.revision.desc()).limit(1)
            same = session.scalars(last).one()
            message = f"erase rows of {dataset}"
            row = t.Commit(branch=branch, message=message, definitions=same.definitions, waits=same.waits)
            session.add(row)
            session.flush()
            for each in identities:
                session.add(t.Erasure(revision=row.revision, branch=branch, dataset=dataset, identity=each, keys=keys))
            return row.revision

    def erasures(self, branch: str, until: int) -> list[tuple[str, str, bytes]]:
        """Return a branch's erasures as of a revision: dataset, identity of its erase keys, keys."""
        begun = func.coalesce(func.max(t.Commit.revision), 0)
        deleted = select(begun).where(t.Commit.branch == branch, IS_DELETED)
        requested = select(t.Erasure).where(
            t.Erasure.branch == branch,
            t.Erasure.revision <= until,
            t.Erasure.revision > deleted.where(t.Commit.revision <= until).scalar_subquery(),
        )
        with self._session() as session:
            return [
                (each.dataset, each.identity, each.keys) for each in session.scalars(requested.order_by(t.Erasure.id))
            ]

    def commits(self, branch: str = "main") -> Sequence[t.Commit]:
        """Return the commits of a branch, oldest first."""
        with self._session() as session:
            return session.scalars(select(t.Commit).where(t.Commit.branch == branch).order_by(t.Commit.revision)).all()

    def take_over(self, job: str) -> int:
        """Take over a job: increment its epoch and return it."""
        with self._session.begin() as session:
            session.execute(self._insert(t.Job).values(name=job, epoch=0).on_conflict_do_nothing())
            session.execute(update(t.Job).where(t.Job.name == job).values(epoch=t.Job.epoch + 1))
            return session.get_one(t.Job, job).epoch

    def finish(
        self,
        job: str,
        progress: JobProgress,
        counts: Mapping[tuple[str, str], int],
        dead: Sequence[DeadLetter] = (),
        *,
        epoch: int,
        late_bytes: int | None = None,
    ) -> None:
        """Record a finished batch, its counts and its dead letters; repeating changes nothing.

        Args:
            job: the job of the batch.
            progress: for the next batch.
            counts: by dataset and name of the count.
            dead: the rejected records, and records that came too late.
            late_bytes: bytes of each dataset's late records that are retained, the newest; None for all.
            epoch: the epoch returned by `take_over` to the caller.

        Raises:
            Fenced: another worker has taken over the job.
        """
        number = progress.number
        key = {"job": job, "batch": number}
        counters = [{"dataset": of, "name": name, "value": n, **key} for (of, name), n in counts.items()]
        with self._session.begin() as session:
            self.check_owner(session, job, epoch)
            session.execute(self._noted(job, progress))
            old = t.BatchRow.number <= number - RETAINED_BATCHES
            session.execute(delete(t.BatchRow).where(t.BatchRow.job == job, old))
            session.execute(delete(t.Counter).where(t.Counter.job == job, t.Counter.batch == number))
            if counters:
                session.execute(insert(t.Counter), counters)
            if number % FOLDED_AT_ONCE == 0:
                self._fold(session, job, number - RETAINED_BATCHES)
            self._bury(session, dead)
            if late_bytes is not None:
                late = [letter for letter in dead if letter.reason.startswith(LATE)]
                self._late.trim(session, [(letter.dataset, len(letter.raw)) for letter in late], late_bytes)

    def bury(
        self,
        job: str,
        number: int,
        counts: Mapping[tuple[str, str], int],
        dead: Iterable[DeadLetter],
        by: JobEpoch | None = None,
    ) -> None:
        """Record dead letters outside the batches of the live job; repeating changes nothing.

        Args:
            job: the job that found them.
            number: distinguishes the findings of different times.
            counts: by dataset and name of the count.
            dead: the rejected records.
            by: the worker that found them, None for another process.

        Raises:
            Fenced: another worker has taken over the job.
        """
        with self._session.begin() as session:
            self._check(session, by)
            for (of, name), value in counts.items():
                session.merge(t.Counter(job=job, dataset=of, name=name, batch=number, value=value))
            self._bury(session, dead)

    def progress(self, job: str, before: int) -> JobProgress | None:
        """Return the progress recorded by the last batch before a number."""
        found = (
            select(t.BatchRow)
            .where(t.BatchRow.job == job, t.BatchRow.number < before)
            .order_by(t.BatchRow.number.desc())
        )
        with self._session() as session:
            row = session.scalar(found.limit(1))
        if row is None:
            return None
        return JobProgress(row.number, row.revision, without_sum(row.progress, f"the progress of batch {row.number}"))

    def finished(self, job: str, number: int) -> bool:
        """Return True if a batch has been recorded as finished."""
        with self._session() as session:
            return session.get(t.BatchRow, (job, number)) is not None

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
        requested = select(t.DeadLetterRow).order_by(t.DeadLetterRow.id.desc()).limit(limit)
        if dataset is not None:
            requested = requested.where(t.DeadLetterRow.dataset == dataset)
        with self._session() as session:
            return [_letter(row) for row in session.scalars(requested)]

    def count_dead(self) -> dict[str, int]:
        """Return the number of records rejected by each dataset."""
        with self._session() as session:
            rows = session.execute(select(t.DeadLetterRow.dataset, func.count()).group_by(t.DeadLetterRow.dataset))
            return {str(dataset): int(count) for dataset, count in rows}

    def backfilled(self) -> set[str]:
        """Return the state ids of operators with complete state."""
        with self._session() as session:
            return set(session.scalars(select(t.BackfillRow.owner).where(t.BackfillRow.done)))

    def backfill(self, owners: Iterable[str], *, done: bool, by: JobEpoch | None = None) -> None:
        """Record operators' states as complete, or as still to be computed.

        Args:
            owners: their state ids.
            done: whether they are complete.
            by: the worker that records it, None for another process.

        Raises:
            Fenced: another worker has taken over the job.
        """
        with self._session.begin() as session:
            self._check(session, by)
            for owner in owners:
                session.merge(t.BackfillRow(owner=owner, done=done))

    def put_secret(self, name: str, encrypted: bytes) -> None:
        """Store a secret."""
        with self._session.begin() as session:
            session.merge(t.SecretRow(name=name, value=encrypted))

    def add_secret(self, name: str, encrypted: bytes) -> bool:
        """Store a new secret; return False if one of this name exists."""
        with self._session.begin() as session:
            added = session.execute(
                self._insert(t.SecretRow).values(name=name, value=encrypted).on_conflict_do_nothing()
            )
            return bool(cast("CursorResult[Any]", added).rowcount)

    def exchange_secret(self, name: str, before: bytes, after: bytes) -> bool:
        """Replace the value of a secret; return False if it is not the expected one."""
        with self._session.begin() as session:
            found = update(t.SecretRow).where(t.SecretRow.name == name, t.SecretRow.value == before).values(value=after)
            return bool(cast("CursorResult[Any]", session.execute(found)).rowcount)

    def sealed_requests(self) -> Mapping[str, bytes]:
        """Return the encrypted requests of offline queries that have not ended, by their ids."""
        with self._session() as session:
            found = session.execute(select(t.OfflineJobRow.id, t.OfflineJobRow.request))
            return {job: request for job, request in found if request}

    def exchange_request(self, job: str, before: bytes, after: bytes) -> bool:
        """Store the encrypted request of an offline query in place of another value."""
        row = t.OfflineJobRow
        with self._session.begin() as session:
            found = update(row).where(row.id == job, row.request == before).values(request=after)
            return bool(cast("CursorResult[Any]", session.execute(found)).rowcount)

    def secret_names(self) -> Sequence[str]:
        """Return the names of all secrets, sorted."""
        with self._session() as session:
            return session.scalars(select(t.SecretRow.name).order_by(t.SecretRow.name)).all()

    def secret(self, name: str) -> bytes:
        """Return an encrypted secret."""
        with self._session() as session:
            row = session.get(t.SecretRow, name)
            if row is None:
                # readers see errors of extractors and dead letters: the names of other secrets are not theirs
                raise UnknownName(f"there is no secret '{name}'", hint="umbel secret list shows which there are")
            return row.value

    def delete_secret(self, name: str) -> None:
        """Delete a secret."""
        self.secret(name)
        with self._session.begin() as session:
            session.execute(delete(t.SecretRow).where(t.SecretRow.name == name))

    def record_event(self, process: str, level: str, text: str) -> None:
        """Record an event."""
        with self._session.begin() as session:
            session.add(t.EventRow(process=process, level=level, text=text))

    def events(self, limit: int = 100) -> Sequence[t.EventRow]:
        """Return the newest events."""
        with self._session() as session:
            return session.scalars(select(t.EventRow).order_by(t.EventRow.id.desc()).limit(limit)).all()

    def _insert(self, table: type[t.CatalogRow]) -> Any:
        dialect = postgresql if self._engine.dialect.name == "postgresql" else sqlite
        return dialect.insert(table)

    def check_epoch(self, by: JobEpoch) -> None:
        """Raise Fenced if another worker has taken over a job."""
        with self._session.begin() as session:
            self._check(session, by)

    @contextmanager
    def without_successor(self, by: JobEpoch) -> Iterator[None]:
        """Let no other worker take over a job during a block.

        The block must not write to the catalog.

        Raises:
            Fenced: one has.
        """
        with self._session.begin() as session:
            self._check(session, by)
            yield

    def _check(self, session: Session, by: JobEpoch | None) -> None:
        if by is not None:
            self.check_owner(session, by.job, by.epoch)

    def check_owner(self, session: Session, job: str, epoch: int) -> None:
        """Raise Fenced if another worker has taken over a job."""
        # An update, not a query: it takes the write lock, so nobody can take over the job until this commits.
        mine = update(t.Job).where(t.Job.name == job, t.Job.epoch == epoch).values(epoch=epoch)
        if not cast("CursorResult[Any]", session.execute(mine)).rowcount:
            raise Fenced(f"job '{job}': another worker has taken it over from epoch {epoch}")

    def _noted(self, job: str, progress: JobProgress) -> Any:
        """Return the statement that notes a finished batch, or replaces its row."""
        values = {"revision": progress.revision, "progress": with_sum(progress.state)}
        row = self._insert(t.BatchRow).values(job=job, number=progress.number, **values)
        return row.on_conflict_do_update(
            index_elements=["job", "number"], set_={name: row.excluded[name] for name in values}
        )

    def _fold(self, session: Session, job: str, until: int) -> None:
        """Add the counts of batches that cannot run again to the totals."""
        old = t.Counter.job == job, t.Counter.batch <= until, t.Counter.batch != TOTAL
        sums = select(t.Counter.job, t.Counter.dataset, t.Counter.name, literal(TOTAL), func.sum(t.Counter.value))
        columns = ["job", "dataset", "name", "batch", "value"]
        added = self._insert(t.Counter).from_select(
            columns, sums.where(*old).group_by(t.Counter.job, t.Counter.dataset, t.Counter.name)
        )
        total = {"value": t.Counter.value + added.excluded["value"]}
        session.execute(added.on_conflict_do_update(index_elements=columns[:-1], set_=total))
        session.execute(delete(t.Counter).where(*old))

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
                "origin": letter.origin,
            }
            for letter in dead
        ]
        if rows:
            added = self._insert(t.DeadLetterRow)
            fresh = {name: added.excluded[name] for name in ("reason", "raw", "size", "origin")}
            again = added.on_conflict_do_update(
                index_elements=["dataset", "source", "position", "field"],
                set_={**fresh, "replay": None},
                where=t.DeadLetterRow.origin != added.excluded.origin,  # read again under another definition
            )
            session.execute(again, rows)


def _letter(row: t.DeadLetterRow) -> DeadLetter:
    return DeadLetter(row.dataset, row.source, row.position, row.reason, row.raw, row.size, row.field, row.at)
