"""A rate limit on failed authentication attempts, per address."""

from __future__ import annotations

import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable

MOST = 30
"""Failed attempts of one address within `WITHIN` seconds."""
WITHIN = 60.0
ADDRESSES = 10_000
"""Addresses that are counted separately; of more, the one with the oldest attempt is forgotten."""


class Attempts:
    """Counts failed attempts per address.

    Args:
        clock: seconds that never go back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._counts: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def begin(self, address: str) -> float:
        """Count an attempt; return 0, or the seconds to wait before another."""
        key, now = _network(address), self._clock()
        count, at = self._counts.pop(key, (0.0, now))
        count = max(0.0, count - (now - at) * MOST / WITHIN)
        is_allowed = count + 1 <= MOST
        self._counts[key] = (count + 1 if is_allowed else count), now
        if len(self._counts) > ADDRESSES:
            self._counts.popitem(last=False)
        return 0.0 if is_allowed else (count + 1 - MOST) * WITHIN / MOST

    def succeeded(self, address: str) -> None:
        """Uncount the last attempt of an address after it succeeded."""
        key = _network(address)
        count, at = self._counts.get(key, (0.0, self._clock()))
        self._counts[key] = max(0.0, count - 1), at


def _network(address: str) -> str:
    """Return the address, or for IPv6 its /64 network.

    One peer can choose freely among the addresses of a /64 network.
    """
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is None:
        return str(ipaddress.ip_network((found, 64), strict=False))
    return str(found)
