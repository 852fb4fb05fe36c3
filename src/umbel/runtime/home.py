"""The folder of a deployment, and whose it is if the catalog is elsewhere."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from umbel.errors import Damaged, InvalidValue, NotSupported
from umbel.log.reading import RESTORE
from umbel.state.disk import write_new

if TYPE_CHECKING:
    from umbel.catalog.catalog import Catalog

_ELSEWHERE = "choose another folder, which this account may write to: --dir"
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


def is_away(folder: Path, catalog: Catalog) -> bool:
    """Return True if the folder that the worker reads is known, and is another one.

    Args:
        folder: umbel's folder.
        catalog: a catalog that is not in that folder.
    """
    known = catalog.noted(SETTING)
    return known is not None and known != _id_of(folder)


def adopt(folder: Path, catalog: Catalog, own_id: str) -> None:
    """Make a new folder the one that the worker reads, by its id."""
    write_new(folder / NAME, own_id.encode())
    catalog.note(SETTING, own_id)


def is_of(own_id: str, catalog: Catalog) -> bool:
    """Return True if the folder with an id is the one that the worker reads."""
    return bool(catalog.noted(SETTING) == own_id)


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


def made(folder: Path) -> Path:
    """Return umbel's folder, making it if needed."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidValue(f"{folder} cannot be made: {error.strerror}", hint=_ELSEWHERE) from error
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        raise InvalidValue(f"{folder} cannot be read and written by this account", hint=_ELSEWHERE)
    return folder


def check_catalog(folder: Path, url: str | None) -> None:
    """Refuse to make a new catalog in a folder that had one.

    A new catalog would forget all commits and source positions.

    Raises:
        Damaged: the catalog is gone, and the data it describes is not.
    """
    own = folder / "catalog.db"
    if url not in (None, f"sqlite:///{own}") or (own.is_file() and own.stat().st_size):
        return
    if own.is_dir():
        raise Damaged("the catalog is damaged: catalog.db is a folder", hint=RESTORE)
    left = [name for name in ("store/store.json", "plans", "changes") if (folder / name).exists()]
    if left:
        what = "an empty catalog.db" if own.exists() else "no catalog.db"
        raise Damaged(f"the catalog is missing: there is {', '.join(left)} and {what}", hint=RESTORE)
