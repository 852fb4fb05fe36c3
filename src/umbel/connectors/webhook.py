"""Webhook: rows pushed over HTTP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from umbel.connectors.declared import DataConnector, DataSource
from umbel.errors import InvalidType, InvalidValue
from umbel.types.durations import parse_duration


@dataclass(frozen=True, kw_only=True)
class WebhookConnector(DataConnector):
    """One endpoint of a webhook."""

    endpoint: str


@dataclass(frozen=True, kw_only=True)
class Webhook(DataSource):
    """Rows pushed over HTTP, by `client.log` or by anything that can post JSON.

    Args:
        retention: how long rows are kept for datasets that come later.
    """

    retention: str = "7d"

    needs: ClassVar[str] = "an endpoint: .endpoint(...)"

    def __post_init__(self) -> None:
        try:
            parse_duration(self.retention)
        except (InvalidType, InvalidValue) as error:
            raise InvalidValue(f"Webhook '{self.name}': retention: {error.message}", hint=error.hint) from error

    def endpoint(self, endpoint: str) -> WebhookConnector:
        """Return the connector for one endpoint."""
        return WebhookConnector(source=self, endpoint=endpoint)
