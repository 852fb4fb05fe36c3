"""A fake of Kinesis that speaks its protocol: shards that split and merge, iterators that expire, retention, limits.

It checks signatures and the limit of five reads a second for each shard, and can be put down, throttle, and answer without
records although there are some, as Kinesis does now and then.
"""

from __future__ import annotations

import base64
import json
import random
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from email.utils import formatdate
from hashlib import md5
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.servers.sts import TokenService, is_signed
from tests.servers.sts import running as running_tokens

ACCOUNT, REGION = "123456789012", "eu-north-1"
ROLE = f"arn:aws:iam::{ACCOUNT}:role/reader"
KEYS = 1 << 128
ANSWER_BYTES = 10 << 20
READS_PER_SECOND = 5


class Refused(Exception):
    """An answer with an error code."""

    def __init__(self, code: str, text: str = "") -> None:
        self.code, self.text = code, text


@dataclass
class FakeShard:
    id: str
    low: int
    high: int
    parents: tuple[str, ...] = ()
    records: list[tuple[int, float, str, bytes]] = field(default_factory=list)
    """Sequence numbers, arrival times, partition keys and bytes; retention deletes from the front."""
    is_closed: bool = False
    reads: deque[float] = field(default_factory=lambda: deque(maxlen=READS_PER_SECOND))


@dataclass
class FakeStream:
    name: str
    created: float
    retention: int = 24
    """Hours."""
    shards: dict[str, FakeShard] = field(default_factory=dict)
    expired: int = 0
    """Number of records that retention has deleted."""

    @property
    def arn(self) -> str:
        return f"arn:aws:kinesis:{REGION}:{ACCOUNT}:stream/{self.name}"


