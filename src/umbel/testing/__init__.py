"""Testing: run definitions in process, without server or JVM."""

from __future__ import annotations

from umbel.testing.client import MockClient
from umbel.testing.compare import almost_equal
from umbel.testing.decorator import log, mock

__all__ = ["MockClient", "almost_equal", "log", "mock"]
