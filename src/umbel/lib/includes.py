"""Code shipped with functions."""

from umbel.api.inputs import includes

__all__ = ["includes"]
