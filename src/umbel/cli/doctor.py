"""Check everything umbel needs, and print remedies for problems."""

from __future__ import annotations

from typing import Annotated

import typer

from umbel.cli.options import DIRECTORY, LOOPBACK, PORT, Catalog, Directory, Host, Port, Store
from umbel.cli.tables import print_table, visible

Deep = Annotated[bool, typer.Option("--deep", help="Read all that is stored, and verify every checksum.")]
STYLES = {"ok": "green", "warning": "yellow", "error": "bold red"}


def command(
    directory: Directory = DIRECTORY,
    port: Port = PORT,
    host: Host = LOOPBACK,
    deep: Deep = False,
    catalog: Catalog = None,
    store: Store = None,
) -> None:
    """Check Python, Java, folder, disk, port, limits and deployment; print remedies for problems.

    The exit code is 1 if there is an error, 0 if there is none; warnings are no errors.

    Examples:
        umbel doctor

        umbel doctor --dir /var/lib/umbel --port 9000

        umbel doctor --deep
    """
    from rich.table import Table
    from rich.text import Text

    from umbel.cli.checks import CHECKS, SettingCheck

    setting = SettingCheck(directory, host, port, deep, catalog, store)
    findings = [finding for check in CHECKS for finding in check(setting)]
    table = Table.grid(padding=(0, 2))
    for each in findings:
        table.add_row(Text(each.level, STYLES[each.level]), Text(each.subject), Text(visible(each.found)))
        if each.remedy:
            table.add_row("", "", Text(visible(f"→ {each.remedy}"), "bold"))
    print_table(table)
    errors = sum(each.level == "error" for each in findings)
    typer.echo(f"{errors} errors" if errors else "no errors")
    raise typer.Exit(1 if errors else 0)
