"""The claim of a worker on state outside of its folder.

A folder that is copied, with its catalog, names the same store as before. Both workers would number their batches alike, and
each would replace what the other wrote. So each worker that starts puts a token into the store, and takes the place only of
one whose token its own folder has.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit
from uuid import uuid4

from umbel.errors import Damaged
from umbel.log.reading import RESTORE
from umbel.state import disk
from umbel.state.durable import DurableStore
from umbel.state.stored_json import parse_stored

if TYPE_CHECKING:
    from umbel.runtime.deployment import Deployment

NAME = "state-claim.json"
"""The file with the tokens of which one is in the store."""


def claim_state(deployment: Deployment, epoch: int) -> None:
    """Take the place of the worker that wrote the state before.

    Args:
        deployment: the deployment.
        epoch: of this worker.

    Raises:
        Damaged: a worker of a copy of the deployment has taken it.
    """
    store, folder = deployment.store, deployment.directory
    if not isinstance(store, DurableStore) or store.identity is None or _is_inside(deployment):
        return
    known, own = claims(deployment), uuid4().hex
    store.check_claim(known)
    _note(folder, [*known, own])  # first: a claim that the folder lacks would be another one's
    store.claim(epoch, own)
    _note(folder, [own])


def _note(folder: Path, tokens: list[str]) -> None:
    disk.replace(folder / NAME, json.dumps(tokens).encode())


def claims(deployment: Deployment) -> list[str]:
    """Return the claims of workers of this folder, of which the store may have one."""
    try:
        found: list[str] = parse_stored((deployment.directory / NAME).read_bytes())
        if not isinstance(found, list):
            raise ValueError("it is no list")
    except FileNotFoundError:
        return []
    except ValueError:
        raise Damaged(f"{NAME} is damaged: it is no list in JSON", hint=RESTORE) from None
    return found


def _is_inside(deployment: Deployment) -> bool:
    """Return whether a copy of the folder has state of its own."""
    parts = urlsplit(deployment.store_url)
    return parts.scheme == "file" and Path(unquote(parts.path)).is_relative_to(deployment.directory)
