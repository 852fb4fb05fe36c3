"""Verify everything that a deployment has stored, and mend what can be mended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from umbel.cli.options import DIRECTORY, Catalog, Directory, Store, existing_deployment

if TYPE_CHECKING:
    from umbel.runtime.deployment import Deployment
    from umbel.runtime.recovery.finding import CheckFinding


def command(
    directory: Directory = DIRECTORY,
    is_repair: Annotated[
        bool, typer.Option("--repair", help="Mend what can be mended, and say how; umbel must be stopped.")
    ] = False,
    is_quick: Annotated[
        bool, typer.Option("--quick", help="Only look whether everything is there; verify no checksum.")
    ] = False,
    catalog: Catalog = None,
    store: Store = None,
) -> None:
    """Verify the checksums of catalog, state, logs and plans; print what is lost.

    They are also compared with each other. It changes nothing without --repair, and may run beside a running umbel. The exit
    code is 1 if something is left that is missing or damaged.

    Examples:
        umbel check --dir /var/lib/umbel

        umbel check --dir /var/lib/umbel --repair
    """
    from umbel.errors import Damaged, InvalidValue
    from umbel.runtime.recovery.check import check, check_files
    from umbel.runtime.recovery.finding import BACKUP, CheckFinding

    if not directory.is_dir():
        raise InvalidValue(f"there is no folder {directory}", hint="name umbel's folder: --dir")
    try:
        deployment = existing_deployment(directory, catalog, store)
    except Damaged as error:
        found = [CheckFinding("catalog", error.message, "definitions, positions, secrets and counts", BACKUP)]
        _print(found + list(check_files(directory, deep=not is_quick)))
        raise typer.Exit(1) from None
    found = list(check(deployment, deep=not is_quick))
    left = _repaired(deployment, found) if is_repair and found else len(found)
    if not is_repair:
        _print(found)
    typer.echo(f"{left} left" if left else "all mended" if found else "everything is there, and as it was written")
    raise typer.Exit(1 if left else 0)


def _repaired(deployment: Deployment, found: list[CheckFinding]) -> int:
    """Mend findings; return the number of those that are left."""
    from umbel.runtime.recovery.check import repair_all

    left = len(found)
    for each, done in repair_all(deployment, found):
        _print([each], is_repair=True)
        typer.echo(f"  mended: {done}" if done else f"  not mended: {each.remedy}")
        if done:
            left -= 1
            deployment.catalog.record_event("check", "warning", f"{each.subject}: {each.text}; {done}"[:4000])
    return left


def _print(found: list[CheckFinding], *, is_repair: bool = False) -> None:
    for each in found:
        typer.echo(f"{each.subject}: {each.text}")
        typer.echo(f"  lost: {each.lost or 'nothing'}")
        if not is_repair:
            typer.echo("  umbel check --repair mends it" if each.mend is not None else f"  {each.remedy}")
