"""Credentials that are kept by others."""

from umbel.connectors.secret import Secret

__all__ = ["Secret"]
