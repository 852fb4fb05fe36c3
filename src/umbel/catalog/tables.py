"""The catalog's tables: what is deployed, how far its jobs are, and what went wrong."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, BigInteger, DateTime, Float, Index, Integer, LargeBinary, String, Text, func
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

Serial = BigInteger().with_variant(Integer, "sqlite")


class Table(DeclarativeBase):
    """A table of the catalog."""


class Setting(Table):
    """A fixed property of the deployment, such as its number of shards."""

    __tablename__ = "settings"
    name: Mapped[str] = mapped_column(String(64), primary_key=True)
    value: Mapped[Any] = mapped_column(JSON)


class Commit(Table):
    """A commit: the definitions in force on a branch from then on."""

    __tablename__ = "commits"
    revision: Mapped[int] = mapped_column(Serial, primary_key=True, autoincrement=True)
    branch: Mapped[str] = mapped_column(String(256), index=True)
    message: Mapped[str] = mapped_column(Text)
    at: Mapped[datetime] = mapped_column(DateTime(timezone=True), server_default=func.now())
    definitions: Mapped[bytes] = mapped_column(LargeBinary)


class Erasure(Table):
    """Keys erased on a branch, from a revision on."""

    __tablename__ = "erasures"
    id: Mapped[int] = mapped_column(Serial, primary_key=True, autoincrement=True)
    revision: Mapped[int] = mapped_column(BigInteger)
    branch: Mapped[str] = mapped_column(String(256), index=True)
    dataset: Mapped[str] = mapped_column(String(256))
    identity: Mapped[str] = mapped_column(String(64))
    keys: Mapped[bytes] = mapped_column(LargeBinary)


class Job(Table):
    """A streaming job; who raises its epoch owns it."""

    __tablename__ = "jobs"
    name: Mapped[str] = mapped_column(String(64), primary_key=True)
    epoch: Mapped[int] = mapped_column(BigInteger, default=0)


class Batch(Table):
    """A finished batch: event time as the next one must see it. A batch run again replaces its row."""

    __tablename__ = "batches"
    job: Mapped[str] = mapped_column(String(64), primary_key=True)
    number: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    revision: Mapped[int] = mapped_column(BigInteger)
    at: Mapped[datetime] = mapped_column(DateTime(timezone=True), server_default=func.now())
    progress: Mapped[dict[str, Any]] = mapped_column(JSON)


class Counter(Table):
    """A count of one batch, kept per batch until it is folded into the total, so that a batch run again counts once."""

    __tablename__ = "counters"
    job: Mapped[str] = mapped_column(String(64), primary_key=True)
    dataset: Mapped[str] = mapped_column(String(256), primary_key=True)
    name: Mapped[str] = mapped_column(String(64), primary_key=True)
    batch: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    value: Mapped[int] = mapped_column(BigInteger)


class DeadLetter(Table):
    """A record that could not be taken in, with the reason and where it was found."""

    __tablename__ = "dead_letters"
    id: Mapped[int] = mapped_column(Serial, primary_key=True, autoincrement=True)
    dataset: Mapped[str] = mapped_column(String(256))
    source: Mapped[int] = mapped_column(Integer)
    position: Mapped[str] = mapped_column(String(1024))
    field: Mapped[str] = mapped_column(String(256), default="")
    reason: Mapped[str] = mapped_column(Text)
    raw: Mapped[bytes] = mapped_column(LargeBinary)
    size: Mapped[int] = mapped_column(BigInteger)
    at: Mapped[datetime] = mapped_column(DateTime(timezone=True), server_default=func.now())
    __table_args__ = (
        Index("one_per_position", "dataset", "source", "position", "field", unique=True),
        Index("newest_of_dataset", "dataset", "id"),
    )


class OfflineJob(Table):
    """An offline query that a server works on by itself; who raises its epoch works on it, while `beat` is young."""

    __tablename__ = "offline_jobs"
    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    branch: Mapped[str] = mapped_column(String(256))
    status: Mapped[str] = mapped_column(String(16), index=True)
    reason: Mapped[str] = mapped_column(Text, default="")
    asked: Mapped[bytes] = mapped_column(LargeBinary)
    rows: Mapped[bytes | None] = mapped_column(LargeBinary)
    bucket: Mapped[str] = mapped_column(Text)
    prefix: Mapped[str] = mapped_column(Text)
    epoch: Mapped[int] = mapped_column(BigInteger, default=0)
    beat: Mapped[float] = mapped_column(Float, default=0.0)
    attempts: Mapped[int] = mapped_column(Integer, default=0)
    is_sealed: Mapped[bool] = mapped_column(default=False)
    position: Mapped[dict[str, Any]] = mapped_column(JSON)
    done: Mapped[float] = mapped_column(Float, default=0.0)
    taken: Mapped[int] = mapped_column(BigInteger, default=0)
    failed: Mapped[int] = mapped_column(BigInteger, default=0)
    at: Mapped[datetime] = mapped_column(DateTime(timezone=True), server_default=func.now())


class Backfill(Table):
    """An operator whose state was computed from history, and is ready for the live job."""

    __tablename__ = "backfills"
    owner: Mapped[str] = mapped_column(String(64), primary_key=True)
    done: Mapped[bool] = mapped_column()


class Secret(Table):
    """A secret, encrypted."""

    __tablename__ = "secrets"
    name: Mapped[str] = mapped_column(String(256), primary_key=True)
    value: Mapped[bytes] = mapped_column(LargeBinary)


class Event(Table):
    """Something an operator of umbel should know: an error, a restart."""

    __tablename__ = "events"
    id: Mapped[int] = mapped_column(Serial, primary_key=True, autoincrement=True)
    at: Mapped[datetime] = mapped_column(DateTime(timezone=True), server_default=func.now())
    process: Mapped[str] = mapped_column(String(32))
    level: Mapped[str] = mapped_column(String(16))
    text: Mapped[str] = mapped_column(Text)
