"""The client's methods for branches and secrets."""

from __future__ import annotations

from umbel.client.caller import MAIN, Caller
from umbel.client.names import check_branch
from umbel.client.response import Response


class BranchMethods(Caller):
    """Branches and secrets of a server."""

    def init_branch(self, name: str) -> Response:
        """Make an empty branch and check it out."""
        return self._init(name, {"branch": name})

    def clone_branch(self, name: str, from_branch: str) -> Response:
        """Make a branch with the definitions and data of another, and check it out."""
        check_branch(from_branch)
        return self._init(name, {"branch": name, "clone_from": from_branch})

    def _init(self, name: str, body: dict[str, str]) -> Response:
        check_branch(name)
        answer = self._send("POST", "/api/v1/init", body=body)
        self._branch = name
        return answer

    def delete_branch(self, name: str) -> Response:
        """Delete a branch; main is checked out if it was the current one."""
        check_branch(name)
        answer = self._send("POST", "/api/v1/delete", body={"branch": name})
        self._schemas.forget()
        if self._branch == name:
            self._branch = MAIN
        return answer

    def list_branches(self) -> list[str]:
        """Return the names of all branches."""
        return list(self._send("GET", "/api/v1/branch/list").json()["branches"])

    def checkout(self, name: str, init: bool = False) -> None:
        """Let the calls that follow be about another branch.

        Args:
            name: of the branch; it may not exist yet.
            init: whether to make it if it does not exist.
        """
        check_branch(name)
        if init and name not in self.list_branches():
            self.init_branch(name)
        self._branch = name

    def branch(self) -> str:
        """Return the name of the branch calls are about."""
        return self._branch

    def get_secret(self, name: str) -> str:
        """Return a secret."""
        return str(self._send("GET", f"/api/v1/secret/{name}").json()["value"])

    def add_secret(self, name: str, value: str) -> Response:
        """Keep a secret under a new name."""
        return self._send("POST", f"/api/v1/secret/{name}", body={"value": value})

    def update_secret(self, name: str, value: str) -> Response:
        """Change a secret."""
        return self._send("PATCH", f"/api/v1/secret/{name}", body={"value": value})

    def delete_secret(self, name: str) -> Response:
        """Forget a secret."""
        return self._send("DELETE", f"/api/v1/secret/{name}")
