"""The catalog's tables: deployed definitions, progress of jobs, and errors."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, BigInteger, DateTime, Float, Index, Integer, LargeBinary, String, Text, func
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from umbel.catalog.stored_text import StoredText

Serial = BigInteger().with_variant(Integer, "sqlite")


class CatalogRow(DeclarativeBase):
    """A table of the catalog."""


class SettingRow(CatalogRow):
    """A fixed property of the deployment, such as its number of shards."""

    __tablename__ = "settings"
    name: Mapped[str] = mapped_column(String(64), primary_key=True)
    value: Mapped[Any] = mapped_column(JSON)


class Commit(CatalogRow):
    """A commit: the definitions in force on a branch from then on."""

    __tablename__ = "commits"
    revision: Mapped[int] = mapped_column(Serial, primary_key=True, autoincrement=True)
    branch: Mapped[str] = mapped_column(StoredText, index=True)
    message: Mapped[str] = mapped_column(StoredText)
    at: Mapped[datetime] = mapped_column(DateTime(timezone=True), server_default=func.now())
    definitions: Mapped[bytes] = mapped_column(LargeBinary)
    """The digests of their pieces, or small ones themselves; see `umbel.catalog.definition_pieces`."""
    waits: Mapped[bool] = mapped_column(default=False)
    """True if its state must be backfilled first; a later commit of the same definitions, without it, makes the switch."""


class DefinitionPiece(CatalogRow):
    """A piece of the definitions of commits, compressed, by the digest of its bytes."""

    __tablename__ = "definition_pieces"
    digest: Mapped[str] = mapped_column(String(64), primary_key=True)
    data: Mapped[bytes] = mapped_column(LargeBinary)


class Erasure(CatalogRow):
    """Keys erased on a branch, from a revision on."""

    __tablename__ = "erasures"
    id: Mapped[int] = mapped_column(Serial, primary_key=True, autoincrement=True)
    revision: Mapped[int] = mapped_column(BigInteger)
    branch: Mapped[str] = mapped_column(String(256), index=True)
    dataset: Mapped[str] = mapped_column(String(256))
    identity: Mapped[str] = mapped_column(String(64))
    keys: Mapped[bytes] = mapped_column(LargeBinary)


class Job(CatalogRow):
    """A streaming job; the worker that raised its epoch last owns it."""

    __tablename__ = "jobs"
    name: Mapped[str] = mapped_column(String(64), primary_key=True)
    epoch: Mapped[int] = mapped_column(BigInteger, default=0)


class BatchRow(CatalogRow):
    """A finished batch and the event-time progress for the next one.

    A batch that is run again replaces its row.
    """

    __tablename__ = "batches"
    job: Mapped[str] = mapped_column(String(64), primary_key=True)
    number: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    revision: Mapped[int] = mapped_column(BigInteger)
    at: Mapped[datetime] = mapped_column(DateTime(timezone=True), server_default=func.now())
    progress: Mapped[dict[str, Any]] = mapped_column(JSON)


class Counter(CatalogRow):
    """A count of one batch, until it is folded into the total.

    Counts per batch ensure that a batch that is run again counts once.
    """

    __tablename__ = "counters"
    job: Mapped[str] = mapped_column(String(64), primary_key=True)
    dataset: Mapped[str] = mapped_column(String(256), primary_key=True)
    name: Mapped[str] = mapped_column(String(64), primary_key=True)
    batch: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    value: Mapped[int] = mapped_column(BigInteger)


class DeadLetterRow(CatalogRow):
    """A rejected record, with the reason and its position."""

    __tablename__ = "dead_letters"
    id: Mapped[int] = mapped_column(Serial, primary_key=True, autoincrement=True)
    dataset: Mapped[str] = mapped_column(StoredText)
    source: Mapped[int] = mapped_column(Integer)
    position: Mapped[str] = mapped_column(StoredText(1024))
    field: Mapped[str] = mapped_column(StoredText(256), default="")
    reason: Mapped[str] = mapped_column(StoredText)
    raw: Mapped[bytes] = mapped_column(LargeBinary)
    size: Mapped[int] = mapped_column(BigInteger)
    at: Mapped[datetime] = mapped_column(DateTime(timezone=True), server_default=func.now())
    origin: Mapped[str] = mapped_column(String(64), default="", server_default="")
    """The fingerprint of the source as it was defined: after a change its records are read again."""
    replay: Mapped[int | None] = mapped_column(BigInteger)
    """The replay that processes it again, None for none."""
    __table_args__ = (
        Index("one_per_position", "dataset", "source", "position", "field", unique=True),
        Index("letters_of_replay", "replay", "dataset", "source", "id"),
        Index("newest_of_dataset", "dataset", "id"),
    )


class Verdict(CatalogRow):
    """A row rejected for good because a function failed on it.

    The reason (such as a timeout) need not recur in another run; the row is skipped from then on.
    """

    __tablename__ = "verdicts"
    function: Mapped[str] = mapped_column(String(64), primary_key=True)
    row: Mapped[str] = mapped_column(String(64), primary_key=True)
    reason: Mapped[str] = mapped_column(StoredText)


class Suspect(CatalogRow):
    """A function that was running in a process that died.

    While it is active, it runs in a separate process.
    """

    __tablename__ = "suspects"
    function: Mapped[str] = mapped_column(String(64), primary_key=True)
    times: Mapped[int] = mapped_column(Integer)
    active: Mapped[bool] = mapped_column()


class OfflineJobRow(CatalogRow):
    """An offline query that runs in the background, with its finished parts."""

    __tablename__ = "offline_jobs"
    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    branch: Mapped[str] = mapped_column(String(256))
    status: Mapped[str] = mapped_column(String(16), index=True)
    reason: Mapped[str] = mapped_column(StoredText, default="")
    request: Mapped[bytes] = mapped_column("asked", LargeBinary)
    rows: Mapped[bytes | None] = mapped_column(LargeBinary)
    bucket: Mapped[str] = mapped_column(StoredText)
    prefix: Mapped[str] = mapped_column(StoredText)
    attempts: Mapped[int] = mapped_column(Integer, default=0)
    is_sealed: Mapped[bool] = mapped_column(default=False)
    parts: Mapped[dict[str, Any]] = mapped_column(JSON, default=dict)
    done: Mapped[float] = mapped_column(Float, default=0.0)
    taken: Mapped[int] = mapped_column(BigInteger, default=0)
    failed: Mapped[int] = mapped_column(BigInteger, default=0)
    at: Mapped[datetime] = mapped_column(DateTime(timezone=True), server_default=func.now())


class BackfillRow(CatalogRow):
    """An operator's backfill: `done` once its state is ready for the live job."""

    __tablename__ = "backfills"
    owner: Mapped[str] = mapped_column(String(64), primary_key=True)
    done: Mapped[bool] = mapped_column()


