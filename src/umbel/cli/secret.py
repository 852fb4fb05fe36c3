"""Set, list and delete secrets, and rotate their key."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from umbel.cli.options import DIRECTORY, Catalog, Directory, existing_deployment, open_deployment

group = typer.Typer(
    help="Set, list and delete secrets, and rotate their key. Who can write umbel's folder may; see also: umbel audit.",
    no_args_is_help=True,
)
Name = Annotated[str, typer.Argument(help="Of the secret: Secret(arn=NAME) in a definition.", show_default=False)]


@group.command("set")
def store(name: Name, directory: Directory = DIRECTORY, catalog: Catalog = None) -> None:
    """Add or change a secret.

    Its value is read from the terminal, unseen, or from a pipe.

    Examples:
        umbel secret set shop-password

        umbel secret set service-account < key.json
    """
    from umbel.catalog.audit import AuditLog

    is_typed = sys.stdin.isatty()
    value = typer.prompt("value", hide_input=True) if is_typed else sys.stdin.read().removesuffix("\n")
    deployment = open_deployment(directory, catalog)
    with AuditLog(deployment.catalog).recorded("secret set", name):
        if name in deployment.vault.names():
            deployment.vault.update(name, value)
        else:
            deployment.vault.add(name, value)
    typer.echo(f"secret '{name}' is stored")


@group.command("list")
def show(directory: Directory = DIRECTORY, catalog: Catalog = None) -> None:
    """List the names of all secrets; no command shows a value.

    Example:
        umbel secret list
    """
    for name in existing_deployment(directory, catalog).vault.names():
        typer.echo(name)


@group.command()
def delete(name: Name, directory: Directory = DIRECTORY, catalog: Catalog = None) -> None:
    """Delete a secret.

    Example:
        umbel secret delete shop-password
    """
    from umbel.catalog.audit import AuditLog

    deployment = existing_deployment(directory, catalog)
    with AuditLog(deployment.catalog).recorded("secret delete", name):
        deployment.vault.delete(name)
    typer.echo(f"secret '{name}' is deleted")


@group.command()
def rotate(directory: Directory = DIRECTORY, catalog: Catalog = None) -> None:
    """Encrypt all secrets under a new key, while servers and workers run.

    Repeat it if it was interrupted. The old key opens nothing then, but in backups of the catalog that were made before.
    Make a new copy of secret.key.

    Example:
        umbel secret rotate
    """
    from umbel.catalog.audit import AuditLog

    deployment = existing_deployment(directory, catalog)
    with AuditLog(deployment.catalog).recorded("secret rotate", ""):
        count = deployment.vault.rotate()
    typer.echo(f"{count} secrets are encrypted under the new key")
