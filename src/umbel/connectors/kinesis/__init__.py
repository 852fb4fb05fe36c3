"""Kinesis: streams of messages."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar, cast

from umbel.definitions.arguments import DataConnector, DataSource, ReadOptions, check_text
from umbel.errors import InvalidAttribute, InvalidType, InvalidValue, NotSupported
from umbel.types.epochs import in_utc

if TYPE_CHECKING:
    from umbel.connectors.splits import SplitSource

LATEST, TRIM_HORIZON = "latest", "trim_horizon"


@dataclass(frozen=True, slots=True)
class AtTimestamp:
    """Start reading at an instant."""

    instant: datetime


def at_timestamp(timestamp: datetime | float | str) -> AtTimestamp:
    """Start reading a stream at an instant.

    Args:
        timestamp: a datetime, seconds since the epoch, or ISO text; UTC if it has no zone.

    Raises:
        InvalidType: the value has another type.
        InvalidValue: the text is not a datetime.
    """
    if isinstance(timestamp, bool) or not isinstance(timestamp, datetime | int | float | str):
        raise InvalidType(
            f"at_timestamp: expected a datetime, seconds or ISO text, found {timestamp!r}",
            hint="at_timestamp(datetime(2024, 1, 31))",
        )
    return AtTimestamp(_instant(timestamp))


def _instant(timestamp: datetime | float | str) -> datetime:
    if isinstance(timestamp, int | float):
        return datetime.fromtimestamp(timestamp, UTC)
    try:
        found = timestamp if isinstance(timestamp, datetime) else datetime.fromisoformat(timestamp)
    except ValueError as error:
        hint = "latest, trim_horizon, or an ISO datetime"
        raise InvalidValue(f"Kinesis: init_position '{timestamp}' is not known: {error}", hint=hint) from error
    return in_utc(found)


def _position(position: Any) -> str | AtTimestamp:
    if isinstance(position, AtTimestamp):
        return position
    if isinstance(position, str) and position.lower() in (LATEST, TRIM_HORIZON):
        return position.lower()
    if isinstance(position, bool) or not isinstance(position, datetime | int | float | str):
        raise InvalidType(
            f"Kinesis: init_position must be text, a datetime or seconds, found {position!r}",
            hint="'latest', 'trim_horizon' or at_timestamp(...)",
        )
    return at_timestamp(position)


@dataclass(frozen=True, kw_only=True)
class KinesisConnector(DataConnector):
    """One stream."""

    stream_arn: str
    init_position: str | AtTimestamp
    format: str = "json"

    is_stream: ClassVar[bool] = True

    @property
    def streams(self) -> Kinesis:
        """The source of the stream."""
        return cast("Kinesis", self.source)

    @property
    def title(self) -> str:
        return f"{super().title}, stream '{self.stream_arn.rpartition('/')[2]}'"

    @property
    def letter_format(self) -> Any:
        return self.format

    @property
    def nests(self) -> bool:
        return True

    @property
    def is_latest(self) -> bool:
        """True if reading begins with the records that come from then on."""
        return self.init_position == LATEST

    @property
    def starts_at(self) -> float | None:
        """The instant at which reading begins, in seconds; None for a position by name."""
        return self.init_position.instant.timestamp() if isinstance(self.init_position, AtTimestamp) else None

    def reader_of(self, options: ReadOptions) -> SplitSource:
        from umbel.connectors.kinesis.client import check_installed, region_of
        from umbel.connectors.kinesis.source import KinesisSource

        if self.source.is_reference:
            raise NotSupported(
                f"{self.title}: it is registered elsewhere, and this version has no register of sources",
                hint="Kinesis(name=..., role_arn=...)",
            )
        check_installed()
        region_of(self)
        return KinesisSource(self, options)


@dataclass(frozen=True, kw_only=True)
class Kinesis(DataSource):
    """The Kinesis streams readable by a role.

    Args:
        role_arn: the role.
    """

    role_arn: str

    needs: ClassVar[str] = "a stream: .stream(...)"

    def stream(self, stream_arn: str, init_position: Any, format: str = "json") -> KinesisConnector:
        """Return the connector for one stream.

        Args:
            stream_arn: of the stream.
            init_position: "latest", "trim_horizon", or the instant to start at.
            format: "json".
        """
        check_text(f"Kinesis '{self.name}'", "stream_arn", stream_arn)
        position = _position(init_position)
        if format != "json":
            raise InvalidAttribute(
                f"Kinesis '{self.name}': format must be 'json', found {format!r}", hint='format="json"'
            )
        return KinesisConnector(source=self, stream_arn=stream_arn, init_position=position)
