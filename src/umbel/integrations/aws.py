"""Credentials in AWS Secrets Manager."""

from umbel.connectors.secret import Secret

__all__ = ["Secret"]
