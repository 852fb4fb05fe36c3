"""Ask for features of files, each row as of its own instant."""

from __future__ import annotations

import time
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any

import typer

from umbel.cli.options import MAIN, URL, Branch, Url

if TYPE_CHECKING:
    from collections.abc import Sequence

    from umbel.client.transport import Transport

PATH = "/api/v1/query_offline"
OPEN = ("PENDING", "RUNNING")
EVERY = 0.5
"""Seconds between two looks at a job."""
FORMATS = {".json": "json", ".ndjson": "json", ".jsonl": "json", ".csv": {"delimiter": ","}, ".parquet": "parquet"}


Outputs = Annotated[
    list[str] | None, typer.Argument(help="Features (Featureset.feature) or featuresets.", show_default=False)
]
Inputs = Annotated[
    list[str] | None,
    typer.Option("-i", "--input", help="FEATURE or FEATURE=COLUMN; repeat for more features.", show_default=False),
]
From = Annotated[str | None, typer.Option("--from", help="The input: s3://bucket/prefix or path.")]
To = Annotated[
    str | None, typer.Option("--to", help="The answer: s3://bucket/prefix; umbel's own folder when left out.")
]
Timestamp = Annotated[str, typer.Option("--timestamp", help="The column of the instants.")]
Form = Annotated[
    str | None, typer.Option("--format", help="Of the input: parquet, json or csv; by its ending when left out.")
]
ToForm = Annotated[str, typer.Option("--to-format", help="Of the answer: parquet, json or csv.")]


def command(
    outputs: Outputs = None,
    inputs: Inputs = None,
    source: From = None,
    target: To = None,
    timestamp: Timestamp = "timestamp",
    form: Form = None,
    target_form: ToForm = "parquet",
    track: Annotated[str | None, typer.Option(help="Follow a query that was begun before, by its id.")] = None,
    cancel: Annotated[str | None, typer.Option(help="Cancel a query, by its id.")] = None,
    wait: Annotated[bool, typer.Option(help="Follow the query to its end.")] = True,
    url: Url = URL,
    branch: Branch = MAIN,
) -> None:
    """Ask a running server for features of the rows in files, each as of its own instant, and follow its work.

    Examples:
        umbel query-offline Origin -i Origin.origin=airport --from s3://data/asked/*.csv --to s3://data/answers --timestamp at

        umbel query-offline --track 5f0c

        umbel query-offline --cancel 5f0c
    """
    from umbel.client.transport import Transport

    server = Transport(url, "")
    if cancel is not None:
        told = server.send("POST", f"{PATH}/cancel", branch, params={"request_id": cancel}).json()
    elif track is not None:
        told = _status(server, branch, track)
    else:
        told = server.send(
            "POST", PATH, branch, body=_body(outputs, inputs, source, target, timestamp, form, target_form)
        ).json()
        typer.echo(told["request_id"])
    if wait and cancel is None:
        told = _followed(server, branch, told)
    _tell(told)


def _body(
    outputs: Sequence[str] | None,
    inputs: Sequence[str] | None,
    source: str | None,
    target: str | None,
    timestamp: str,
    form: str | None,
    target_form: str,
) -> dict[str, Any]:
    if not outputs or not inputs or source is None:
        raise typer.BadParameter("features, -i and --from say what to answer; or give --track or --cancel")
    columns = {name: column for name, equals, column in (each.partition("=") for each in inputs) if equals}
    body: dict[str, Any] = {
        "inputs": [each.partition("=")[0] for each in inputs],
        "outputs": list(outputs),
        "timestamp_column": timestamp,
        "feature_to_column_map": columns,
        "input": _place(source, form),
    }
    return body if target is None else {**body, "output": _place(target, target_form)}


def _place(url: str, form: str | None) -> dict[str, Any]:
    scheme, separator, rest = url.partition("://")
    bucket, _, path = rest.partition("/")
    if scheme != "s3" or not separator or not bucket:
        raise typer.BadParameter(f"'{url}' is not s3://bucket/path")
    ending = f".{form}" if form else PurePosixPath(path.removesuffix(".gz")).suffix
    if form and ending not in FORMATS:
        raise typer.BadParameter(f"'{form}' is none of parquet, json and csv")
    kind = "path" if any(sign in path for sign in "*%") else "prefix"
    return {"bucket": bucket, kind: path, "format": FORMATS.get(ending, "parquet")}


def _status(server: Transport, branch: str, request: str) -> dict[str, Any]:
    return dict(server.send("GET", f"{PATH}/status", branch, params={"request_id": request}).json())


def _followed(server: Transport, branch: str, told: dict[str, Any]) -> dict[str, Any]:
    """Return how a query has ended; a bar shows how far it is until then. Ctrl-C ends the following, not the query."""
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("offline query", total=1.0)
        while told["status"] in OPEN:
            progress.update(bar, completed=told["completion_rate"], description=told["status"].lower())
            time.sleep(EVERY)
            told = _status(server, branch, told["request_id"])
    return told


def _tell(told: dict[str, Any]) -> None:
    place = f"{told['output_bucket']}/{told['output_prefix']}"
    failed = f", {told['failure_rate']:.2%} of the rows without an answer" if told["failure_rate"] else ""
    typer.echo(f"{told['status']}: {told['completion_rate']:.0%} done{failed}; parts are in {place}")
    if told.get("reason"):
        typer.echo(told["reason"], err=True)
    if told["status"] == "FAILED":
        raise typer.Exit(1)
