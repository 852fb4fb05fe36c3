"""Decorators and descriptions of definitions."""

# isort: off
# The submodules first: the functions of the same names replace them as attributes.
import umbel.lib.expectations
import umbel.lib.includes
import umbel.lib.secrets  # noqa: F401
from umbel.api.bucketize import bucketize
from umbel.api.expect import *  # noqa: F403
from umbel.api import expect as _expect
from umbel.api.expectations import expectations
from umbel.api.inputs import includes, inputs, outputs
from umbel.api.metadata import desc, meta
from umbel.api.secrets import secrets
# isort: on

__all__ = ["bucketize", "desc", "expectations", "includes", "inputs", "meta", "outputs", "secrets"]
__all__ += _expect.__all__
