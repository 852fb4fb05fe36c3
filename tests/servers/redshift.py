"""The protocol of Redshift in front of a real PostgreSQL: what Redshift's own client library sees of it.

A proxy that differs from PostgreSQL as Redshift does, by its documentation and its client library: TLS is required, logins are
by Redshift's own digest (which libpq does not have), further parameters at the start, the version that it reports, the numbers
of the types SUPER and VARBYTE, 1,000 rows at most of one FETCH (as of a cluster of one node), names in lower case even in
quotes, and a backslash in a literal that escapes. Statements are executed by PostgreSQL.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from tests.servers.certificates import write_certificate
from tests.servers.postgres import PASSWORD, USER, PostgresServer

HOST = "localhost"
CLUSTER = "shop.abc123xyz789.eu-west-1.redshift.amazonaws.com"
WORKGROUP = "shop.123456789012.eu-west-1.redshift-serverless.amazonaws.com"
"""The names that its certificate has; nothing resolves the last two."""
TLS, VERSION = 80877103, 196608
STATUS = {"server_version": "8.0.2", "client_encoding": "UNICODE", "integer_datetimes": "on", "DateStyle": "ISO, MDY"}
NUMBERS = {3802: 4000, 17: 6551}
"""The numbers of types in PostgreSQL, of jsonb and bytea, and those of SUPER and VARBYTE."""
PREPARED = (
    "CREATE DOMAIN super AS jsonb",
    "CREATE DOMAIN varbyte AS bytea",
    "CREATE FUNCTION from_varbyte(bytea, text) RETURNS text LANGUAGE sql IMMUTABLE STRICT AS 'SELECT encode($1, $2)'",
)
"""The statements that a database of PostgreSQL needs to have Redshift's names."""


