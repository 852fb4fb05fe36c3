"""List the dead letters of a dataset, or process them again."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from umbel.cli.options import DIRECTORY, MAIN, Branch, Catalog, Directory, existing_deployment
from umbel.cli.tables import print_table, visible

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
    branch: Branch = MAIN,
) -> None:
    """List the dead letters of a dataset, records refused or too late; or replay them.

    Each has its position in the source, the field at fault, the reason and the record. A replay processes records again,
    each once however often it is asked for; one that is rejected again is a new dead letter.

    Examples:
        umbel dead-letters Flight

        umbel dead-letters Flight -n 500 --dir /var/lib/umbel

        umbel dead-letters replay Flight --reason "is ahead of" --dry-run

        umbel dead-letters Flight --branch dev
    """
    from umbel.catalog.replays import LetterFilter

    deployment = existing_deployment(directory, catalog)
    names = _names(deployment, branch, words)
    if words[0] == REPLAY and len(words) == 2:
        chosen = LetterFilter(dataset=names[0], reason=reason, source=source, since=since, until=until)
        _replay(deployment, chosen, names, dry_run=dry_run)
    else:
        _list(deployment, names, limit)


def _names(deployment: Deployment, branch: str, words: list[str]) -> list[str]:
    """Return the names in the graph of a dataset of a branch.

    During a backfill the version that serves has another one. A name that `umbel status` shows is one, too.
    """
    from umbel.errors import InvalidValue, UnknownName, did_you_mean
    from umbel.runtime.switching import names_on

    if len(words) > 2 or (len(words) == 2 and words[0] != REPLAY):
        raise InvalidValue(f"expected one dataset, found {' '.join(words)}", hint="umbel dead-letters replay DATASET")
    name, known = words[-1], names_on(deployment, branch)
    if name not in known and not deployment.catalog.count_dead().get(name, 0):
        raise UnknownName(f"dataset '{name}' is not committed{did_you_mean(name, known)}")
    return known.get(name, [name])


def _list(deployment: Deployment, names: list[str], limit: int) -> None:
    from rich.table import Table
    from rich.text import Text

    dead = deployment.catalog.count_dead()
    count = sum(dead.get(each, 0) for each in names)
    table = Table("position", "field", "reason", "record", box=None)
    letters = [letter for each in names for letter in deployment.catalog.dead_letters(each, limit)]
    for letter in sorted(letters, key=lambda each: str(each.at), reverse=True)[:limit]:
        raw = letter.raw[:SHOWN].decode("utf-8", "backslashreplace")
        table.add_row(*(Text(visible(each)) for each in (letter.position, letter.field, letter.reason, raw)))
    if count:
        print_table(table)
    typer.echo(f"{count} in all" if count else "none")
    _print_counts(deployment, names)


def _print_counts(deployment: Deployment, names: list[str]) -> None:
    """Print how many records were dropped, late and replayed, if any."""
    from umbel.runtime.dead_letters import DROPPED

    counts = deployment.catalog.counts()
    dropped, late, again = (sum(counts.get((each, of), 0) for each in names) for of in (DROPPED, "late", "replayed"))
    if dropped:
        typer.echo(
            f"{dropped} more were counted, and not stored: more than UMBEL_DEAD_LETTERS_PER_BATCH or _PER_REQUEST"
        )
    if late:
        typer.echo(f"{late} came too late so far; the newest of these are kept")
    if again:
        typer.echo(f"{again} were replayed so far")


def _replay(deployment: Deployment, letters: LetterFilter, names: list[str], *, dry_run: bool) -> None:
    from umbel.runtime.replays import replay_letters

    report = replay_letters(deployment, letters, names, dry_run=dry_run)
    if not report.count:
        typer.echo("none to replay")
    elif dry_run:
        typer.echo(f"{report.count} would be processed again")
    else:
        typer.echo(f"replay {report.number}: {report.count} are processed with the next batches")
    for why, left in sorted(report.left_out.items()):
        typer.echo(f"{left} left out: {why}")
