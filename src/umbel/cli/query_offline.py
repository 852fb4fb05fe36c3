"""Run an offline query over files, each row as of its own timestamp."""

from __future__ import annotations

import time
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any

import typer

from umbel.cli.options import MAIN, URL, Branch, Url

if TYPE_CHECKING:
    from collections.abc import Sequence

    from umbel.client.connection import HttpConnection

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
ToForm = Annotated[
    str | None, typer.Option("--to-format", help="Of the answer: parquet, json or csv; parquet when left out.")
]


def command(
    outputs: Outputs = None,
    inputs: Inputs = None,
    source: From = None,
    target: To = None,
    timestamp: Timestamp = "timestamp",
    form: Form = None,
    target_form: ToForm = None,
    track: Annotated[str | None, typer.Option(help="Follow a query that was begun before, by its id.")] = None,
    cancel: Annotated[str | None, typer.Option(help="Cancel a query, by its id.")] = None,
    wait: Annotated[bool, typer.Option(help="Follow the query to its end.")] = True,
    url: Url = URL,
    branch: Branch = MAIN,
) -> None:
    """Run an offline query over the rows of files, and follow its progress.

    Features are as of each row's own timestamp. The query is a job on the server; Ctrl-C does not end it.

    Examples:
        umbel query-offline Origin -i Origin.origin=airport --from s3://data/asked/*.csv --to s3://data/answers --timestamp at

        umbel query-offline --track 5f0c

        umbel query-offline --cancel 5f0c
    """
    from umbel.client.connection import HttpConnection

    server = HttpConnection(url, "")
    if cancel is not None:
        report = server.send("POST", f"{PATH}/cancel", branch, params={"request_id": cancel}).json()
    elif track is not None:
        report = _status(server, branch, track)
    else:
        body = _body(outputs, inputs, source, target, timestamp, form, target_form)
        report = server.send("POST", PATH, branch, body=body).json()
        typer.echo(report["request_id"])
    if wait and cancel is None:
        report = _followed(server, branch, report)
    _show(report)
    _check_answered(report, is_cancelled=cancel is not None)


def _body(
    outputs: Sequence[str] | None,
    inputs: Sequence[str] | None,
    source: str | None,
    target: str | None,
    timestamp: str,
    form: str | None,
    target_form: str | None,
) -> dict[str, Any]:
    if not outputs or source is None:
        raise typer.BadParameter("features, -i and --from say what to answer; or give --track or --cancel")
    if target is None and target_form is not None:
        raise typer.BadParameter("--to-format is the format of files at --to; without it they are Parquet files")
    parts = [each.partition("=") for each in inputs or ()]
    columns = {name: column for name, equals, column in parts if equals}
    body: dict[str, Any] = {
        "inputs": [name for name, _, _ in parts],
        "outputs": list(outputs),
        "timestamp_column": timestamp,
        "feature_to_column_map": columns,
        "input": _deployment(source, form),
    }
    return body if target is None else {**body, "output": _deployment(target, target_form or "parquet")}


def _deployment(url: str, form: str | None) -> dict[str, Any]:
    scheme, separator, rest = url.partition("://")
    bucket, _, path = rest.partition("/")
    if scheme != "s3" or not separator or not bucket:
        raise typer.BadParameter(f"'{url}' is not s3://bucket/path")
    ending = f".{form}" if form else PurePosixPath(path.removesuffix(".gz").removesuffix(".zst")).suffix
    if form and ending not in FORMATS:
        raise typer.BadParameter(f"'{form}' is none of parquet, json and csv")
    kind = "path" if any(sign in path for sign in "*%") else "prefix"
    return {"bucket": bucket, kind: path, "format": FORMATS.get(ending, "parquet")}


def _status(server: HttpConnection, branch: str, request: str) -> dict[str, Any]:
    return dict(server.send("GET", f"{PATH}/status", branch, params={"request_id": request}).json())


def _followed(server: HttpConnection, branch: str, report: dict[str, Any]) -> dict[str, Any]:
    """Show the progress of a query until it ends; return its final report.

    Ctrl-C ends the following, not the query.
    """
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("offline query", total=1.0)
        while report["status"] in OPEN:
            progress.update(bar, completed=report["completion_rate"], description=report["status"].lower())
            time.sleep(EVERY)
            report = _status(server, branch, report["request_id"])
    return report


def _show(report: dict[str, Any]) -> None:
    deployment = f"{report['output_bucket']}/{report['output_prefix']}"
    failed = f", {report['failure_rate']:.2%} of the rows without an answer" if report["failure_rate"] else ""
    typer.echo(f"{report['status']}: {report['completion_rate']:.0%} done{failed}; parts are in {deployment}")
    if report.get("reason"):
        typer.echo(report["reason"], err=True)


def _check_answered(report: dict[str, Any], *, is_cancelled: bool) -> None:
    """End with exit code 1 without an answer, unless this command has cancelled the query."""
    if report["status"] == "FAILED" or (report["status"] == "CANCELLED" and not is_cancelled):
        raise typer.Exit(1)
