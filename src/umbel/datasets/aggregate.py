"""Compatibility module: the aggregates, at their older import path."""

from umbel.aggregates import *  # noqa: F403
from umbel.aggregates import __all__  # noqa: F401
