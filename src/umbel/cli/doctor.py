"""Check everything umbel needs, and say how to mend what is wrong."""

from __future__ import annotations

import typer

from umbel.cli.options import DIRECTORY, LOOPBACK, PORT, Directory, Host, Port

STYLES = {"ok": "green", "warning": "yellow", "fault": "bold red"}


def command(directory: Directory = DIRECTORY, port: Port = PORT, host: Host = LOOPBACK) -> None:
    """Check Python, Java, folder, disk, port, limits and what is deployed, and say how to mend what is wrong.

    The exit code is 1 if there is a fault, 0 if there is none; warnings are no faults.

    Examples:
        umbel doctor

        umbel doctor --dir /var/lib/umbel --port 9000
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from umbel.cli.checks import CHECKS, Setting

    setting = Setting(directory, host, port)
    findings = [finding for check in CHECKS for finding in check(setting)]
    table = Table.grid(padding=(0, 2))
    for each in findings:
        table.add_row(Text(each.level, STYLES[each.level]), Text(each.subject), Text(each.found))
        if each.remedy:
            table.add_row("", "", Text(f"→ {each.remedy}", "bold"))
    Console(soft_wrap=False).print(table)
    faults = sum(each.level == "fault" for each in findings)
    typer.echo(f"{faults} faults" if faults else "no faults")
    raise typer.Exit(1 if faults else 0)
