"""HTTP: changes posted to a server; a sink only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from umbel.definitions.arguments import (
    ELSEWHERE,
    SAME_PLACE,
    DataConnector,
    DataSource,
    Declared,
    Delivery,
    refuse_options,
    require_incremental,
)
from umbel.definitions.secret import Credential, Secret
from umbel.errors import InvalidValue

if TYPE_CHECKING:
    from umbel.connectors.sinks import SinkWriter, WriteOptions


@dataclass(frozen=True)
class Certificate(Declared):
    """A certificate authority's certificate, as text or as a Secret."""

    cert: Credential

    positional: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class HTTPConnector(DataConnector):
    """One endpoint.

    Args:
        endpoint: its path.
        limit: the maximum number of changes in one request.
        headers: further headers of each request.
    """

    endpoint: str
    limit: int | None = field(default=None, metadata=SAME_PLACE)
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False, metadata=SAME_PLACE)

    is_source: ClassVar[bool] = False

    @property
    def target(self) -> str:
        return f"{self.title}, path '{self.endpoint}'"

    def check_sink(self, delivery: Delivery) -> None:
        owner = f"sink to {self.title}"
        if delivery.cdc != "debezium":
            raise InvalidValue(f"{owner}: cdc must be 'debezium', found {delivery.cdc!r}", hint='cdc="debezium"')
        require_incremental(owner, delivery.how, optional=True)
        if self.limit is not None and self.limit < 1:
            raise InvalidValue(f"{owner}: limit must be positive, found {self.limit}", hint="leave it out for 1000")
        refuse_options(
            owner, every=delivery.every, renames=delivery.renames, since=delivery.since, until=delivery.until
        )

    def check_writer(self) -> None:
        """Refuse credentials that cannot be read."""
        from umbel.connectors.credentials import check_credential

        assert isinstance(self.source, HTTP)
        certificate = self.source.ca_cert
        for each in (self.source.host, certificate.cert if isinstance(certificate, Certificate) else certificate):
            check_credential(each, self.title)

    def writer_of(self, options: WriteOptions) -> SinkWriter:
        from umbel.connectors.http_sink import EndpointWriter

        return EndpointWriter(self, options)


@dataclass(frozen=True, kw_only=True)
class HTTP(DataSource):
    """A server that accepts changes.

    Args:
        host: its URL, as text or as a Secret.
        healthz: the path of its health check.
        ca_cert: the certificate of the authority that signed its certificate.
    """

    host: Credential = field(metadata=ELSEWHERE)
    healthz: str = field(metadata=SAME_PLACE)
    ca_cert: Certificate | Secret | None = field(default=None, metadata=SAME_PLACE)

    needs: ClassVar[str] = "a path: .path(...)"

    def path(self, endpoint: str, limit: int | None = None, headers: Mapping[str, str] | None = None) -> HTTPConnector:
        """Return the connector for one endpoint.

        Args:
            endpoint: its path.
            limit: the maximum number of changes in one request.
            headers: further headers of each request.
        """
        return HTTPConnector(source=self, endpoint=endpoint, limit=limit, headers=tuple((headers or {}).items()))
