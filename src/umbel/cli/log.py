"""Post rows to a webhook."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import orjson
import typer

from umbel.cli.options import URL, Url
from umbel.cli.waiting import TIMEOUT, Timeout, Wait, wait_for

if TYPE_CHECKING:
    from umbel.client.connection import HttpConnection


def command(
    webhook: Annotated[str, typer.Argument(help="The name of a webhook.", show_default=False)],
    endpoint: Annotated[str, typer.Argument(help="One of its endpoints.", show_default=False)],
    file: Annotated[
        Path, typer.Argument(help="JSON objects or arrays of them, in lines; - for standard input.", show_default=False)
    ],
    url: Url = URL,
    batch_size: Annotated[int, typer.Option(min=1, help="Rows per request.")] = 1000,
    wait: Wait = False,
    timeout: Timeout = TIMEOUT,
) -> None:
    """Post the rows of an NDJSON file to a webhook's endpoint.

    With --wait, return once queries see them.

    Examples:
        umbel log airports flights december.ndjson

        umbel log airports flights december.ndjson --wait

        echo '{"origin": "JFK", "delay": 3, "at": "2024-01-01T00:00:00Z"}' | umbel log events departures -
    """
    from rich.console import Console
    from rich.progress import Progress

    from umbel.client.connection import HttpConnection

    transport, sent, end = HttpConnection(url, ""), 0, 0
    with Progress(transient=True, console=Console(stderr=True)) as progress:
        task = progress.add_task("rows", total=None)
        for posted in _posted(transport, webhook, endpoint, _batches(file, batch_size)):
            sent, end = posted
            progress.update(task, completed=sent)
    typer.echo(f"{sent} rows accepted")
    if wait and sent:
        deployment = {"webhook": webhook, "endpoint": endpoint}
        wait_for(transport, lambda found: found["rows"] >= end, "rows are processed", timeout, deployment)


def _posted(
    transport: HttpConnection, webhook: str, endpoint: str, batches: Iterator[list[bytes]]
) -> Iterator[tuple[int, int]]:
    """Post batches of rows.

    Yields how many were accepted so far, and the number behind the last one.
    """
    sent = end = 0
    address = orjson.dumps({"webhook": webhook, "endpoint": endpoint})[1:-1]
    try:
        for rows in batches:
            body = b'{%b,"data":[%b]}' % (address, b",".join(rows))
            report = transport.send_once("/api/v1/log", "main", body).json()
            sent += len(rows)
            end = max(end, report["first_row"] + report["rows"])
            yield sent, end
    except BaseException:  # those who mend the file and send it again must know
        if sent:
            typer.echo(f"the first {sent} rows were accepted: to send the others, leave these out", err=True)
        raise


def _batches(file: Path, size: int) -> Iterator[list[bytes]]:
    """Yield the texts of rows, as they are in the file.

    Numbers may have more digits than floats.
    """
    from umbel.types.long_numbers import elements

    if str(file) != "-" and not file.is_file():
        raise typer.BadParameter(f"there is no file {file}")
    stream = sys.stdin.buffer if str(file) == "-" else file.open("rb")
    with stream:
        rows: list[bytes] = []
        for number, line in enumerate(stream, 1):
            if not line.strip():
                continue
            try:
                found = orjson.loads(line)
            except orjson.JSONDecodeError as error:
                raise typer.BadParameter(f"{file}, line {number}: broken JSON: {error}") from None
            rows += map(bytes, elements(line)) if isinstance(found, list) else [line.strip()]
            while len(rows) >= size:
                yield rows[:size]
                rows = rows[size:]
        if rows:
            yield rows
