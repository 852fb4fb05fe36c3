"""Back a deployment up to a folder or a bucket."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from umbel.cli.options import DIRECTORY, Catalog, Directory, Store, existing_deployment

if TYPE_CHECKING:
    from umbel.runtime.recovery.backup import BackupReport, Progress
    from umbel.runtime.recovery.repository import Repository

Repo = Annotated[
    str,
    typer.Argument(metavar="URL", help="Where the backups are: a folder, or s3://bucket/folder.", show_default=False),
]
MIB = 1 << 20


def command(
    url: Repo,
    directory: Directory = DIRECTORY,
    keep: Annotated[
        int | None, typer.Option("--keep", min=1, help="How many of the newest backups stay; all when left out.")
    ] = None,
    is_list: Annotated[bool, typer.Option("--list", help="List the backups, and do nothing else.")] = False,
    is_check: Annotated[
        bool, typer.Option("--verify", help="Read the newest backup, verify every checksum, and do nothing else.")
    ] = False,
    catalog: Catalog = None,
    store: Store = None,
) -> None:
    """Back up catalog, state, logs and positions, while umbel runs.

    Only what is new is written. The key of the secrets is not in a backup: keep a copy of secret.key elsewhere.

    Examples:
        umbel backup /mnt/backups/umbel

        umbel backup s3://our-backups/umbel --keep 14
    """
    from umbel.runtime.recovery.backup import backup
    from umbel.runtime.recovery.repository import Repository
    from umbel.runtime.recovery.restore import verify

    repository = Repository.at(url)
    if is_list:
        _print_all(repository)
        return
    if is_check:
        with reported("verifying") as progress:
            found = verify(repository, progress=progress)
        typer.echo(f"backup {found.id} is whole: {len(found.files)} files, {found.size / MIB:,.1f} MiB")
        return
    deployment = existing_deployment(directory, catalog, store)
    with reported("backup") as progress:
        made = backup(deployment, repository, keep=keep, progress=progress)
    _print(made)


def _print(made: BackupReport) -> None:
    done = "nothing processed yet" if made.backup.batch is None else f"up to batch {made.backup.batch}"
    typer.echo(f"backup {made.backup.id}: {len(made.backup.files)} files, {made.backup.size:,} bytes, {done}")
    typer.echo(f"written: {made.written:,} bytes, in {made.objects} objects; the rest was there")
    typer.echo(f"no batch could finish for {made.locked * 1000:.0f} ms")
    if made.removed:
        typer.echo(f"deleted: {len(made.removed)} older backups, {made.freed:,} bytes")
    for note in made.notes:
        typer.echo(note, err=True)


def _print_all(repository: Repository) -> None:
    from umbel.errors import Damaged

    ids = repository.ids()
    for each in ids:
        try:
            found = repository.read_list(each)
        except Damaged as error:
            typer.echo(f"{each}  {error.message}")
            continue
        at = datetime.fromtimestamp(found.at, UTC)
        typer.echo(
            f"{found.id}  {at:%Y-%m-%d %H:%M:%S} UTC  {found.size:>15,} bytes  {len(found.files):>6} files  "
            f"batch {'-' if found.batch is None else found.batch}  {found.host}:{found.folder}"
        )
    if not ids:
        typer.echo(f"no backups in {repository.title}")


@contextmanager
def reported(what: str) -> Iterator[Progress]:
    """Show how far a long command is, on a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(binary_units=True), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=None)

        def show(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        yield show
