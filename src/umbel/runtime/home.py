"""The folder of a deployment whose catalog is elsewhere."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from umbel.errors import InvalidValue, NotSupported
from umbel.state.disk import write_new

if TYPE_CHECKING:
    from umbel.catalog.catalog import Catalog

NAME = "deployment.id"
SETTING = "folder"
"""The setting of the catalog with the id of the folder that has plans, logs and positions."""


def is_home(folder: Path, catalog: Catalog) -> bool:
    """Return True if a folder is the one that the worker reads.

    The first folder that asks becomes it.

    Args:
        folder: umbel's folder.
        catalog: a catalog that is not in that folder.
    """
    own = _id_of(folder)
    known = catalog.noted(SETTING)
    if known is not None:
        return bool(own == known)
    own = own or _make_id(folder)
    return bool(catalog.setting(SETTING, own) == own)


def adopt(folder: Path, catalog: Catalog) -> None:
    """Make a new folder the one that the worker reads."""
    catalog.note(SETTING, _make_id(folder))


def other_folder(folder: Path) -> InvalidValue:
    """Return the error for a folder that no worker reads.

    Events that it took in would never be processed.
    """
    return InvalidValue(
        f"{folder} is not the folder of this catalog's deployment: the worker reads another one",
        hint="--dir of the worker, in a folder that both machines share; or `umbel serve --queries-only`",
    )


def elsewhere(what: str) -> NotSupported:
    """Return the error for what only a server beside the worker can do."""
    return NotSupported(
        f"this server answers queries only, it cannot {what}", hint="ask a server that has the worker's folder"
    )


def _id_of(folder: Path) -> str | None:
    try:
        return (folder / NAME).read_text().strip()
    except FileNotFoundError:
        return None


def _make_id(folder: Path) -> str:
    with suppress(FileExistsError):
        write_new(folder / NAME, uuid4().hex.encode())
    return _id_of(folder) or ""
