"""Expectations: what a dataset's rows should be like."""

from umbel.api.expect import *  # noqa: F403
from umbel.api.expect import __all__ as _expectations
from umbel.api.expectations import expectations

__all__ = ["expectations"]
__all__ += _expectations
