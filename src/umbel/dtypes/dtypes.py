"""The names of `umbel.dtypes`, where older programs import them from."""

from umbel.dtypes import *  # noqa: F403
from umbel.dtypes import __all__  # noqa: F401
