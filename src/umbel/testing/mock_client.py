"""Import path of the mock client, for compatibility."""

from __future__ import annotations

from umbel.testing.client import MockClient
from umbel.testing.decorator import log, mock

__all__ = ["MockClient", "log", "mock"]
