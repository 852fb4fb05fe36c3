"""Branches of a deployment: each has its definitions, equal ones share state.

A branch cloned from another begins with its definitions, and so with its data. The two diverge as soon as either commits
something else.
"""

from __future__ import annotations

from contextlib import suppress

from umbel.catalog.cloning import clone
from umbel.client.names import check_new_branch
from umbel.definitions.records import Definitions
from umbel.definitions.serde import dump
from umbel.errors import Conflict, InvalidValue
from umbel.graph.graph import MAIN
from umbel.runtime.deployment import Deployment


def branches(deployment: Deployment) -> list[str]:
    """Return the names of all branches, main first."""
    catalog = deployment.catalog
    return list({MAIN: 0, **catalog.heads(catalog.latest())})


def init(deployment: Deployment, name: str, clone_from: str | None = None) -> int:
    """Make a branch; return its first revision.

    Args:
        deployment: the deployment.
        name: of the branch.
        clone_from: the branch to clone, with its data; the new branch is empty when None.

    Raises:
        InvalidValue: it exists, or cannot have this name.
        UnknownName: there is no branch `clone_from`.
    """
    check_new_branch(name)
    while True:
        before, known = deployment.catalog.revision(name), branches(deployment)
        head = deployment.catalog.head(clone_from) if clone_from is not None else 0
        if name in known:
            raise InvalidValue(
                f"branch '{name}' exists already; branches: {', '.join(known)}",
                hint="check it out, or choose another name",
            )
        with suppress(Conflict):  # it was made meanwhile
            if clone_from is None or not head:
                return deployment.catalog.commit(name, "init", dump(Definitions({}, {})), after=before)
            return clone(deployment.catalog, name, clone_from, after=before)


def delete(deployment: Deployment, name: str) -> int:
    """Delete a branch; state that no other branch uses is no longer updated.

    Raises:
        InvalidValue: it is main.
        UnknownName: there is no such branch.
    """
    if name == MAIN:
        raise InvalidValue("branch 'main' cannot be deleted", hint="it always exists")
    deployment.catalog.head(name)
    return deployment.catalog.remove(name)
