"""Import path of the comparison functions, for compatibility."""

from __future__ import annotations

from umbel.testing.compare import almost_equal

__all__ = ["almost_equal"]
