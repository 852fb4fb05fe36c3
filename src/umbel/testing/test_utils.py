"""The older place of the comparison functions."""

from __future__ import annotations

from umbel.testing.compare import almost_equal

__all__ = ["almost_equal"]
