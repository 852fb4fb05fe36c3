"""Credentials in AWS Secrets Manager."""

from umbel.definitions.secret import Secret

__all__ = ["Secret"]
