"""Rows refused by a sink's destination, until they are dead letters.

What is refused is noted before the others take effect, and is a dead letter afterwards. So a worker that dies in between finds,
by the position of the destination, whether the note is of a transaction that took effect: each refused row is counted once.

A destination that accepts no row at all is taken to be wrong itself. Its rows are held until it accepts another one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from umbel.catalog.catalog import RAW_LIMIT, Catalog, DeadLetter
from umbel.connectors.sinks import ENOUGH, Isolation, NoneAccepted, Refusal, RowChange, SinkPosition, none_accepted
from umbel.runtime.dead_letters import DROPPED, REASON, SINK
from umbel.runtime.limits import Limits

ORDINAL = -2
"""The ordinal of the source of dead letters that come from a sink."""
BYTES = 8 << 20
"""Bytes of refused rows that one transaction stores at the most."""
TOTALS = 0
"""The number under which the counts of a sink are, all of them in one."""


@dataclass(frozen=True, kw_only=True)
class RefusingSink:
    """A sink whose refused rows are noted.

    Args:
        id: of the sink.
        dataset: the name of the dataset in the graph.
        target: the destination, for messages.
        keeps_position: whether the destination does.
    """

    id: str
    dataset: str
    target: str
    keeps_position: bool


class Refusals:
    """The refused rows of a sink that are no dead letters yet.

    Args:
        catalog: the catalog.
        sink: the sink.
        reached: its position.
    """

    def __init__(self, catalog: Catalog, sink: RefusingSink, reached: SinkPosition) -> None:
        self._catalog, self._sink = catalog, sink
        self._most = Limits.from_environment().dead_letters_per_batch
        noted = catalog.noted(self._name) or {}
        self._totals: dict[str, int] = noted.get("totals", {})
        self._letters, self._count = [_letter(sink, each) for each in noted.get("letters", ())], noted.get("count", 0)
        self._until = SinkPosition(*noted["until"]) if noted.get("until") else None
        self._divided: list[str] = noted.get("divided", [])
        self.is_holding = bool(noted.get("is_holding"))
        first: Sequence[str] = noted.get("first") or ("", "")
        self._first, self._hint = first
        self.reached = self._resumed(reached)

    def _resumed(self, reached: SinkPosition) -> SinkPosition:
        """Return the position, with the noted transaction if that took effect."""
        if self._until is None:
            return reached
        if self._sink.keeps_position:
            if self._until == reached and not self.is_holding:
                self.bury()
            else:
                self.forget()
        elif not self.is_holding or self._until <= reached:  # all of it was delivered, or a row behind it was
            reached = max(reached, self._until)
            self.bury()
        return reached

    @property
    def pending_until(self) -> SinkPosition:
        """The position behind the transactions of which all rows are held."""
        return self._until if self.is_holding and self._until is not None else SinkPosition()

    def prepare(self, position: SinkPosition) -> None:
        """Note that the rows held so far are dead letters once a transaction takes effect."""
        if self.is_holding and self._sink.keeps_position:
            self._note(position, is_holding=False)

    def hold(self, refused: NoneAccepted, position: SinkPosition) -> None:
        """Hold the rows of a transaction until another row is accepted.

        Raises:
            NoneAccepted: there are too many.
        """
        self._add(refused.refused, position)
        self._divided = []
        self._note(position, is_holding=True)
        if self._count >= ENOUGH:
            self.wait()

    def wait(self) -> None:
        """Give up until the next attempt, if rows are held.

        Raises:
            NoneAccepted: rows are held.
        """
        if self.is_holding:
            count, first, hint = self._count, self._first, self._hint
            self.forget()
            raise NoneAccepted(
                f"no row is accepted, of {count} tried: {first}",
                hint=f"{hint}; fewer than {ENOUGH} become dead letters as soon as another row is accepted",
            )

    def of(self, position: SinkPosition) -> Isolation:
        """Return the record of the refusals of a transaction."""
        return _Isolated(self, position)

    def bury(self) -> None:
        """Make dead letters of the rows: the transaction has taken effect."""
        if self._until is None:
            return
        dropped, kind = self._count - len(self._letters), f"{REASON}{SINK}"
        for name, count in (("dead", self._count), (kind, self._count), (DROPPED, dropped)):
            if count:
                self._totals[name] = self._totals.get(name, 0) + count
        counts = {(self._sink.dataset, name): count for name, count in self._totals.items()}
        self._catalog.bury(f"sink:{self._sink.id}", TOTALS, counts, self._letters)
        self.forget()

    def forget(self) -> None:
        """Forget the rows: the transaction has not taken effect, or they are dead letters."""
        self._letters, self._count, self._divided, self._first, self._hint = [], 0, [], "", ""
        self._note(None, is_holding=False)

    def settle(self, refused: Sequence[Refusal], accepted: Sequence[RowChange], position: SinkPosition) -> None:
        """Note the refused rows of a transaction that takes effect next.

        Raises:
            NoneAccepted: it must not.
        """
        has_rows = any(each.change.after is not None for each in refused)
        evidence = sum(each.after is not None or not has_rows for each in accepted)  # of rows, deletions are none
        if (refused and not evidence) or (len(refused) >= ENOUGH and len(refused) > evidence):
            raise none_accepted(refused)
        self._add(refused, position)
        self._divided = []
        self._note(position, is_holding=False)

    def divide(self, name: str) -> None:
        """Note that a request is sent in two parts."""
        self._divided.append(name)
        self._note(self._until, is_holding=self.is_holding)

    def is_divided(self, name: str) -> bool:
        """Return whether a request is sent in two parts."""
        return name in self._divided

    def _add(self, refused: Iterable[Refusal], position: SinkPosition) -> None:
        size = sum(len(each.raw) for each in self._letters)
        for each in refused:
            self._count += 1
            if not self._first:
                self._first, self._hint = each.error.message, each.error.hint or ""
            raw = _row(each.change)
            size += min(len(raw), RAW_LIMIT)
            if len(self._letters) < self._most and size <= BYTES:
                where = f"sink to {self._sink.target}: {_place(position)}, change {each.number}"
                self._letters.append(_letter(self._sink, (where, each.error.message, raw[:RAW_LIMIT], len(raw))))

    @property
    def _name(self) -> str:
        return f"sink-refused:{self._sink.id}"

    def _note(self, until: SinkPosition | None, *, is_holding: bool) -> None:
        self._until, self.is_holding = until, is_holding
        letters = [(each.position, each.reason, each.raw.decode(errors="ignore"), each.size) for each in self._letters]
        found = {
            "totals": self._totals,
            "letters": letters,
            "count": self._count,
            "until": [until.batch, until.rows] if until else None,
            "divided": self._divided,
            "is_holding": is_holding,
            "first": [self._first, self._hint],
        }
        self._catalog.note(self._name, found)


@dataclass(frozen=True, slots=True)
class _Isolated(Isolation):
    """The refusals of one transaction."""

    refusals: Refusals
    position: SinkPosition

    def settle(self, refused: Sequence[Refusal], accepted: Sequence[RowChange]) -> None:
        self.refusals.settle(refused, accepted, self.position)

    def divide(self, name: str) -> None:
        self.refusals.divide(name)

    def is_divided(self, name: str) -> bool:
        return self.refusals.is_divided(name)


def _letter(sink: RefusingSink, noted: Sequence[Any]) -> DeadLetter:
    position, reason, raw, size = noted
    data = raw if isinstance(raw, bytes) else raw.encode()
    return DeadLetter(sink.dataset, ORDINAL, position, reason, data, size, origin=sink.id)


def _row(change: RowChange) -> bytes:
    sides = {"key": change.key, "before": change.before, "after": change.after}
    return orjson.dumps({"op": change.op, **{name: side for name, side in sides.items() if side is not None}})


def _place(position: SinkPosition) -> str:
    """Return the name of a transaction by the position behind it."""
    batch = position.batch + bool(position.rows)
    named = "backfill" if batch < 0 else f"batch {batch}"
    return f"{named}, changes to {position.rows}" if position.rows else named
