"""Show the audit log."""

from __future__ import annotations

from typing import Annotated

import typer

from umbel.cli.options import DIRECTORY, Catalog, Directory, existing_deployment


def command(
    directory: Directory = DIRECTORY,
    limit: Annotated[int, typer.Option("-n", min=1, help="How many entries, the newest first.")] = 50,
    catalog: Catalog = None,
) -> None:
    """Print the audit log: commits, erased rows, and changes of secrets, tokens and branches.

    Each line is one entry, newest first: time, actor, address, action, subject, outcome. Every user with read access to
    umbel's folder can read the log.

    Examples:
        umbel audit

        umbel audit -n 500 --dir /var/lib/umbel
    """
    from umbel.catalog.audit import AuditLog

    for each in AuditLog(existing_deployment(directory, catalog).catalog).entries(limit):
        report = (f"{each.at:%Y-%m-%dT%H:%M:%SZ}", each.actor, each.address, each.action, each.subject, each.outcome)
        typer.echo("\t".join("".join(sign if sign.isprintable() else "?" for sign in part) for part in report))