class Landmark(CatalogRow):
    """A row of a source, from which the positions of later ones are counted."""

    __tablename__ = "landmarks"
    source: Mapped[str] = mapped_column(String(512), primary_key=True)
    number: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    text: Mapped[str] = mapped_column(Text)


class Removal(CatalogRow):
    """Obsolete state of an operator, retained while a server may still read it."""

    __tablename__ = "removals"
    owner: Mapped[str] = mapped_column(String(64), primary_key=True)
    log: Mapped[str] = mapped_column(String(512))
    at: Mapped[float] = mapped_column(Float)


class SecretRow(CatalogRow):
    """A secret, encrypted."""

    __tablename__ = "secrets"
    name: Mapped[str] = mapped_column(StoredText, primary_key=True)
    value: Mapped[bytes] = mapped_column(LargeBinary)


class Token(CatalogRow):
    """An access token, stored as a hash.

    `active` is its name until it is revoked, so that active names are unique.
    """

    __tablename__ = "tokens"
    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    name: Mapped[str] = mapped_column(StoredText)
    active: Mapped[str | None] = mapped_column(StoredText, unique=True)
    role: Mapped[str] = mapped_column(String(16))
    is_local: Mapped[bool] = mapped_column(default=False)
    salt: Mapped[bytes] = mapped_column(LargeBinary)
    hash: Mapped[bytes] = mapped_column(LargeBinary)
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True), server_default=func.now())
    revoked_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))


class Audit(CatalogRow):
    """An action that changes the deployment or the access to it.

    It has an actor, time, address and outcome.
    """

    __tablename__ = "audit"
    id: Mapped[int] = mapped_column(Serial, primary_key=True, autoincrement=True)
    at: Mapped[datetime] = mapped_column(DateTime(timezone=True), server_default=func.now())
    actor: Mapped[str] = mapped_column(StoredText(256))
    address: Mapped[str] = mapped_column(StoredText(64))
    action: Mapped[str] = mapped_column(String(64))
    subject: Mapped[str] = mapped_column(StoredText)
    outcome: Mapped[str] = mapped_column(StoredText(64))


class EventRow(CatalogRow):
    """An event for umbel's operator: an error, a restart."""

    __tablename__ = "events"
    id: Mapped[int] = mapped_column(Serial, primary_key=True, autoincrement=True)
    at: Mapped[datetime] = mapped_column(DateTime(timezone=True), server_default=func.now())
    process: Mapped[str] = mapped_column(String(32))
    level: Mapped[str] = mapped_column(String(16))
    text: Mapped[str] = mapped_column(StoredText)
