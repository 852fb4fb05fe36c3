"""The audit log: actor, address, time, action, subject and outcome of each change.

An entry is written before the action begins.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from sqlalchemy import select, update

from umbel.catalog import tables as t
from umbel.catalog.catalog import Catalog
from umbel.errors import UmbelError

BEGUN, DONE, FAILED = "begun", "done", "failed"
LOCAL = "local"
"""The address of actions that did not come over HTTP."""
LONGEST_SUBJECT = 2000


@dataclass(frozen=True, slots=True)
class Actor:
    """The actor of an action.

    Args:
        name: `token NAME`, or `account NAME` for commands on the folder.
        address: of the peer.
    """

    name: str
    address: str = LOCAL


def account() -> Actor:
    """Return the account that runs this process."""
    import os
    import pwd

    try:
        return Actor(f"account {pwd.getpwuid(os.getuid()).pw_name}")
    except KeyError:
        return Actor(f"account {os.getuid()}")


class AuditLog:
    """The audit log of a deployment.

    Args:
        catalog: the catalog it is stored in.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._sessions = catalog.sessions

    def begin(self, actor: Actor, action: str, subject: str) -> int:
        """Record an action before it begins; return the number of its entry."""
        row = t.Audit(
            actor=actor.name,
            address=actor.address,
            action=action,
            subject=subject[:LONGEST_SUBJECT],
            outcome=BEGUN,
        )
        with self._sessions.begin() as session:
            session.add(row)
            session.flush()
            return row.id

    def end(self, entry: int, outcome: str, subject: str | None = None) -> None:
        """Record the outcome of an action, and its subject if it became known only meanwhile."""
        values = {"outcome": outcome} | ({} if subject is None else {"subject": subject[:LONGEST_SUBJECT]})
        with self._sessions.begin() as session:
            session.execute(update(t.Audit).where(t.Audit.id == entry).values(values))

    @contextmanager
    def recorded(self, action: str, subject: str, actor: Actor | None = None) -> Iterator[None]:
        """Record the block as an action, by default of the account that runs this process."""
        entry = self.begin(actor or account(), action, subject)
        try:
            yield
        except BaseException as error:
            self.end(entry, f"{FAILED}: {error.code if isinstance(error, UmbelError) else type(error).__name__}")
            raise
        self.end(entry, DONE)

    def entries(self, limit: int = 100) -> Sequence[t.Audit]:
        """Return the newest entries, newest first."""
        with self._sessions() as session:
            return session.scalars(select(t.Audit).order_by(t.Audit.id.desc()).limit(limit)).all()
