"""The HTTP client of a umbel server."""

from __future__ import annotations

from umbel.client.client import Client

__all__ = ["Client"]
