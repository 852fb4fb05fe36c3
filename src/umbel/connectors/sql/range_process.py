"""A process that reads ranges of a table and sends encoded rows."""

from __future__ import annotations

import socket
import sys

from umbel.connectors.sql.ranges import RangeReader
from umbel.connectors.staging import encoded
from umbel.errors import UmbelError
from umbel.isolation.wire import receive, send

PART, DONE, FAILED = "part", "done", "failed"


def main(descriptor: int) -> None:
    """Read the ranges that come, until the other side closes."""
    with socket.socket(fileno=descriptor) as connection:
        try:
            _serve(connection)
        except (EOFError, ConnectionError):
            return  # the worker has ended, or needs no more
        except UmbelError as error:
            send(connection, (FAILED, type(error), error.message, error.hint))


def _serve(connection: socket.socket) -> None:
    reader: RangeReader = receive(connection)
    with reader.connected() as database:
        while True:
            for frame, facts in reader.parts(database, receive(connection)):
                send(connection, (PART, encoded(frame), frame.height, facts))
            send(connection, (DONE,))


if __name__ == "__main__":
    main(int(sys.argv[1]))
