"""The mock client's branches and secrets."""

from __future__ import annotations

from collections.abc import Mapping

from umbel.client.names import check_branch, check_secret
from umbel.client.older import OlderSpellings
from umbel.client.response import Response
from umbel.errors import InvalidValue, UnknownName
from umbel.testing.branch import Branch, Fed
from umbel.testing.secrets import Secrets

MAIN = "main"


class MockBranches(OlderSpellings):
    """Branches and secrets, in process.

    Args:
        branch: the branch calls are about.
    """

    def __init__(self, branch: str | None = None) -> None:
        self._branches = {MAIN: Branch()}
        self._name = branch or MAIN
        self._branches.setdefault(self._name, Branch())
        self._secrets = Secrets()
        self._history: list[tuple[str, str]] = []

    @property
    def _current(self) -> Branch:
        found = self._branches.get(self._name)
        if found is None:
            raise UnknownName(
                f"branch '{self._name}' does not exist; branches: {', '.join(self._branches)}",
                hint="init_branch makes one",
            )
        return found

    def _feed(self, batches: Mapping[str, list[Fed]]) -> None:
        """Feed branches: all of them or, when a pipeline of one fails, none."""
        marks = {name: self._branches[name].mark() for name in batches}
        done: list[str] = []
        try:
            with self._secrets.in_force():
                for name, fed in batches.items():
                    self._branches[name].feed(fed)
                    done.append(name)
        except Exception:
            for name in done:
                self._branches[name].back_to(marks[name])
            raise

    def init_branch(self, name: str) -> Response:
        """Make an empty branch and check it out."""
        return self._made(name, Branch())

    def clone_branch(self, name: str, from_branch: str) -> Response:
        """Make a branch with the definitions and data of another, and check it out."""
        if from_branch not in self._branches:
            known = ", ".join(self._branches)
            raise UnknownName(
                f"branch '{from_branch}' does not exist, so it cannot be cloned; branches: {known}",
                hint="clone one of these",
            )
        return self._made(name, self._branches[from_branch].clone())

    def _made(self, name: str, branch: Branch) -> Response:
        check_branch(name)
        if name in self._branches:
            raise InvalidValue(
                f"branch '{name}' exists already; branches: {', '.join(self._branches)}",
                hint="check it out, or choose another name",
            )
        self._branches[name] = branch
        self._name = name
        return Response.of(200, {"branch": name})

    def delete_branch(self, name: str) -> Response:
        """Delete a branch; main is checked out if it was the current one."""
        if name == MAIN:
            raise InvalidValue(
                "branch 'main' cannot be deleted", hint="it always exists; commit without incremental to empty it"
            )
        if name not in self._branches:
            raise UnknownName(
                f"branch '{name}' does not exist; branches: {', '.join(self._branches)}", hint="delete one of these"
            )
        del self._branches[name]
        if self._name == name:
            self._name = MAIN
        return Response.of(200, {"branch": name})

    def list_branches(self) -> list[str]:
        """Return the names of all branches."""
        return list(self._branches)

    def checkout(self, name: str, init: bool = False) -> None:
        """Let the calls that follow be about another branch.

        Args:
            name: of the branch; it may not exist yet.
            init: whether to make it if it does not exist.
        """
        if init and name not in self._branches:
            self.init_branch(name)
        self._name = name

    def branch(self) -> str:
        """Return the name of the branch calls are about."""
        return self._name

    def get_secret(self, name: str) -> str:
        """Return a secret."""
        return self._secrets.get(name)

    def add_secret(self, name: str, value: str) -> Response:
        """Keep a secret under a new name."""
        self._secrets.add(name, check_secret(name, value))
        return Response.of(200, {"secret": name})

    def update_secret(self, name: str, value: str) -> Response:
        """Change a secret."""
        self._secrets.update(name, check_secret(name, value))
        return Response.of(200, {"secret": name})

    def delete_secret(self, name: str) -> Response:
        """Forget a secret."""
        self._secrets.delete(name)
        return Response.of(200, {"secret": name})