class FakeKinesis:
    """Streams of one account and region."""

    def __init__(self, tokens: TokenService) -> None:
        self.tokens, self.port = tokens, 0
        self.streams: dict[str, FakeStream] = {}
        self.lock = threading.RLock()
        self.is_down = False
        self.throttled = 0
        """Requests for records that are refused from now on."""
        self.empty = 0.0
        """The share of answers that have no records although there are some."""
        self.forbidden: set[str] = set()
        self.lifetime = 300.0
        """Seconds of an iterator."""
        self.requests = Counter[str]()
        self.exceeded = 0
        """Reads refused because a shard had five within a second."""
        self._sequence, self._shard = 49_500_000_000_000_000_000_000_000, 0

    # ---- what producers and administrators do ----------------------------------------------------------------------

    def create(self, name: str, shards: int = 1, retention: int = 24) -> str:
        """Create a stream; return its ARN."""
        with self.lock:
            made = self.streams[name] = FakeStream(name, time.time(), retention)
            self._shard = 0
            for number in range(shards):
                self._add(made, KEYS * number // shards, KEYS * (number + 1) // shards - 1)
            return made.arn

    def delete(self, name: str) -> None:
        with self.lock:
            del self.streams[name]

    def put(self, name: str, data: bytes | Any, key: str = "", at: float | None = None, shard: str = "") -> str:
        """Put a record; return its sequence number."""
        with self.lock:
            made = self.streams[name]
            number = int.from_bytes(md5(key.encode()).digest(), "big")
            into = (
                made.shards[shard]
                if shard
                else next(each for each in self.open(name) if each.low <= number <= each.high)
            )
            assert not into.is_closed
            self._sequence += random.randrange(1, 1000)
            content = data if isinstance(data, bytes) else json.dumps(data).encode()
            into.records.append((self._sequence, time.time() if at is None else at, key, content))
            return str(self._sequence)

    def open(self, name: str) -> list[FakeShard]:
        """Return the shards that records can be put into."""
        return [each for each in self.streams[name].shards.values() if not each.is_closed]

    def split(self, name: str, shard: str) -> list[str]:
        """Split a shard in the middle; return the ids of its children."""
        with self.lock:
            made = self.streams[name]
            old = made.shards[shard]
            old.is_closed, middle = True, (old.low + old.high) // 2
            return [
                self._add(made, old.low, middle, shard).id,
                self._add(made, middle + 1, old.high, shard).id,
            ]

    def merge(self, name: str, first: str, second: str) -> str:
        """Merge two adjacent shards; return the id of their child."""
        with self.lock:
            made = self.streams[name]
            one, two = made.shards[first], made.shards[second]
            assert one.high + 1 == two.low
            one.is_closed = two.is_closed = True
            return self._add(made, one.low, two.high, first, second).id

    def remove(self, name: str, shard: str) -> None:
        """Remove a closed shard, as retention does when its last record is deleted."""
        with self.lock:
            assert self.streams[name].shards.pop(shard).is_closed

    def _add(self, made: FakeStream, low: int, high: int, *parents: str) -> FakeShard:
        found = FakeShard(f"shardId-{self._shard:012d}", low, high, parents)
        self._shard += 1
        made.shards[found.id] = found
        return found

    # ---- the requests ----------------------------------------------------------------------------------------------

    def answer(self, action: str, body: Any) -> Any:
        with self.lock:
            self.requests[action] += 1
            if action in self.forbidden:
                raise Refused("AccessDeniedException", f"not authorized to perform: kinesis:{action}")
            handler = getattr(self, f"_{action}", None)
            if handler is None:
                raise Refused("UnknownOperationException", action)
            return handler(body)

    def _stream(self, body: Any) -> FakeStream:
        arn = body.get("StreamARN", "")
        found = self.streams.get(arn.rpartition("/")[2])
        if found is None or found.arn != arn:
            raise Refused("ResourceNotFoundException", f"Stream {arn} under account {ACCOUNT} not found.")
        self._expire(found)
        return found

    def _expire(self, made: FakeStream) -> None:
        horizon = time.time() - made.retention * 3600
        for shard in made.shards.values():
            gone = next((n for n, each in enumerate(shard.records) if each[1] >= horizon), len(shard.records))
            made.expired += gone
            del shard.records[:gone]

    def _DescribeStreamSummary(self, body: Any) -> Any:
        made = self._stream(body)
        return {
            "StreamDescriptionSummary": {
                "StreamName": made.name,
                "StreamARN": made.arn,
                "StreamStatus": "ACTIVE",
                "RetentionPeriodHours": made.retention,
                "StreamCreationTimestamp": made.created,
                "EnhancedMonitoring": [],
                "OpenShardCount": len(self.open(made.name)),
            }
        }

    def _ListShards(self, body: Any) -> Any:
        name, _, after = body.get("NextToken", "").partition("|")
        made = self._stream({"StreamARN": self.streams[name].arn} if name else body)
        ids = [each for each in sorted(made.shards) if each > after]
        found: dict[str, Any] = {"Shards": [_shard(made.shards[each]) for each in ids[:3]]}
        return found | ({"NextToken": f"{made.name}|{ids[2]}"} if len(ids) > 3 else {})

    def _GetShardIterator(self, body: Any) -> Any:
        made = self._stream(body)
        if (shard := made.shards.get(body["ShardId"])) is None:
            raise Refused("ResourceNotFoundException", f"Shard {body['ShardId']} in stream {made.name} does not exist")
        kind = body["ShardIteratorType"]
        if kind == "TRIM_HORIZON":
            after = 0
        elif kind == "LATEST":
            after = shard.records[-1][0] if shard.records else self._sequence
        elif kind == "AT_TIMESTAMP":
            if body["Timestamp"] > time.time():
                raise Refused("InvalidArgumentException", "timestamp is in the future")
            after = next((each[0] - 1 for each in shard.records if each[1] >= body["Timestamp"]), self._sequence)
        else:
            after = int(body["StartingSequenceNumber"]) - (kind == "AT_SEQUENCE_NUMBER")
            if after > self._sequence:
                raise Refused("InvalidArgumentException", "it did not come from this stream")
        return {"ShardIterator": self._iterator(made, shard, after)}

    def _iterator(self, made: FakeStream, shard: FakeShard, after: int) -> str:
        plain = json.dumps([made.name, made.created, shard.id, after, time.time() + self.lifetime])
        return base64.b64encode(plain.encode()).decode()

    def _GetRecords(self, body: Any) -> Any:
        name, created, which, after, expires = json.loads(base64.b64decode(body["ShardIterator"]))
        if (made := self.streams.get(name)) is None:
            raise Refused("ResourceNotFoundException", f"Stream {name} not found.")
        if made.created != created:
            raise Refused("InvalidArgumentException", "the iterator is not one of this stream")
        if time.time() > expires:
            raise Refused("ExpiredIteratorException", "Iterator expired.")
        self._expire(made)
        if (shard := made.shards.get(which)) is None:
            raise Refused("ResourceNotFoundException", f"Shard {which} in stream {name} does not exist")
        self._limit(shard)
        left = [each for each in shard.records if each[0] > after]
        sent = _first(left, body.get("Limit", 10_000))
        if random.random() < self.empty:
            sent = []
        rest = left[len(sent) :]
        reached = sent[-1][0] if sent else after
        found = {
            "Records": [_record(each) for each in sent],
            "MillisBehindLatest": max(1, int(1000 * (time.time() - rest[0][1]))) if rest else 0,
        }
        if rest or not shard.is_closed:
            return found | {"NextShardIterator": self._iterator(made, shard, reached)}
        return found | {"ChildShards": [_child(each) for each in made.shards.values() if which in each.parents]}

    def _limit(self, shard: FakeShard) -> None:
        now = time.monotonic()
        if self.throttled:
            self.throttled -= 1
            raise Refused("ProvisionedThroughputExceededException", f"Rate exceeded for shard {shard.id}")
        if len(shard.reads) == READS_PER_SECOND and now - shard.reads[0] < 1.0:
            self.exceeded += 1
            raise Refused("ProvisionedThroughputExceededException", f"Rate exceeded for shard {shard.id}")
        shard.reads.append(now)


def _shard(shard: FakeShard) -> Any:
    names = ("ParentShardId", "AdjacentParentShardId")
    return {
        "ShardId": shard.id,
        "HashKeyRange": {"StartingHashKey": str(shard.low), "EndingHashKey": str(shard.high)},
        "SequenceNumberRange": {"StartingSequenceNumber": "0"},
        **dict(zip(names, shard.parents, strict=False)),
    }


def _child(shard: FakeShard) -> Any:
    keys = {"StartingHashKey": str(shard.low), "EndingHashKey": str(shard.high)}
    return {"ShardId": shard.id, "ParentShards": list(shard.parents), "HashKeyRange": keys}


def _record(record: tuple[int, float, str, bytes]) -> Any:
    sequence, at, key, data = record
    return {
        "SequenceNumber": str(sequence),
        "ApproximateArrivalTimestamp": at,
        "PartitionKey": key,
        "Data": base64.b64encode(data).decode(),
    }


def _first(records: list[Any], limit: int) -> list[Any]:
    size = 0
    for number, each in enumerate(records[:limit]):
        size += len(each[3])
        if size > ANSWER_BYTES and number:
            return records[:number]
    return records[:limit]


def _handler(fake: FakeKinesis) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            if fake.is_down:
                self.close_connection = True
                return
            try:
                self._check(body)
                status, found = 200, fake.answer(self.headers["X-Amz-Target"].partition(".")[2], json.loads(body))
            except Refused as error:
                status, found = 400, {"__type": error.code, "message": error.text}
            content = json.dumps(found).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/x-amz-json-1.1")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def _check(self, body: str) -> None:
            key, secret = fake.tokens.session
            token = self.headers["X-Amz-Security-Token"] or ""
            url = f"http://127.0.0.1:{fake.port}"
            if not token.startswith("token") or not is_signed("POST", url, self.headers, body, key, secret):
                raise Refused("UnrecognizedClientException", "The security token included in the request is invalid.")

        def date_time_string(self, timestamp: float | None = None) -> str:
            return formatdate(timestamp, usegmt=True)

        def log_message(self, *_: Any) -> None:
            pass

    return Handler


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False


@contextmanager
def running() -> Iterator[FakeKinesis]:
    """Run the fake, and a token service for its role, for the length of a block."""
    keys, session = {"AKIAWORKER": "worker-secret-8731"}, ("ASIASESSION", "session-secret-1378")
    with running_tokens(TokenService(keys, ROLE, session, timedelta(hours=1))) as tokens:
        fake = FakeKinesis(tokens)
        with _Server(("127.0.0.1", 0), _handler(fake)) as server:
            fake.port = server.server_address[1]
            threading.Thread(target=server.serve_forever, daemon=True).start()
            try:
                yield fake
            finally:
                server.shutdown()


def environment(fake: FakeKinesis) -> dict[str, str]:
    """Return the variables with which a worker reads from the fake."""
    ((key, secret),) = fake.tokens.keys.items()
    return {
        "AWS_ENDPOINT_URL_KINESIS": f"http://127.0.0.1:{fake.port}",
        "AWS_ENDPOINT_URL_STS": fake.tokens.url,
        "AWS_ACCESS_KEY_ID": key,
        "AWS_SECRET_ACCESS_KEY": secret,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_EC2_METADATA_DISABLED": "true",
    }
