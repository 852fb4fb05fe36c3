"""Testing: definitions tried out in process, without server or JVM."""

from __future__ import annotations

from umbel.testing.compare import almost_equal
from umbel.testing.decorator import log, mock
from umbel.testing.mock_client import MockClient

__all__ = ["MockClient", "almost_equal", "log", "mock"]
