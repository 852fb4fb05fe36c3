"""The aggregates, where older programs import them from."""

from umbel.aggregates import *  # noqa: F403
from umbel.aggregates import __all__  # noqa: F401
