"""List the dead letters of a dataset, or process them again."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from umbel.cli.options import DIRECTORY, Catalog, Directory, existing_deployment

if TYPE_CHECKING:
    from umbel.catalog.replays import LetterFilter
    from umbel.runtime.deployment import Deployment

SHOWN = 120
REPLAY = "replay"
FORMATS = ["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S"]
Instant = datetime | None


def command(
    words: Annotated[list[str], typer.Argument(help="The name of a dataset.", metavar="[replay] DATASET")],
    directory: Directory = DIRECTORY,
    limit: Annotated[int, typer.Option("-n", min=1, help="How many, the newest first.")] = 20,
    reason: Annotated[str | None, typer.Option(help="Replay those with this text in their reason.")] = None,
    source: Annotated[int | None, typer.Option(help="Replay those of this source of the dataset, from 0.")] = None,
    since: Annotated[Instant, typer.Option(formats=FORMATS, help="Replay those stored from this time on, UTC.")] = None,
    until: Annotated[Instant, typer.Option(formats=FORMATS, help="Replay those stored before this time, UTC.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count what would be replayed.")] = False,
    catalog: Catalog = None,
) -> None:
    """List the dead letters of a dataset, records refused or too late; or replay them.

    Each has its position in the source, the field at fault, the reason and the record. A replay processes records again,
    each once however often it is asked for; one that is rejected again is a new dead letter.

    Examples:
        umbel dead-letters Flight

        umbel dead-letters Flight -n 500 --dir /var/lib/umbel

        umbel dead-letters replay Flight --reason "is ahead of" --dry-run
    """
    from umbel.catalog.replays import LetterFilter

    dataset = words[-1]
    deployment = existing_deployment(directory, catalog)
    _check(deployment, words)
    if words[0] == REPLAY and len(words) == 2:
        chosen = LetterFilter(dataset=dataset, reason=reason, source=source, since=since, until=until)
        _replay(deployment, chosen, dry_run=dry_run)
    else:
        _list(deployment, dataset, limit)


def _check(deployment: Deployment, words: list[str]) -> None:
    from umbel.errors import InvalidValue, UnknownName, did_you_mean

    if len(words) > 2 or (len(words) == 2 and words[0] != REPLAY):
        raise InvalidValue(f"expected one dataset, found {' '.join(words)}", hint="umbel dead-letters replay DATASET")
    known = deployment.definitions(deployment.catalog.revision()).datasets
    if words[-1] not in known and not deployment.catalog.count_dead().get(words[-1], 0):
        raise UnknownName(f"dataset '{words[-1]}' is not committed{did_you_mean(words[-1], known)}")


def _list(deployment: Deployment, dataset: str, limit: int) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from umbel.runtime.dead_letters import DROPPED

    found = deployment.catalog
    count = found.count_dead().get(dataset, 0)
    table = Table("position", "field", "reason", "record", box=None)
    for letter in found.dead_letters(dataset, limit):
        raw = letter.raw[:SHOWN].decode("utf-8", "backslashreplace")
        table.add_row(*map(Text, (letter.position, letter.field, letter.reason, raw)))
    if count:
        Console().print(table)
    typer.echo(f"{count} in all" if count else "none")
    counts = found.counts()
    late, again = counts.get((dataset, "late"), 0), counts.get((dataset, "replayed"), 0)
    if dropped := counts.get((dataset, DROPPED), 0):
        typer.echo(
            f"{dropped} more were counted, and not stored: more than UMBEL_DEAD_LETTERS_PER_BATCH or _PER_REQUEST"
        )
    if late:
        typer.echo(f"{late} came too late so far; the newest of these are kept")
    if again:
        typer.echo(f"{again} were replayed so far")


def _replay(deployment: Deployment, letters: LetterFilter, *, dry_run: bool) -> None:
    from umbel.runtime.replays import replay_letters

    report = replay_letters(deployment, letters, dry_run=dry_run)
    if not report.count:
        typer.echo("none to replay")
    elif dry_run:
        typer.echo(f"{report.count} would be processed again")
    else:
        typer.echo(f"replay {report.number}: {report.count} are processed with the next batches")
    for why, left in sorted(report.left_out.items()):
        typer.echo(f"{left} left out: {why}")
