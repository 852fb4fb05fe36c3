"""Positions in the history of a server: the sets of transactions by their global identifiers."""

from __future__ import annotations

import struct
import uuid
from typing import Protocol, Self

from umbel.errors import InvalidValue

_COUNT = (1 << 28) - 1
"""The bits of a list's length; the others are flags."""


class History(Protocol):
    """The transactions that were read."""

    @property
    def text(self) -> str:
        """The set as the server writes it."""

    def add(self, identifier: bytes, server_id: int) -> None:
        """Add a transaction.

        Args:
            identifier: the data of its first event.
            server_id: of the server that it was made on.
        """

    def has(self, identifier: bytes) -> bool:
        """Return whether a transaction is among them.

        Args:
            identifier: the data of its first event.
        """

    def missing_in(self, other: Self) -> str:
        """Return transactions that another set lacks."""


class MariaDBHistory:
    """The last transaction of each domain: `0-1-100,1-2-5`.

    Args:
        text: as the server writes it.
    """

    def __init__(self, text: str) -> None:
        parts = (each.strip().split("-") for each in text.split(",") if each.strip())
        self._last = {int(domain): (int(server), int(number)) for domain, server, number in parts}

    @classmethod
    def listed(cls, data: bytes) -> Self:
        """Return the transactions of the list that a file of the log begins with.

        Args:
            data: of the event.
        """
        made = cls("")
        count = int.from_bytes(data[:4], "little") & _COUNT
        for domain, server, number in struct.iter_unpack("<IIQ", data[4 : 4 + 16 * count]):
            made._last[domain] = server, number  # a domain has one for each of its servers, the present one last
        return made

    @property
    def text(self) -> str:
        """The set as the server writes it."""
        return ",".join(f"{domain}-{server}-{number}" for domain, (server, number) in sorted(self._last.items()))

    def add(self, identifier: bytes, server_id: int) -> None:
        """Add a transaction."""
        number, domain = struct.unpack_from("<QI", identifier)
        self._last[domain] = server_id, number

    def has(self, identifier: bytes) -> bool:
        """Return whether a transaction is among them."""
        number, domain = struct.unpack_from("<QI", identifier)
        return bool(number <= self._last.get(domain, (0, 0))[1])

    def missing_in(self, other: MariaDBHistory) -> str:
        """Return the last transactions that another set lacks."""
        lacking = (
            f"{domain}-{server}-{number}"
            for domain, (server, number) in sorted(self._last.items())
            if other._last.get(domain, (0, 0))[1] < number
        )
        return ",".join(lacking)


class MySQLHistory:
    """The transactions of each server, by number: `3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5:7`.

    Args:
        text: as the server writes it.

    Raises:
        InvalidValue: it has tags.
    """

    def __init__(self, text: str) -> None:
        self._ranges: dict[str, list[tuple[int, int]]] = {}
        for part in text.replace("\n", "").split(","):
            server, *ranges = part.strip().lower().split(":")
            for each in ranges:
                first, _, last = each.partition("-")
                if not first.isdigit():
                    raise InvalidValue(
                        f"the transactions of the server have tags, which cannot be read: {server}:{each}",
                        hint="do not set gtid_next to AUTOMATIC:tag",
                    )
                self._ranges.setdefault(server, []).append((int(first), int(last or first)))

    @property
    def text(self) -> str:
        """The set as the server writes it."""
        return ",".join(
            ":".join((server, *(str(first) if first == last else f"{first}-{last}" for first, last in ranges)))
            for server, ranges in sorted(self._ranges.items())
        )

    def add(self, identifier: bytes, server_id: int) -> None:
        """Add a transaction."""
        del server_id
        server, number = _named(identifier)
        ranges = self._ranges.setdefault(server, [])
        if ranges and ranges[-1][1] + 1 == number:  # nearly always
            ranges[-1] = ranges[-1][0], number
            return
        merged = list[tuple[int, int]]()
        for first, last in sorted([*ranges, (number, number)]):
            if merged and first <= merged[-1][1] + 1:
                merged[-1] = merged[-1][0], max(merged[-1][1], last)
            else:
                merged.append((first, last))
        self._ranges[server] = merged

    def has(self, identifier: bytes) -> bool:
        """Return whether a transaction is among them."""
        server, number = _named(identifier)
        return any(first <= number <= last for first, last in self._ranges.get(server, ()))

    def missing_in(self, other: MySQLHistory) -> str:
        """Return the ranges of transactions that another set lacks some of."""
        lacking = (
            f"{server}:{first}-{last}"
            for server, ranges in sorted(self._ranges.items())
            for first, last in ranges
            if not any(low <= first and last <= high for low, high in other._ranges.get(server, ()))
        )
        return ",".join(lacking)

    @property
    def encoded(self) -> bytes:
        """The set in a request for the stream; ends of ranges are exclusive."""
        parts = [struct.pack("<Q", len(self._ranges))]
        for server, ranges in sorted(self._ranges.items()):
            parts.append(uuid.UUID(server).bytes + struct.pack("<Q", len(ranges)))
            parts += [struct.pack("<QQ", first, last + 1) for first, last in ranges]
        return b"".join(parts)


def _named(identifier: bytes) -> tuple[str, int]:
    """Return the server and the number of a transaction of MySQL."""
    (number,) = struct.unpack_from("<Q", identifier, 17)
    return str(uuid.UUID(bytes=identifier[1:17])), number
