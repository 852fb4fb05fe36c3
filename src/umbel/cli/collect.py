"""Collect events over HTTP, durably, without Spark, a catalog or a commit."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from umbel.cli.options import LOOPBACK, TlsCert, TlsKey, check_tls

if TYPE_CHECKING:
    from umbel.collector.settings import CollectorSettings
    from umbel.log.reading import Damage

PORT = 8426
FOLDER = Path(".umbel-collect")

group = typer.Typer(invoke_without_command=True)

Folder = Annotated[Path, typer.Option("--dir", envvar="UMBEL_COLLECT_DIR", help="Where it keeps events.")]
StreamName = Annotated[str, typer.Argument(help="The name of a stream.", show_default=False)]
Size = Annotated[str, typer.Option(help="Bytes, or with a unit: 512KiB, 8MiB.")]


Port = Annotated[int, typer.Option("--port", "-p", min=1, max=65535, help="Of the HTTP server.")]
Host = Annotated[str, typer.Option("--host", help="The address it listens on.")]
Processes = Annotated[int, typer.Option("--processes", min=1, max=64, help="How many accept requests.")]
Listed = Annotated[
    list[str] | None,
    typer.Option("--stream", help="The name of an accepted stream; can be repeated.", show_default="any, up to 100"),
]
Schema = Annotated[
    Path | None, typer.Option("--schema", help="A file with the JSON schema of events.", exists=True, dir_okay=False)
]
Keys = Annotated[
    Path | None, typer.Option("--keys", help="A TOML file with API keys and quotas.", exists=True, dir_okay=False)
]
Target = Annotated[
    str | None, typer.Option("--to", help="Forward events: kafka://host:port/topic.", show_default=False)
]
Retention = Annotated[str, typer.Option("--retention", help="For how long events are kept that are read.")]
MaxBody = Annotated[str, typer.Option("--max-body", help="Bytes of a request.")]
MaxEvent = Annotated[str, typer.Option("--max-event", help="Bytes of an event.")]
WithoutKeys = Annotated[bool, typer.Option("--without-keys", help="Let everybody who reaches --host send events.")]


@group.callback()
def collect(
    context: typer.Context,
    directory: Folder = FOLDER,
    port: Port = PORT,
    host: Host = LOOPBACK,
    processes: Processes = 1,
    stream: Listed = None,
    schema: Schema = None,
    keys: Keys = None,
    to: Target = None,
    retention: Retention = "7d",
    max_body: MaxBody = "8MiB",
    max_event: MaxEvent = "1MiB",
    without_keys: WithoutKeys = False,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
) -> None:
    """Accept events by POST /api/v1/events/STREAM; answer once they are on disk.

    The body is a JSON object, a list of them, or lines of them (Content-Type: application/x-ndjson), also
    compressed by gzip or zstd. Events of a request that is sent again with the same header Idempotency-Key are stored once.

    Examples:
        umbel collect --dir events --port 8426

        umbel collect --dir events --to kafka://localhost:9092/events

        umbel collect --dir events --host 0.0.0.0 --keys keys.toml --processes 2

        umbel collect cat clicks --dir events | umbel transform --config config.yaml
    """
    if context.invoked_subcommand is None:
        where = {"directory": directory.absolute(), "host": host, "port": port, "processes": processes}
        files = {"schema": schema, "keys": keys, "tls_cert": tls_cert, "tls_key": tls_key}
        check_tls(tls_cert, tls_key)
        settings = _settings(max_body, max_event, retention, to, streams=tuple(stream or ()), **where, **files)
        _run(settings, without_keys=without_keys)


def _settings(max_body: str, max_event: str, retention: str, to: str | None, **others: Any) -> CollectorSettings:
    from umbel.collector.settings import CollectorSettings, KafkaTarget, RequestLimits
    from umbel.types.durations import parse_duration

    limits = RequestLimits(size_of("--max-body", max_body), size_of("--max-event", max_event))
    target = None if to is None else KafkaTarget.parse(to)
    return CollectorSettings(limits=limits, to=target, retention=parse_duration(retention), **others)


def _run(settings: CollectorSettings, *, without_keys: bool) -> None:
    from umbel.collector.forwarding import check_installed
    from umbel.collector.server import collect as run
    from umbel.processes.privacy import make_private
    from umbel.serving.policy import url_of

    _check_reach(settings, without_keys=without_keys)
    if settings.to is not None:
        check_installed()
    make_private(settings.directory)
    address = url_of("https" if settings.tls_cert else "http", settings.host, settings.port)
    message = f"umbel: POST {address}/api/v1/events/STREAM; stored in {settings.directory}"
    run(settings, lambda: typer.echo(message, err=True))


def size_of(option: str, text: str) -> int:
    """Return a number of bytes written with a unit.

    Raises:
        InvalidValue: it is none, or above 256 MiB.
    """
    from umbel.errors import InvalidValue

    found = re.fullmatch(r"([1-9]\d{0,8})(|KiB|MiB)", text)
    size = int(found[1]) * {"": 1, "KiB": 1 << 10, "MiB": 1 << 20}[found[2]] if found else 0
    if not 0 < size <= 256 << 20:
        raise InvalidValue(f"{option} {text!r} must be a number of bytes, at most 256MiB", hint="512KiB, 8MiB")
    return size


def _check_reach(settings: CollectorSettings, *, without_keys: bool) -> None:
    from umbel.errors import InvalidValue
    from umbel.serving.policy import is_loopback

    if not is_loopback(settings.host) and settings.keys is None and not without_keys:
        raise InvalidValue(
            f"a collector on {settings.host} can be reached by other machines, and there are no keys",
            hint="--keys keys.toml; or --without-keys, where the network admits nobody else",
        )


@group.command()
def streams(directory: Folder = FOLDER) -> None:
    """Show the streams, their events, and how far their readers are.

    Examples:
        umbel collect streams --dir events
    """
    from umbel.collector.backlog import end_of_log, waiting_in
    from umbel.errors import InvalidValue
    from umbel.log.collected import log_of, streams_in
    from umbel.log.readers import positions

    if not directory.is_dir():
        raise InvalidValue(f"there is no folder {directory}", hint="name the folder of umbel collect: --dir")

    for name in streams_in(directory):
        log = log_of(directory, name)
        end, waiting = end_of_log(log), waiting_in(log)
        typer.echo(f"{name}: {end.row:,} events so far, {waiting.stored:,} bytes stored")
        for reader, each in positions(log).items():
            typer.echo(f"  {reader}: {each.title}, {end.row - each.position.row:,} events behind")


@group.command()
def cat(
    stream: StreamName,
    directory: Folder = FOLDER,
    after: Annotated[int, typer.Option("--after", min=0, help="Leave out so many events at the beginning.")] = 0,
    dead: Annotated[bool, typer.Option("--dead", help="The events that were rejected, with the reason.")] = False,
) -> None:
    """Print the events of a stream, a JSON object per line, in their order.

    Damaged events are left out; the command then ends with code 2.

    Examples:
        umbel collect cat clicks --dir events > clicks.ndjson

        umbel collect cat clicks --dir events --dead
    """
    from umbel.errors import Damaged, UnknownName
    from umbel.log.collected import LETTERS, SYSTEM, check_name, streams_in
    from umbel.transform.outputs import output

    damages: list[Damage] = []
    check_name(stream)
    if stream not in (known := streams_in(directory)):
        raise UnknownName(f"{directory} has no stream '{stream}'", hint=f"streams: {', '.join(known) or 'none'}")
    with output(None) as file:
        for each in _events(directory, LETTERS if dead else SYSTEM, stream, after, damages.append):
            file.write(each + b"\n")
    lost = [each for each in damages if each.row + each.rows > after]
    if lost:
        raise Damaged("; ".join(map(str, lost)), hint="all other events are printed; restore the folder from a backup")


def _events(
    directory: Path, system: str, stream: str, after: int, damaged: Callable[[Damage], None]
) -> Iterator[bytes]:
    from umbel.collector.bodies import events_of
    from umbel.log.reading import IngestReader

    reader = IngestReader(directory, system, stream)
    start = reader.start()
    for part in reader.ranges(start, reader.end()):
        for record in reader.open(part, damaged):
            if record.row + record.entry.rows > after:
                yield from list(events_of(record.entry.payload))[max(0, after - record.row) :]


@group.command()
def forget(
    stream: StreamName,
    reader: Annotated[str, typer.Argument(help="The id of a reader: umbel collect streams.", show_default=False)],
    directory: Folder = FOLDER,
) -> None:
    """Forget a reader that will not come back; events no longer wait for it.

    Examples:
        umbel collect forget clicks 3f6c20d1 --dir events
    """
    from umbel.log.collected import check_name, log_of
    from umbel.log.readers import forget as forget_reader

    check_name(stream)
    forget_reader(log_of(directory, stream), reader)
