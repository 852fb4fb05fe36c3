"""A server of MongoDB's protocol: logins, a log of commands and faults, before a server that does the rest.

No `mongod` can be had from a registry of packages. The servers behind this one are other projects' implementations of the
protocol, which have no logins, or speak for an older version than the driver talks to. So logins (SCRAM-SHA-256) and the first
exchange are this module's; all other messages are handed on as they are, except that names of types which a server does not
know, and NaN, which it does not, are left out of filters: it cannot have such values.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import math
import secrets
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import bson

from tests.scenarios.server import HOST, free_port
from tests.servers.ferretdb import FerretDB
from tests.servers.missing import missing
from tests.servers.mongo_java import JavaServer

USER, PASSWORD = "reader", "hidden-4711"
_HEADER = struct.Struct("<iiii")
_QUERY, _REPLY, _MESSAGE = 2004, 1, 2013
_FREE = {"hello", "ismaster", "isMaster", "saslStart", "saslContinue", "endSessions", "ping", "buildInfo"}
_VERSIONS = {
    "isWritablePrimary": True,
    "ismaster": True,
    "maxBsonObjectSize": 16 << 20,
    "maxMessageSizeBytes": 48_000_000,
    "maxWriteBatchSize": 100_000,
    "minWireVersion": 0,
    "maxWireVersion": 21,
    "saslSupportedMechs": ["SCRAM-SHA-256"],
    "readOnly": False,
    "ok": 1.0,
}
Command = Mapping[str, Any]


class MongoServer:
    """A server that can be killed and started again.

    Args:
        behind: does what clients ask for.
    """

    def __init__(self, behind: Any) -> None:
        self.behind, self.port = behind, free_port()
        self.commands = list[Command]()
        """All commands of logged in clients, without those of the driver itself."""
        self.intercept: Callable[[Command], Command | None] = lambda _: None
        """Returns an answer to a command instead of the server's, an empty one to cut the connection; None for the server's."""
        self._listening: socket.socket | None = None
        self._open = set[socket.socket]()

    @property
    def host(self) -> str:
        """The address for clients."""
        return f"{HOST}:{self.port}"

    def start(self) -> None:
        """Start the server behind, and listen."""
        self.behind.start()
        self._listening = socket.create_server((HOST, self.port), backlog=64)
        threading.Thread(target=self._accept, args=(self._listening,), daemon=True).start()

    def kill(self) -> None:
        """Cut all connections, and kill the server behind."""
        listening, self._listening = self._listening, None
        if listening is not None:
            with contextlib.suppress(OSError):
                listening.shutdown(socket.SHUT_RDWR)
            listening.close()
        for each in list(self._open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self.behind.kill()

    def client(self) -> Any:
        """Return a client."""
        from pymongo import MongoClient

        return MongoClient(self.host, username=USER, password=PASSWORD, serverSelectionTimeoutMS=5000)

    def named(self, name: str) -> list[Command]:
        """Return the commands of a name."""
        return [each for each in self.commands if name in each]

    def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                client, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        login = _Login()
        self._open.add(client)
        with client, contextlib.suppress(OSError, EOFError):
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with socket.create_connection((HOST, self.behind.port), 10) as behind:
                self._open.add(behind)
                behind.settimeout(None)
                while True:
                    header, body = _receive(client)
                    self._answer(client, behind, login, header, body)
        self._open.discard(client)

    def _answer(
        self, client: socket.socket, behind: socket.socket, login: _Login, header: tuple[int, ...], body: bytes
    ) -> None:
        _, number, _, kind = header
        command = _command(kind, body)
        own = login.answer(command)
        if own is None:
            self.commands.append(command)
            own = self.intercept(command)
        if own is not None:
            if not own:
                raise EOFError
            client.sendall(_reply(kind, number, own))
            return
        behind.sendall(_HEADER.pack(16 + len(sent := self._known(body)), number, 0, kind) + sent)
        found, answer = _receive(behind)
        client.sendall(_HEADER.pack(*found) + answer)

    def _known(self, body: bytes) -> bytes:
        """Return a message without what the server behind does not know: names of types, and NaN."""
        size = int.from_bytes(body[5:9], "little")
        if b"$type" not in body[5 : 5 + size]:
            return body
        command = _without(bson.decode(body[5 : 5 + size]), self.behind.unknown)
        return body[:5] + bson.encode(command) + body[5 + size :]


def _without(value: Any, names: set[str]) -> Any:
    if isinstance(value, list):
        return [_without(each, names) for each in value if "NaN" not in names or not _has_nan(each)]
    if not isinstance(value, dict):
        return value
    return {
        name: [one for one in each if one not in names] if name == "$type" else _without(each, names)
        for name, each in value.items()
    }


def _has_nan(condition: Any) -> bool:
    return isinstance(condition, dict) and any(
        isinstance(each, float) and math.isnan(each) for each in condition.values()
    )


class _Login:
    """The state of a connection's login."""

    def __init__(self) -> None:
        self.is_done, self._first, self._nonce = False, "", ""
        self._salt = secrets.token_bytes(16)

    def answer(self, command: Command) -> Command | None:
        """Return the answer to what comes before a login, and to the login; None for other commands."""
        name = next(iter(command))
        if name in {"hello", "ismaster", "isMaster"}:
            return _VERSIONS
        if name == "saslStart":
            self._first = command["payload"].decode().removeprefix("n,,")
            self._nonce = dict(each.split("=", 1) for each in self._first.split(","))["r"] + secrets.token_hex(12)
            text = f"r={self._nonce},s={base64.b64encode(self._salt).decode()},i=4096"
            return {"conversationId": 1, "done": False, "payload": text.encode(), "ok": 1.0}
        if name == "saslContinue":
            return self._proven(command["payload"].decode())
        if self.is_done or name in _FREE:
            return {"ok": 1.0} if name in {"endSessions", "ping"} else None
        return {"ok": 0.0, "code": 13, "errmsg": f"Command {name} requires authentication"}

    def _proven(self, final: str) -> Command:
        salted = hashlib.pbkdf2_hmac("sha256", PASSWORD.encode(), self._salt, 4096)
        key = hmac.digest(salted, b"Client Key", "sha256")
        bare, _, proof = final.rpartition(",p=")
        server = f"r={self._nonce},s={base64.b64encode(self._salt).decode()},i=4096"
        auth = f"{self._first},{server},{bare}".encode()
        signed = hmac.digest(hashlib.sha256(key).digest(), auth, "sha256")
        expected = bytes(a ^ b for a, b in zip(key, signed, strict=True))
        if f"n={USER}," not in self._first or base64.b64decode(proof) != expected:
            return {"ok": 0.0, "code": 18, "codeName": "AuthenticationFailed", "errmsg": "Authentication failed."}
        self.is_done = True
        own = hmac.digest(hmac.digest(salted, b"Server Key", "sha256"), auth, "sha256")
        return {"conversationId": 1, "done": True, "payload": b"v=" + base64.b64encode(own), "ok": 1.0}


