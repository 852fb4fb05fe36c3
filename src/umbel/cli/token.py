"""Create, list and revoke access tokens."""

from __future__ import annotations

from typing import Annotated

import typer

from umbel.cli.options import DIRECTORY, Catalog, Directory, existing_deployment, open_deployment
from umbel.cli.tables import print_table

group = typer.Typer(
    help="Create, list and revoke access tokens. Who can write umbel's folder may; see also: umbel audit.",
    no_args_is_help=True,
)
Name = Annotated[str, typer.Argument(help="Of the token: whose, or what for.", show_default=False)]


@group.command()
def create(
    name: Name,
    role: Annotated[str, typer.Option("--role", help="reader, writer or admin.", show_default=False)],
    directory: Directory = DIRECTORY,
    catalog: Catalog = None,
) -> None:
    """Create a token and print it; it cannot be shown again.

    A reader may query, look up and inspect; a writer may log, too; an admin may do everything.

    Examples:
        umbel token create dashboard --role reader

        UMBEL_TOKEN=$(umbel token create ci --role admin) umbel commit my_features --url https://features.example.com
    """
    from umbel.catalog.audit import AuditLog
    from umbel.catalog.tokens import Role, Tokens

    granted = Role.of(role)
    deployment = open_deployment(directory, catalog)
    with AuditLog(deployment.catalog).recorded("token create", f"{name} {granted.label}"):
        text = Tokens(deployment.catalog).create(name, granted)
    typer.echo(text)


@group.command("list")
def show(directory: Directory = DIRECTORY, catalog: Catalog = None) -> None:
    """List all tokens, revoked ones included, without their texts.

    Example:
        umbel token list
    """
    from rich.table import Table
    from rich.text import Text

    from umbel.catalog.tokens import Tokens

    table = Table("name", "role", "created", "revoked", box=None)
    for each in Tokens(existing_deployment(directory, catalog).catalog).all():
        revoked = f"{each.revoked_at:%Y-%m-%d %H:%M:%S}" if each.revoked_at else ""
        table.add_row(*map(Text, (each.name, each.role.label, f"{each.created_at:%Y-%m-%d %H:%M:%S}", revoked)))
    print_table(table)


@group.command()
def revoke(name: Name, directory: Directory = DIRECTORY, catalog: Catalog = None) -> None:
    """Revoke a token; servers refuse it within a second.

    Example:
        umbel token revoke dashboard
    """
    from umbel.catalog.audit import AuditLog
    from umbel.catalog.tokens import Tokens

    deployment = existing_deployment(directory, catalog)
    with AuditLog(deployment.catalog).recorded("token revoke", name):
        Tokens(deployment.catalog).revoke(name)
    typer.echo(f"token '{name}' is revoked")
