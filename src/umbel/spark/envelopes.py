"""Envelopes: how frames travel through Spark, as a few big binaries instead of millions of small rows.

An envelope is one row `(node, place, shard, blob)`: the edge its changes travel, the shard they belong to, and the changes as
Arrow IPC. Node −1 carries reports to the driver.
"""

from __future__ import annotations

import io
import pickle
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from zlib import crc32

import polars as pl

from umbel.plan.execute import route
from umbel.plan.flow import Edge, Outbox
from umbel.plan.graph import Graph

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA = "node int, place int, shard int, blob binary"
REPORT = -1


@dataclass(slots=True)
class Mail:
    """Envelopes that arrived at a task, opened as they are needed.

    Args:
        blobs: the changes' bytes, by shard and edge.
        onward: envelopes for later stages and reports, passed on as they are.
    """

    blobs: dict[int, dict[Edge, list[bytes]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(list)))
    onward: list[tuple[int, int, int, bytes]] = field(default_factory=list)

    @classmethod
    def sort(cls, batches: Iterable[pa.RecordBatch], here: set[int]) -> Mail:
        """Read all batches of a task; keep what is for the nodes `here`."""
        mail = cls()
        for batch in batches:
            for node, place, shard, blob in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                if node in here:
                    mail.blobs[shard][node, place].append(blob)
                else:
                    mail.onward.append((node, place, shard, blob))
        return mail

    def open(self, shard: int) -> dict[Edge, pl.DataFrame]:
        """Return the changes of one shard, by edge."""
        return {edge: pl.concat(map(unpack, _in_order(blobs))) for edge, blobs in self.blobs[shard].items()}


def _in_order(blobs: list[bytes]) -> list[bytes]:
    """Return blobs in an order of their own: the shuffle delivers them in another one each time."""
    return sorted(blobs, key=lambda blob: (len(blob), crc32(blob)))


def pack(frame: pl.DataFrame) -> bytes:
    """Return a frame as Arrow IPC."""
    buffer = io.BytesIO()
    frame.write_ipc_stream(buffer)
    return buffer.getvalue()


def unpack(blob: bytes) -> pl.DataFrame:
    """Return the frame of an Arrow IPC blob."""
    return pl.read_ipc_stream(io.BytesIO(blob))


def address(graph: Graph, outbox: Outbox, shards: int) -> Iterator[tuple[int, int, int, bytes]]:
    """Yield an envelope for each edge and shard an outbox has changes for."""
    for (number, place), frames in outbox.frames.items():
        for shard, part in route(graph.nodes[number], place, pl.concat(frames), shards):
            yield number, place, shard, pack(part)


def report(content: Mapping[str, Any]) -> tuple[int, int, int, bytes]:
    """Return an envelope for the driver."""
    return REPORT, 0, 0, pickle.dumps(dict(content), protocol=5)


def opened(blob: bytes) -> dict[str, Any]:
    """Return the content of a report."""
    content: dict[str, Any] = pickle.loads(blob)
    return content


def batches(envelopes: Iterable[tuple[int, int, int, bytes]], size: int = 32 << 20) -> Iterator[pa.RecordBatch]:
    """Yield envelopes as record batches of about `size` bytes."""
    held: list[tuple[int, int, int, bytes]] = []
    weight = 0
    for envelope in envelopes:
        held.append(envelope)
        weight += len(envelope[3])
        if weight >= size:
            yield _batch(held)
            held, weight = [], 0
    if held:
        yield _batch(held)


def _batch(envelopes: list[tuple[int, int, int, bytes]]) -> pa.RecordBatch:
    import pyarrow as pa

    node, place, shard, blob = zip(*envelopes, strict=True)
    columns = [pa.array(values, pa.int32()) for values in (node, place, shard)]
    return pa.RecordBatch.from_arrays([*columns, pa.array(blob, pa.binary())], names=["node", "place", "shard", "blob"])
