"""`umbel run`, whole, as strangers see it: other pages, other names, other accounts' eyes; and as its own clients do."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import re
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.running_files import files_with, paths
from tests.scenarios.server import HOST, ServerProcess, free_port
from tests.unit.serving import flights
from umbel.client import Client
from umbel.errors import UmbelError

PATIENCE = 600.0
PLANTED = "pl4nted-s3cret-0f-the-store"
QUERY = {"inputs": ["Origin.origin"], "outputs": ["Origin"], "data": {"Origin.origin": ["JFK"]}}


def umbel(*arguments: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "umbel.cli.main", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the environment of an account of its own, as far as umbel is concerned."""
    state = str(tmp_path_factory.mktemp("state"))
    path = os.pathsep.join(filter(None, sys.path))
    plain = {name: value for name, value in os.environ.items() if not name.startswith("UMBEL_")}
    return {**plain, "XDG_STATE_HOME": state, "PYTHONPATH": path, "COLUMNS": "300"}


class Running:
    """`umbel run` with a password in the URL of its catalog."""

    def __init__(self, folder: Path, account: dict[str, str]) -> None:
        self.folder, self.port, self.account = folder, free_port(), account
        self.url, self.out = f"http://{HOST}:{self.port}", folder / "out.log"
        catalog = f"sqlite:///{folder / 'umbel' / 'catalog.db'}?password={PLANTED}"
        command = [sys.executable, "-m", "umbel.cli.main", "run", flights.__name__, "--dir", str(folder / "umbel")]
        with self.out.open("wb") as out:
            self.process = subprocess.Popen(
                [*command, "--port", str(self.port), "-w", "1"],
                env={**account, "UMBEL_CATALOG": catalog},
                stdout=out,
                stderr=out,
            )
        self.http = httpx.Client(base_url=self.url, timeout=60)
        self.arguments: set[str] = set()

    def wait_until_ready(self) -> None:
        """Wait, and note the arguments of every process that is there meanwhile."""
        deadline = time.monotonic() + PATIENCE
        while "curl -s" not in self.out.read_text():
            assert time.monotonic() < deadline, self.out.read_text()
            assert self.process.poll() is None, self.out.read_text()
            self.note_arguments()
            time.sleep(0.05)

    def note_arguments(self) -> None:
        head = psutil.Process(self.process.pid)
        for each in (head, *head.children(recursive=True)):
            try:
                self.arguments.add(" ".join(each.cmdline()))
            except psutil.Error:
                continue


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, account: dict[str, str]) -> Iterator[Running]:
    run = Running(tmp_path_factory.mktemp("run"), account)
    try:
        run.wait_until_ready()
        yield run
    finally:
        run.http.close()
        run.process.send_signal(signal.SIGINT)
        run.process.wait(60)


