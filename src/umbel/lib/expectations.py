"""Expectations on the rows of a dataset."""

from umbel.api import expect
from umbel.api.expect import *  # noqa: F403
from umbel.api.expectations import expectations

__all__ = ["expectations"]
__all__ += expect.__all__