def _command(kind: int, body: bytes) -> Command:
    if kind == _MESSAGE:
        return bson.decode(body[5 : 5 + int.from_bytes(body[5:9], "little")])
    assert kind == _QUERY, kind
    start = body.index(b"\0", 4) + 9
    return bson.decode(body[start : start + int.from_bytes(body[start : start + 4], "little")])


def _reply(kind: int, number: int, answer: Command) -> bytes:
    content = bson.encode(answer)
    if kind == _QUERY:
        body, code = struct.pack("<iqii", 8, 0, 0, 1) + content, _REPLY
    else:
        body, code = struct.pack("<iB", 0, 0) + content, _MESSAGE
    return _HEADER.pack(16 + len(body), 1, number, code) + body


def _receive(connection: socket.socket) -> tuple[tuple[int, ...], bytes]:
    header = _HEADER.unpack(_exactly(connection, 16))
    return header, _exactly(connection, header[0] - 16)


def _exactly(connection: socket.socket, size: int) -> bytes:
    found = bytearray()
    while len(found) < size:
        data = connection.recv(min(size - len(found), 1 << 20))
        if not data:
            raise EOFError
        found += data
    return bytes(found)


@contextmanager
def running(behind: Any) -> Iterator[MongoServer]:
    """Run a server for the length of a block."""
    server = MongoServer(behind)
    try:
        server.start()
        yield server
    finally:
        server.kill()


def lasting_or_missing(folder: Path) -> Iterator[MongoServer]:
    """Yield a server whose data stay when it is killed; where there can be none, fail in CI, and elsewhere skip."""
    with running(FerretDB(folder)) as server:
        yield server


def typed_or_missing() -> Iterator[MongoServer]:
    """Yield a server in memory that knows all types; where there can be none, fail in CI, and elsewhere skip."""
    try:
        context = running(JavaServer())
        server = context.__enter__()
    except (OSError, ImportError) as error:
        missing("mongo-java-server", str(error), "let this machine reach a Maven server")
    try:
        yield server
    finally:
        context.__exit__(None, None, None)
