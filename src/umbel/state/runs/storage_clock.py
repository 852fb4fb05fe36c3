"""The clock of an object store, as far as its objects tell.

The clocks of the machines that use the store do not count: one that is ahead would take new objects for old ones.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class StorageClock:
    """The time by an object store, at least.

    It is that of the latest change of an object, and what has passed since it was listed.
    """

    def __init__(self) -> None:
        self._seen = _EPOCH, time.monotonic()

    def before(self, changed: Iterable[datetime], age: float) -> datetime:
        """Return the time before which objects have some age.

        Args:
            changed: the times of the changes of objects, as just listed.
            age: in seconds.
        """
        now, (seen, at) = time.monotonic(), self._seen
        self._seen = max((seen + timedelta(seconds=now - at), *changed)), now
        return self._seen[0] - timedelta(seconds=age)