@pytest.fixture
def same_account(account: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", account["XDG_STATE_HOME"])
    monkeypatch.delenv("UMBEL_TOKEN", raising=False)


def test_commands_and_clients_of_the_account_need_no_ceremony(running: Running, same_account: None) -> None:
    shown = umbel("commit", flights.__name__, "--url", running.url, "-m", "again", environment=running.account)
    assert "revision 1 is in force" in shown.stdout, shown.stderr
    with Client(f"http://localhost:{running.port}") as client:
        assert client.add_secret("word", PLANTED).ok
        assert client.init_branch("dev").ok
        assert client.delete_branch("dev").ok
    shown = umbel(
        "query", "Origin.departures", "-i", "Origin.origin=JFK", "--url", running.url, environment=running.account
    )
    assert "Origin.departures" in shown.stdout, shown.stderr
    report = umbel("audit", "--dir", str(running.folder / "umbel"), environment=running.account).stdout
    assert re.search(r"token local .*127\.0\.0\.1\tsecret add\tword", report), report
    assert "commit\tumbel run" in report


def test_others_on_this_machine_can_read_and_log_and_no_more(running: Running) -> None:
    assert running.http.post("/api/v1/query", json=QUERY).status_code == 200
    log = {"webhook": "events", "endpoint": "departures", "data": []}
    assert running.http.post("/api/v1/log", json=log).status_code == 200
    kind = {"Content-Type": "application/x-protobuf"}
    assert running.http.post("/api/v1/commit?preview=true", content=b"x", headers=kind).status_code == 401
    assert running.http.post("/api/v1/secret/word2", json={"value": "v"}).status_code == 401
    assert running.http.get("/api/v1/secret/word").status_code == 405
    assert running.http.post("/api/v1/delete", json={"branch": "main"}).status_code == 401
    assert running.http.post("/api/v1/dataset/Plane/erase", json={"erase_keys": []}).status_code == 401


def test_pages_of_other_sites_and_other_names_are_refused(running: Running) -> None:
    form = {"Content-Type": "text/plain", "Origin": "https://evil.example"}
    for path in ("/api/v1/log", "/api/v1/commit", "/api/v1/query"):
        assert running.http.post(path, content=b"{}", headers=form).status_code == 403
        assert running.http.post(path, content=b"{}", headers={"Content-Type": "text/plain"}).status_code == 415
        assert running.http.options(path, headers={"Origin": "https://evil.example"}).status_code == 405
    rebound = {"Host": f"evil.example:{running.port}"}
    assert running.http.post("/api/v1/query", json=QUERY, headers=rebound).status_code == 403
    assert running.http.get("/api/v1/commit", headers=rebound).status_code == 403
    raw = ServerProcess.raw
    for head in (b"GET /api/v1/lineage HTTP/1.1\r\n\r\n", b"GET /healthz HTTP/1.0\r\n\r\n"):
        assert raw(running, head).split(b"\r\n")[0].split(b" ")[1] == b"400"  # type: ignore[arg-type]
    twice = b"GET /api/v1/lineage HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n"
    assert b" 400 " in raw(running, twice).split(b"\r\n")[0]  # type: ignore[arg-type]


def test_roles_are_enforced_and_revoked(running: Running) -> None:
    place = ["--dir", str(running.folder / "umbel")]
    made = umbel("token", "create", "board", "--role", "reader", *place, environment=running.account)
    token = made.stdout.strip()
    with Client(running.url, token) as client:
        assert client.list_branches() == ["main"]
        with pytest.raises(UmbelError, match="403: token 'board' has the role reader, and this needs admin"):
            client.add_secret("mine", "v")
    listed = umbel("token", "list", *place, environment=running.account).stdout
    assert re.search(r"board +reader", listed)
    assert token not in listed
    assert umbel("token", "revoke", "board", *place, environment=running.account).returncode == 0
    deadline = time.monotonic() + 20
    proof = {"Authorization": f"Bearer {token}"}
    while running.http.get("/api/v1/lineage", headers=proof).status_code != 401:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    again = umbel("token", "revoke", "boar", *place, environment=running.account)
    assert (again.returncode, "no valid token" in again.stderr) == (2, True)
    assert umbel("token", "create", "x", "--role", "root", *place, environment=running.account).returncode == 2


def test_planted_passwords_are_found_nowhere(running: Running) -> None:
    running.note_arguments()
    assert len(running.arguments) >= 3  # the supervisor, the server, the worker, and its JVM
    assert [each for each in running.arguments if PLANTED in each] == []
    assert PLANTED not in running.out.read_text(errors="replace")
    assert files_with(PLANTED, running.folder / "umbel" / "logs") == []
    answers = [
        running.http.get("/api/v1/nothing"),
        running.http.get("/api/v1/dataset/Nothing/inspect"),
        running.http.get("/readyz"),
        running.http.get("/api/v1/metrics"),
        running.http.post("/api/v1/query_offline", json={**QUERY, "timestamp_column": "at", "input": {"bucket": "."}}),
    ]
    for answer in answers:
        assert PLANTED not in answer.text
        assert str(running.folder) not in answer.text


def test_the_folder_is_for_its_own_account(running: Running) -> None:
    loose = []
    for path in paths(running.folder / "umbel"):
        with contextlib.suppress(FileNotFoundError):  # the worker renames and deletes files meanwhile
            loose += [path] if not path.is_symlink() and path.stat().st_mode & 0o077 else []
    assert loose == []
    assert (running.folder / "umbel").stat().st_mode & 0o777 == 0o700


def test_passwords_in_arguments_are_refused(account: dict[str, str], tmp_path: Path) -> None:
    url = f"postgresql+psycopg://me:{PLANTED}@{HOST}:1/db"
    refused = umbel("serve", "--dir", str(tmp_path / "u"), "--catalog", url, environment=account)
    assert refused.returncode == 2
    assert "UMBEL_CATALOG" in refused.stderr
    assert PLANTED not in refused.stderr + refused.stdout
    failed = umbel("serve", "--dir", str(tmp_path / "u"), environment={**account, "UMBEL_CATALOG": url})
    assert failed.returncode != 0
    assert PLANTED not in failed.stderr + failed.stdout


def test_other_machines_are_let_in_only_with_tokens_and_encryption(account: dict[str, str], tmp_path: Path) -> None:
    place = ["--dir", str(tmp_path / "umbel")]
    port = free_port()
    open_to_all = ["serve", *place, "--host", "0.0.0.0", "--port", str(port)]
    for options, words in (([], "--tls-cert"), (["--behind-proxy"], "umbel token create")):
        refused = umbel(*open_to_all, *options, environment=account)
        assert (refused.returncode, words in refused.stderr) == (2, True), refused.stderr
    token = umbel("token", "create", "reader", "--role", "reader", *place, environment=account).stdout.strip()
    assert umbel(*open_to_all, environment=account).returncode == 2
    cert, key = certificate(tmp_path)
    server = subprocess.Popen(
        [sys.executable, "-m", "umbel.cli.main", *open_to_all, "--tls-cert", str(cert), "--tls-key", str(key)],
        env=account,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        trusted = ssl.create_default_context(cafile=str(cert))
        with httpx.Client(base_url=f"https://localhost:{port}", verify=trusted, timeout=30) as http:
            deadline = time.monotonic() + 120
            while True:
                try:
                    assert http.get("/readyz").status_code == 200
                    break
                except httpx.TransportError:
                    assert time.monotonic() < deadline
                    assert server.poll() is None
                    time.sleep(0.05)
            assert http.get("/api/v1/lineage").status_code == 401
            assert http.get("/api/v1/metrics").status_code == 401
            proof = {"Authorization": f"Bearer {token}"}
            assert http.get("/api/v1/lineage", headers=proof).status_code == 200
            assert http.post("/api/v1/init", json={"branch": "x"}, headers=proof).status_code == 403
    finally:
        server.terminate()
        server.wait(60)


def certificate(folder: Path) -> tuple[Path, Path]:
    """Return the files of a certificate for localhost and of its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    cert_file, key_file = folder / "cert.pem", folder / "key.pem"
    cert_file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    key_file.write_bytes(key.private_bytes(encoding, form, serialization.NoEncryption()))
    return cert_file, key_file
