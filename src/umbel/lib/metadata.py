"""Owners, descriptions and tags."""

from umbel.api.metadata import desc, meta

__all__ = ["desc", "meta"]
