"""Secrets, for use in extractors and pipelines."""

from umbel.api.secrets import secrets

get = secrets.get

__all__ = ["get", "secrets"]
