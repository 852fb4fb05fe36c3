"""Checks that a repository is fit for the backups of a deployment."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

from umbel.errors import Damaged, InvalidValue
from umbel.runtime.deployment import Deployment
from umbel.runtime.recovery.repository import Repository

IDENTITY = "deployment"
"""The setting with the identity of the deployment."""


def check_apart(directory: Path, repository: Repository) -> None:
    """Refuse a repository inside of the deployment's folder, or around it.

    Raises:
        InvalidValue: it is.
    """
    place, real = repository.folder, directory.resolve()  # either may be named by a link
    if place is not None and (place.resolve().is_relative_to(real) or real.is_relative_to(place.resolve())):
        raise InvalidValue(
            f"backups of {directory} cannot be in {place}: one would be part of the other", hint="use another folder"
        )
    if place is not None and (place / "catalog.db").exists():
        raise InvalidValue(f"{place} is the folder of a deployment, not of backups", hint="use another folder")


def check_own(deployment: Deployment, repository: Repository) -> None:
    """Refuse a repository with the backups of another deployment: they would delete each other's.

    Lists of older versions, without an identity, and damaged ones are nobody's.

    Raises:
        InvalidValue: it has.
    """
    own = identity_of(deployment)  # fixed before the first backup, which has it in its catalog
    for each in reversed(repository.ids()):
        try:
            newest = repository.read_list(each)
        except Damaged:
            continue
        if newest.deployment not in ("", own):
            raise InvalidValue(
                f"{repository.title} has the backups of another deployment, {newest.host}:{newest.folder}",
                hint="use another folder for each deployment; restore takes the newest backup, and --keep deletes the oldest",
            )
        return


def identity_of(deployment: Deployment) -> str:
    """Return the identity of a deployment.

    One that was restored from its backups has the same.
    """
    return str(deployment.catalog.setting(IDENTITY, uuid4().hex))
