"""Packets: frames sent through Spark as large binaries instead of small rows.

A packet is one row `(node, input, shard, blob)`: the edge its changes are sent along (the node and the position of its input),
their shard, and the changes as Arrow IPC. Node −1 marks reports to the driver, node −2 the newest event times that a
task has seen, which every task of the next stage gets.
"""

from __future__ import annotations

import io
import pickle
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

import polars as pl

from umbel.graph.execution import route
from umbel.graph.graph import Graph
from umbel.graph.stages import Edge, StageOutput, add_seen

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA = "node int, input int, shard int, blob binary"
REPORT, SEEN = -1, -2


@dataclass(slots=True)
class StageInput:
    """Packets that arrived at a task, unpacked as they are needed.

    Args:
        blobs: the changes' bytes, by shard and edge.
        onward: packets for later stages and reports, passed on unchanged.
        seen: the largest event time among the rows for each timed node, over all tasks.
    """

    blobs: dict[int, dict[Edge, list[bytes]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(list)))
    onward: list[tuple[int, int, int, bytes]] = field(default_factory=list)
    seen: dict[int, datetime] = field(default_factory=dict)

    @classmethod
    def sort(cls, batches: Iterable[pa.RecordBatch], here: set[int]) -> StageInput:
        """Read all batches of a task; collect packets for the nodes `here`."""
        inputs = cls()
        for batch in batches:
            for node, position, shard, blob in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                if node == SEEN:
                    add_seen(inputs.seen, opened(blob))
                elif node in here:
                    inputs.blobs[shard][node, position].append(blob)
                else:
                    inputs.onward.append((node, position, shard, blob))
        return inputs

    def open(self, shard: int) -> dict[Edge, pl.DataFrame]:
        """Return the changes of one shard, by edge."""
        return {edge: pl.concat(map(unpack, _in_order(blobs))) for edge, blobs in self.blobs[shard].items()}


def _in_order(blobs: list[bytes]) -> list[bytes]:
    """Sort blobs, because the shuffle delivers them in another order each time."""
    return sorted(blobs, key=lambda blob: (len(blob), blob))


def pack(frame: pl.DataFrame) -> bytes:
    """Return a frame as Arrow IPC."""
    buffer = io.BytesIO()
    frame.write_ipc_stream(buffer, compression="lz4")
    return buffer.getvalue()


def unpack(blob: bytes) -> pl.DataFrame:
    """Return the frame of an Arrow IPC blob."""
    return pl.read_ipc_stream(io.BytesIO(blob))


def address(graph: Graph, output: StageOutput, shards: int) -> Iterator[tuple[int, int, int, bytes]]:
    """Yield a packet for each edge and shard of a stage output."""
    for (number, position), frames in output.frames.items():
        for shard, part in route(graph.nodes[number], position, pl.concat(frames), shards):
            yield number, position, shard, pack(part)


def report(content: Mapping[str, Any]) -> tuple[int, int, int, bytes]:
    """Return a packet with a report to the driver."""
    return REPORT, 0, 0, pickle.dumps(dict(content), protocol=5)


def announced(seen: Mapping[int, datetime], tasks: int) -> Iterator[tuple[int, int, int, bytes]]:
    """Yield a packet with newest event times for each task of the next stage."""
    if seen:
        blob = pickle.dumps(dict(seen), protocol=5)
        yield from ((SEEN, 0, task, blob) for task in range(tasks))


def opened(blob: bytes) -> dict[Any, Any]:
    """Return the content of a report, or of newest event times."""
    content: dict[Any, Any] = pickle.loads(blob)
    return content


def batches(packets: Iterable[tuple[int, int, int, bytes]], size: int = 32 << 20) -> Iterator[pa.RecordBatch]:
    """Yield packets as record batches of about `size` bytes."""
    pending: list[tuple[int, int, int, bytes]] = []
    weight = 0
    for packet in packets:
        pending.append(packet)
        weight += len(packet[3])
        if weight >= size:
            yield _batch(pending)
            pending, weight = [], 0
    if pending:
        yield _batch(pending)


def _batch(packets: list[tuple[int, int, int, bytes]]) -> pa.RecordBatch:
    import pyarrow as pa

    node, position, shard, blob = zip(*packets, strict=True)
    columns = [pa.array(values, pa.int32()) for values in (node, position, shard)]
    return pa.RecordBatch.from_arrays([*columns, pa.array(blob, pa.binary())], names=["node", "input", "shard", "blob"])
