"""Restore a deployment from a backup."""

from __future__ import annotations

from typing import Annotated

import typer

from umbel.cli.backup import MIB, Repo, reported
from umbel.cli.options import DIRECTORY, Catalog, Directory, Store


def command(
    url: Repo,
    directory: Directory = DIRECTORY,
    backup: Annotated[
        str | None,
        typer.Option(
            "--backup", help="Its id or number, as --list shows them; the newest when left out.", show_default=False
        ),
    ] = None,
    catalog: Catalog = None,
    store: Store = None,
) -> None:
    """Restore a backup into a new folder, with every byte verified.

    The folder appears whole or not at all, with catalog and state; or these are in an empty --catalog of PostgreSQL and --store.

    Examples:
        umbel restore s3://our-backups/umbel --dir /var/lib/umbel

        umbel restore /mnt/backups/umbel --dir /var/lib/umbel --backup 12

        umbel restore s3://our-backups/umbel --dir /var/lib/umbel --store s3://our-state/umbel

        UMBEL_CATALOG=postgresql://… umbel restore /mnt/backups/umbel --dir /var/lib/umbel
    """
    from umbel.runtime.deployment import Deployment
    from umbel.runtime.recovery.repository import Repository
    from umbel.runtime.recovery.restore import restore

    repository = Repository.at(url)
    with reported("restore") as progress:
        found = restore(repository, directory, backup, catalog_url=catalog, store_url=store, progress=progress)
    typer.echo(f"restored backup {found.id} into {directory}: {len(found.files)} files, {found.size / MIB:,.1f} MiB")
    secrets = Deployment.at(directory, catalog_url=catalog).vault.names()
    if secrets:
        typer.echo(
            f"copy secret.key, which is in no backup, into {directory}: without it nobody can read the secrets "
            f"{', '.join(secrets)}"
        )
    typer.echo("umbel up goes on from there, and reads sources from the positions of the backup")
