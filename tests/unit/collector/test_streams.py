"""The streams of a collector: rejected events of requests with an idempotency key."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.collecting import stored
from umbel.collector.bodies import EventBatch, parse
from umbel.collector.settings import RequestLimits
from umbel.collector.streams import Streams


async def append_letters(streams: Streams, body: bytes, key: str | None) -> EventBatch:
    batch = parse(body, is_lines=False, limits=RequestLimits())
    done: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    streams.stream("clicks").append_letters(batch.letters, "", key, done.set_result)
    await done
    return batch


def test_other_events_with_the_key_of_rejected_ones_are_stored(tmp_path: Path) -> None:
    streams = Streams(tmp_path, ())
    requests = [
        (b"[1]", "K"),
        (b"[1]", "K"),
        (b'[2,{"a":1}]', "K"),
        (b"[1]", "L"),
        (b'[2,{"a":1}]', "K"),
        (b"[1]", None),
    ]
    for body, key in requests:
        asyncio.run(append_letters(streams, body, key))
    streams.close()
    letters = stored(tmp_path, "clicks", dead=True)
    expected = [("1", "K"), ("2", "K"), ("1", "L"), ("1", None)]
    assert [(each["event"], each["idempotency_key"]) for each in letters] == expected