class FakeRedshift:
    """A cluster of one node.

    Args:
        postgres: executes the statements.
        folder: of the certificate.
    """

    def __init__(self, postgres: PostgresServer, folder: Path) -> None:
        self.postgres, self.users = postgres, {USER: PASSWORD}
        """The passwords of the cluster's users; in PostgreSQL all of them are logged in with its own."""
        self.statements, self.starts = list[str](), list[dict[str, str]]()
        self.away = False
        self.breaks: Callable[[str], bool] = lambda _: False
        """Whether the connection breaks instead of a statement."""
        self.certificate, key = write_certificate(folder, HOST, CLUSTER, WORKGROUP)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(self.certificate, key)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self._open = set[socket.socket]()
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        """End it, with its connections."""
        self._socket.close()
        self.cut()

    def cut(self) -> None:
        """Break all connections."""
        for each in list(self._open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._socket.accept()
                if self.away:
                    client.close()
                    continue
                threading.Thread(target=self._answer, args=(client,), daemon=True).start()

    def _answer(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError, struct.error, EOFError):
            self._open.add(client)
            _, code = struct.unpack("!ii", _exactly(client, 8))
            if code != TLS:
                client.sendall(_error("28000", "SSL is required"))
                return
            client.sendall(b"S")
            _Session(self, self.context.wrap_socket(client, server_side=True)).run()
        self._open.discard(client)
        client.close()


class _Session:
    """One connection of a client.

    Args:
        cluster: that it is to.
        client: its socket.
    """

    def __init__(self, cluster: FakeRedshift, client: ssl.SSLSocket) -> None:
        self.cluster, self.client = cluster, client

    def run(self) -> None:
        """Log the client in, and hand messages on until one side ends."""
        size, version = struct.unpack("!ii", _exactly(self.client, 8))
        assert version == VERSION
        fields = _exactly(self.client, size - 8).rstrip(b"\0").decode().split("\0")
        start = dict(zip(fields[::2], fields[1::2], strict=True))
        self.cluster.starts.append(start)
        if not self._is_known(start["user"]):
            text = f'password authentication failed for user "{start["user"]}"'
            self.client.sendall(_error("28000", text))
            return
        login = {"user": start["user"], "password": self.cluster.users[start["user"]]}
        try:
            server = self.cluster.postgres.connect(
                start["database"], **login, sslmode="disable", application_name="umbel"
            )
        except psycopg.OperationalError as error:
            code = "3D000" if "does not exist" in str(error) else "XX000"
            self.client.sendall(_error(code, str(error).strip().rpartition("FATAL:")[2].strip()))
            return
        with server, socket.socket(fileno=os.dup(server.pgconn.socket)) as connection:
            self.client.sendall(_message(b"R", struct.pack("!i", 0)))
            for name, value in STATUS.items():
                self.client.sendall(_message(b"S", f"{name}\0{value}\0".encode()))
            self.client.sendall(_message(b"K", struct.pack("!ii", 1, 1)) + _message(b"Z", b"I"))
            connection.setblocking(True)
            back = threading.Thread(target=self._back, args=(connection,), daemon=True)
            back.start()
            with contextlib.suppress(OSError, EOFError):
                self._forth(connection)
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            back.join()

    def _is_known(self, user: str) -> bool:
        """Return whether the client knows the password, by Redshift's digest of it."""
        salt, nonce = secrets.token_bytes(16), secrets.token_bytes(16)
        request = struct.pack("!ii", 13, 0) + b"".join(struct.pack("!i", len(each)) + each for each in (salt, nonce))
        self.client.sendall(_message(b"R", request))
        kind, body = _received(self.client)
        assert kind == b"d", kind
        size = struct.unpack_from("!i", body)[0]
        digest, client_nonce = body[4 : 4 + size], body[8 + size :]
        inner = hashlib.sha256(self.cluster.users.get(user, secrets.token_hex()).encode() + salt).digest()
        return hashlib.sha256(inner + nonce + client_nonce).digest() == digest

    def _forth(self, server: socket.socket) -> None:
        while True:
            kind, body = _received(self.client)
            if kind == b"P":
                name, statement, rest = body.split(b"\0", 2)
                text = statement.decode()
                self.cluster.statements.append(text)
                if self.cluster.breaks(text):
                    raise EOFError
                body = b"\0".join((name, rewritten(text).encode(), rest))
            server.sendall(_message(kind, body))

    def _back(self, server: socket.socket) -> None:
        with contextlib.suppress(OSError, EOFError):
            while True:
                kind, body = _received(server)
                self.client.sendall(_message(kind, _renumbered(body) if kind == b"T" else body))
        with contextlib.suppress(OSError):
            self.client.shutdown(socket.SHUT_RDWR)


def rewritten(statement: str) -> str:
    """Return a statement for PostgreSQL that does there what it does in Redshift."""
    found = re.fullmatch(r"FETCH FORWARD (\d+) FROM \w+", statement)
    if found and int(found[1]) > 1000:
        text = f"Fetch size {found[1]} exceeds the limit of 1000 for a single node configuration."
        return f"DO $$ BEGIN RAISE EXCEPTION '{text}'; END $$"

    def token(match: re.Match[str]) -> str:
        if match[0][0] == '"':
            return match[0].lower()
        return f" E{match[0]}" if "\\" in match[0] else match[0]

    return re.sub(r"""'(?:[^']|'')*'|"(?:[^"]|"")*\"""", token, statement)


def _renumbered(body: bytes) -> bytes:
    """Return the description of a result with Redshift's numbers of types."""
    made, at = bytearray(body), 2
    for _ in range(struct.unpack_from("!h", body)[0]):
        at = body.index(b"\0", at) + 7
        number = struct.unpack_from("!i", body, at)[0]
        struct.pack_into("!i", made, at, NUMBERS.get(number, number))
        at += 12
    return bytes(made)


def _message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!i", len(body) + 4) + body


def _error(state: str, text: str) -> bytes:
    fields = {"S": "FATAL", "C": state, "M": text}
    return _message(b"E", b"".join(f"{name}{value}\0".encode() for name, value in fields.items()) + b"\0")


def _received(connection: socket.socket) -> tuple[bytes, bytes]:
    head = _exactly(connection, 5)
    return head[:1], _exactly(connection, struct.unpack("!i", head[1:])[0] - 4)


def _exactly(connection: socket.socket, size: int) -> bytes:
    found = bytearray()
    while len(found) < size:
        piece = connection.recv(size - len(found))
        if not piece:
            raise EOFError
        found += piece
    return bytes(found)


@contextmanager
def running(postgres: PostgresServer, folder: Path) -> Iterator[FakeRedshift]:
    """Run a cluster for the length of a block."""
    cluster = FakeRedshift(postgres, folder)
    try:
        yield cluster
    finally:
        cluster.close()
