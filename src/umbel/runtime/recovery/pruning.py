"""Deletion of old backups, and of the objects that no other needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from umbel.errors import Damaged
from umbel.runtime.integrity import damage
from umbel.runtime.recovery.repository import Repository, writer_of
from umbel.state.failpoints import reach

if TYPE_CHECKING:
    from umbel.runtime.deployment import Deployment
    from umbel.runtime.recovery.backup import BackupReport


def delete_unfinished(deployment: Deployment, repository: Repository) -> None:
    """Delete what killed backups were writing, unless another one may be writing it.

    No backup of the deployment may run.

    Args:
        deployment: the deployment.
        repository: of its backups.
    """
    found = repository.unfinished()  # in this order: a backup that begins later has a draft, or newer files
    if not repository.writers() - {writer_of(deployment.directory)}:
        for each in found:
            repository.bucket.delete(each.path)


def prune(deployment: Deployment, repository: Repository, keep: int, report: BackupReport) -> None:
    """Delete all but the newest backups, unless another backup runs.

    No backup of the deployment may run, and it must not be damaged.

    Args:
        deployment: the deployment.
        repository: of its backups.
        keep: the number of newest backups to retain.
        report: of the backup just made; gets what was deleted, or why nothing was.
    """
    # In this order: a backup of another folder is seen as a draft, or it has ended and is listed, or its objects are newer.
    objects, others = repository.objects(), sorted(repository.writers() - {writer_of(deployment.directory)})
    ids = repository.ids()
    if others:
        report.notes.append(
            f"old backups stay: another backup runs on {repository.title}, or was killed and not repeated "
            f"(delete drafts/{others[0]}.json.gz if there is none)"
        )
        return
    try:
        lists = [repository.read_list(each) for each in ids[-keep:]]
    except Damaged as error:
        report.notes.append(f"old backups stay: {error.message}; delete it, then the next backup deletes them")
        return
    for each in ids[:-keep]:
        repository.delete_list(each)
        report.removed.append(each)
        reach("list deleted")
    for name in objects.keys() - set[str]().union(*(each.objects for each in lists)):
        repository.delete_object(name)
        report.freed += objects[name]
        reach("object deleted")


def damage_of(deployment: Deployment) -> str:
    """Return a description of the damage that a quick look finds; empty for none.

    It is looked for twice: the deployment may be running, and delete what is not needed any more.
    """
    wrong = ""
    for _ in range(2):
        try:
            found = next(damage(deployment), None)
        except OSError as error:
            wrong = str(error)
            continue
        if found is None:
            return ""
        wrong = found.message
    return wrong
