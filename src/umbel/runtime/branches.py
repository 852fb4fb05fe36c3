"""Branches of a deployment: each is the definitions in force on it; what two define alike they have once.

A branch made of another begins with its definitions, and so with its data. It parts from it where either commits something else.
"""

from __future__ import annotations

from umbel.client.names import check_branch
from umbel.errors import InvalidValue
from umbel.plan.definitions import Definitions
from umbel.plan.graph import MAIN
from umbel.plan.serde import dump
from umbel.runtime.deployment import Deployment


def branches(deployment: Deployment) -> list[str]:
    """Return the names of all branches, main first."""
    catalog = deployment.catalog
    return list({MAIN: 0, **catalog.heads(catalog.latest())})


def init(deployment: Deployment, name: str, clone_from: str | None = None) -> int:
    """Make a branch; return its first revision.

    Args:
        deployment: where.
        name: of the branch.
        clone_from: the branch it begins as, with its data; it begins empty when None.

    Raises:
        InvalidValue: it exists, or cannot have this name.
        UnknownName: there is no branch `clone_from`.
    """
    check_branch(name)
    known = branches(deployment)
    if clone_from is not None:
        deployment.catalog.head(clone_from)
    if name in known:
        raise InvalidValue(
            f"branch '{name}' exists already; branches: {', '.join(known)}", hint="check it out, or choose another name"
        )
    if clone_from is None or not deployment.catalog.head(clone_from):
        return deployment.catalog.commit(name, "init", dump(Definitions({}, {})))
    return deployment.catalog.clone(name, clone_from)


def delete(deployment: Deployment, name: str) -> int:
    """Delete a branch; what no other branch has is no longer kept up to date.

    Raises:
        InvalidValue: it is main.
        UnknownName: there is no such branch.
    """
    if name == MAIN:
        raise InvalidValue("branch 'main' cannot be deleted", hint="it always exists")
    deployment.catalog.head(name)
    return deployment.catalog.remove(name)
