"""The lag of every source, in a file written by the worker.

Other processes read it: only the worker polls the sources, and they must not be polled for monitoring besides.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from umbel.connectors.lag import SourceLag
from umbel.state.stored_json import parse_stored

FILE = "source-lags.json"
EVERY = 1.0
"""Seconds between two records."""
LONG = 60.0
"""Seconds of lag, or without a record, from which on there is something to do."""
_AWAY = "it stopped answering while it was read; it is tried again once a minute at least, and the other sources go on"


@dataclass(frozen=True, slots=True)
class MeasuredLag:
    """The lag of one source.

    Args:
        source: its key.
        title: of its connector.
        lag: what it has beyond the last batch.
        trouble: why it cannot be read; empty if it can.
        at: the instant of the record, in seconds since the epoch.
        is_loading: whether it has no watermark yet, because rows that exist already are still read, in no order of event time.
    """

    source: str
    title: str
    lag: SourceLag
    trouble: str
    at: float
    is_loading: bool = False

    @property
    def is_bad(self) -> bool:
        """True if somebody should do something about it."""
        return bool(self.trouble) or (self.lag.seconds or 0.0) > LONG

    def __str__(self) -> str:
        if self.trouble:
            return f"{self.title}: cannot be read: {self.trouble}"
        return (
            f"{self.title}: {self.lag}{'; no watermark until the rows that exist are read' if self.is_loading else ''}"
        )

    @property
    def remedy(self) -> str:
        """The advice to the user; empty if nothing needs doing."""
        if self.trouble:
            return "see that the source runs and can be reached, and that its login and rights are as committed"
        if not self.is_bad:
            return ""
        return "give the worker more task slots and cores: -w; see docs/howto/sizing.md"


@dataclass
class LagRecord:
    """Writes the lags of the sources of a deployment.

    Args:
        directory: of the deployment.
    """

    directory: Path
    _written_at: float = field(default=0.0, init=False)

    def note(
        self,
        sources: Sequence[Any],
        positions: Mapping[str, Any],
        loading: Collection[str] = (),
        away: Collection[str] = (),
    ) -> None:
        """Write the lags of polled sources beyond the positions before, at most once per `EVERY`.

        A source whose lag cannot be found, or a full disk, stops no batch.

        Args:
            sources: that were polled.
            positions: by the keys of sources.
            loading: the keys of those without a watermark yet.
            away: the keys of those that stopped answering while they were read, and have not been read since.
        """
        now = time.time()
        if 0 <= now - self._written_at < EVERY:
            return
        self._written_at = now
        found = [_measured(each, positions, loading, now) for each in sources if hasattr(each, "lag")]  # no replays
        found = [replace(each, trouble=each.trouble or _AWAY) if each.source in away else each for each in found]
        with suppress(OSError):
            part = self.directory / f"{FILE}.{os.getpid()}"
            part.write_text(json.dumps([asdict(each) for each in found]))
            part.replace(self.directory / FILE)


def _measured(source: Any, positions: Mapping[str, Any], loading: Collection[str], now: float) -> MeasuredLag:
    try:
        lag = source.lag(positions.get(source.key))
        trouble = source.trouble or source.reading.trouble
    except Exception as error:  # noqa: BLE001  a figure for monitoring
        lag, trouble = SourceLag(), f"{type(error).__name__}: {error}"[:500]
    return MeasuredLag(source.key, source.title, lag, trouble, now, source.key in loading)


def source_lags(directory: Path) -> list[MeasuredLag]:
    """Return the last lags that the worker has recorded, none if there are none.

    Args:
        directory: of the deployment.
    """
    try:
        found = parse_stored((directory / FILE).read_bytes())
        return [MeasuredLag(**{**each, "lag": SourceLag(**each["lag"])}) for each in found]
    except (OSError, ValueError, TypeError, KeyError):
        return []
