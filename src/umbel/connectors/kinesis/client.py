"""Requests to a stream of Kinesis by an assumed role, and their errors."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from umbel.connectors.roles import PATIENCE, TemporaryKey, assumed
from umbel.errors import InvalidValue, PackageError, Transient, UmbelError

if TYPE_CHECKING:
    from umbel.connectors.kinesis import KinesisConnector

INSTALL = "pip install 'umbel[kinesis]'"
ARN = re.compile(r"arn:aws[a-z-]*:kinesis:(?P<region>[a-z0-9-]+):[0-9]{12}:stream/[A-Za-z0-9_.-]{1,128}")
EXAMPLE = "arn:aws:kinesis:eu-north-1:123456789012:stream/orders"
RECORDS = 10_000
"""Records of one answer, at most; Kinesis limits it to 10 MiB besides."""
CONNECTIONS = 8
"""Shards that are read at once."""
_RIGHTS = "allow the role kinesis:DescribeStreamSummary, ListShards, GetShardIterator and GetRecords on the stream"
_KEYS = "allow the role kms:Decrypt on the stream's key, and see that the key is enabled"
_LASTING = {
    "AccessDeniedException": _RIGHTS,
    "KMSAccessDeniedException": _KEYS,
    "KMSDisabledException": _KEYS,
    "KMSInvalidStateException": _KEYS,
    "KMSNotFoundException": _KEYS,
    "KMSOptInRequired": _KEYS,
    "ValidationException": f"stream_arn is like {EXAMPLE}",
}
"""Codes of errors that trying again does not mend, with remedies."""


class StreamMissing(Exception):
    """There is no such stream, or no such shard of it."""


class IteratorRefused(Exception):
    """A shard iterator has expired, or its sequence number is not one of the stream."""


@dataclass(frozen=True, slots=True)
class StreamShard:
    """A shard as Kinesis lists it.

    Args:
        id: its id.
        parents: the shards that it was made of by a split or a merge.
        low: the first hash key that belongs to it.
        high: the last one.
    """

    id: str
    parents: tuple[str, ...]
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class StreamSummary:
    """A stream as Kinesis describes it.

    Args:
        created: distinguishes it from another of its name.
        retention: of records, in seconds.
        status: `ACTIVE`, `UPDATING`, `CREATING` or `DELETING`.
        now: the time of the answer by Kinesis' clock, in seconds.
    """

    created: str
    retention: float
    status: str
    now: float


@dataclass(frozen=True, slots=True)
class ShardRecords:
    """An answer with records of a shard.

    Args:
        records: in order.
        next: the iterator behind them, None at the end of the shard.
        behind: seconds to the newest record.
    """

    records: Sequence[Mapping[str, Any]]
    next: str | None
    behind: float


def check_installed() -> None:
    """Refuse a stream where the client library is missing.

    Raises:
        PackageError: boto3 is not installed.
    """
    try:
        import boto3  # noqa: F401
    except ImportError as error:
        raise PackageError(f"Kinesis needs a library that is not installed: {error}", hint=INSTALL) from None


def region_of(connector: KinesisConnector) -> str:
    """Return the region of a stream.

    Raises:
        InvalidValue: its ARN is none.
    """
    found = ARN.fullmatch(connector.stream_arn)
    if found is None:
        raise InvalidValue(f"{connector.title}: stream_arn is no ARN of a stream", hint=f"stream_arn is like {EXAMPLE}")
    return found["region"]


@dataclass
class StreamClient:
    """Makes the requests to one stream. Its methods may be called by several threads.

    Args:
        title: of the source, for messages.
        arn: of the stream.
        region: of the stream.
        role: the role to assume.
    """

    title: str
    arn: str
    region: str
    role: str
    _client: tuple[TemporaryKey, Any] | None = field(default=None, init=False)

    def describe(self) -> StreamSummary:
        """Return what the stream is.

        Raises:
            StreamMissing: there is none.
        """
        answer = self._request("describe_stream_summary")
        found = answer["StreamDescriptionSummary"]
        return StreamSummary(
            created=found["StreamCreationTimestamp"].astimezone(UTC).isoformat(),
            retention=found["RetentionPeriodHours"] * 3600.0,
            status=found["StreamStatus"],
            now=_date(answer),
        )

    def shards(self) -> dict[str, StreamShard]:
        """Return all shards of which records are retained, by id."""
        found, more = dict[str, StreamShard](), dict[str, str]()
        while True:
            answer = self._request("list_shards", **more)
            found |= {each["ShardId"]: _shard(each) for each in answer["Shards"]}
            if "NextToken" not in answer:
                return found
            more = {"NextToken": answer["NextToken"]}

    def iterator(self, shard: str, kind: str, **start: Any) -> str:
        """Return an iterator of a shard.

        Args:
            shard: its id.
            kind: of the position, such as `TRIM_HORIZON`.
            start: the sequence number or the instant of the position.

        Raises:
            StreamMissing: there is no such shard.
            IteratorRefused: the sequence number is not one of the shard.
        """
        found: str = self._request("get_shard_iterator", ShardId=shard, ShardIteratorType=kind, **start)[
            "ShardIterator"
        ]
        return found

    def records(self, iterator: str) -> ShardRecords:
        """Return the records behind an iterator.

        Raises:
            StreamMissing: there is no such shard.
            IteratorRefused: it has expired.
        """
        answer = self._request("get_records", ShardIterator=iterator, Limit=RECORDS)
        behind = (answer.get("MillisBehindLatest") or 0) / 1000
        return ShardRecords(answer["Records"], answer.get("NextShardIterator"), behind)

    def _request(self, name: str, **arguments: Any) -> Mapping[str, Any]:
        from botocore.exceptions import BotoCoreError, ClientError

        if "NextToken" not in arguments:  # such a request names the stream by its token
            arguments["StreamARN"] = self.arn
        try:
            answer: Mapping[str, Any] = getattr(self._connected(), name)(**arguments)
        except ClientError as error:
            raise self._translated(error) from None
        except BotoCoreError as error:
            raise Transient(
                f"{self.title}: Kinesis does not answer: {type(error).__name__}",
                hint="see that it can be reached from the worker",
            ) from None
        return answer

    def _connected(self) -> Any:
        """Return a client with a key of the role that is valid for some minutes."""
        key = assumed(self.title, self.role, None, None)
        if self._client is None or self._client[0] is not key:
            from boto3.session import Session
            from botocore.config import Config

            session = Session(
                aws_access_key_id=key.key,
                aws_secret_access_key=key.secret,
                aws_session_token=key.token,
                region_name=self.region,
            )
            patience = Config(
                connect_timeout=PATIENCE,
                read_timeout=3 * PATIENCE,
                retries={"mode": "standard", "total_max_attempts": 2},
                max_pool_connections=CONNECTIONS,
            )
            self._client = key, session.client("kinesis", config=patience)
        return self._client[1]

    def _translated(self, error: Any) -> Exception:
        details = error.response.get("Error", {})
        code, text = str(details.get("Code", "")), str(details.get("Message", ""))[:300]
        if code == "ResourceNotFoundException":
            return StreamMissing(text)
        if code in {"ExpiredIteratorException", "InvalidArgumentException"}:
            return IteratorRefused(text)
        return self._error(code, text)

    def _error(self, code: str, text: str) -> UmbelError:
        if code in _LASTING:
            return InvalidValue(f"{self.title}: the stream cannot be read: {code}: {text}", hint=_LASTING[code])
        return Transient(f"{self.title}: the stream cannot be read now: {code}: {text}")


def _shard(found: Mapping[str, Any]) -> StreamShard:
    parents = (found.get("ParentShardId"), found.get("AdjacentParentShardId"))
    keys = found["HashKeyRange"]
    return StreamShard(
        found["ShardId"],
        tuple(each for each in parents if each),
        int(keys["StartingHashKey"]),
        int(keys["EndingHashKey"]),
    )


def _date(answer: Mapping[str, Any]) -> float:
    """Return the time of an answer by the server's clock, else by ours."""
    try:
        return parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"]).timestamp()
    except (KeyError, ValueError, TypeError):
        return datetime.now(UTC).timestamp()
