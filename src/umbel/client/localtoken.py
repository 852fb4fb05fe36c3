"""The token of this account's local server, discovered by listening port.

`umbel run` writes the token to the file `token` in umbel's folder, and the location of that file to a file of the account's own.
Both are readable by this account only. The token is used only while the process that wrote it is alive, and sent only to the
address it listens on.
"""

from __future__ import annotations

import json
import os
import socket
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

FILE = "token"
LOOPBACK = ("localhost", "127.0.0.1", "::1")
PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class LocalServer:
    """A server run by this account on this machine.

    Args:
        url: the address it listens on.
        token_file: the path of the token file.
        process: the id of the process that created the token.
        machine: the host name, since a home folder may be shared by several machines.
    """

    url: str
    token_file: str
    process: int
    machine: str


def registry() -> Path:
    """Return the folder in which this account's servers are registered."""
    root = Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser()
    return root / "umbel" / "servers"


def publish(url: str, token: str, folder: Path) -> None:
    """Make a server's token available to clients of this account.

    Args:
        url: of the server, on the loopback address.
        token: its text.
        folder: umbel's folder.
    """
    _write(folder / FILE, token)
    noted = registry()
    noted.mkdir(parents=True, exist_ok=True, mode=0o700)
    server = LocalServer(url, str((folder / FILE).absolute()), os.getpid(), socket.gethostname())
    _write(noted / f"{urlsplit(url).port}.json", json.dumps(asdict(server)))


def withdraw(url: str, folder: Path) -> None:
    """Withdraw the token, if this process published it."""
    entry = registry() / f"{urlsplit(url).port}.json"
    found = _read(entry)
    if found is not None and found.process == os.getpid():
        with suppress(OSError):
            entry.unlink(missing_ok=True)
            (folder / FILE).unlink(missing_ok=True)


def local_server(url: str) -> LocalServer | None:
    """Return this account's server for a URL, or None.

    None also if the server's process has ended.
    """
    try:
        parts = urlsplit(url)
        port = parts.port or PORTS.get(parts.scheme, 0)
    except ValueError:
        return None
    found = _read(registry() / f"{port}.json") if parts.hostname in LOOPBACK else None
    if found is None or found.machine != socket.gethostname() or not _lives(found.process):
        return None
    return found if urlsplit(found.url).scheme == parts.scheme else None


def token_of(server: LocalServer) -> str:
    """Return the token of a server, empty if its file is gone."""
    with suppress(OSError):
        return Path(server.token_file).read_text(encoding="utf-8")
    return ""


def _read(entry: Path) -> LocalServer | None:
    try:
        if entry.stat().st_uid != os.getuid():
            return None
        found = LocalServer(**json.loads(entry.read_bytes()))
        return replace(found, process=int(found.process))
    except (OSError, ValueError, TypeError):
        return None


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except OSError:
        return False
    return True


def _write(path: Path, text: str) -> None:
    """Write a private file atomically: concurrent readers see the old content."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(file, "w", encoding="utf-8") as target:
        target.write(text)
    draft.replace(path)
