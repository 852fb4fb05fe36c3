"""A process that appends to an ingest log until it is killed, and says what was acknowledged."""

from __future__ import annotations

import asyncio
import os
import sys
from itertools import count
from pathlib import Path

from umbel.log.ingest import IngestLog

SENDERS = 4


async def _send(log: IngestLog, process: str, sender: int) -> None:
    for number in count():
        name = f"{process}.{sender}.{number}"
        repeat = number % 3 == 0
        receipt = await log.append(name.encode(), 2, batch_id=name if repeat else None)
        os.write(1, f"{name} {receipt.row}\n".encode())
        if repeat:
            again = await log.append(name.encode(), 2, batch_id=name)
            assert again == receipt.repeated(), (again, receipt)


async def _main(root: str, process: str) -> None:
    log = IngestLog(Path(root), "w", "e", segment_bytes=20_000)
    await asyncio.gather(*(_send(log, process, sender) for sender in range(SENDERS)))


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
