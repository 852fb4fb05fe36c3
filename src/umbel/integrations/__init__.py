"""Credentials stored by other services."""

from umbel.definitions.secret import Secret

__all__ = ["Secret"]
