"""A server that speaks the protocol of S3, in a process of its own over a temporary folder."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.jars import fetched, java
from tests.scenarios.server import HOST, free_port

KEY, SECRET = "tests", "only-for-tests"
PATIENCE = 240.0
LOGGING = '<configuration><root level="WARN"/></configuration>'
SETTINGS = """
s3proxy.authorization=aws-v2-or-v4
s3proxy.ignore-unknown-headers=true
s3proxy.endpoint={url}
s3proxy.identity={key}
s3proxy.credential={secret}
jclouds.provider=filesystem-nio2
jclouds.filesystem.basedir={folder}
"""


@dataclass
class S3Server:
    """A server that can be killed and started again.

    Args:
        url: where it listens.
        folder: its buckets, as folders.
        command: starts it.
        log: its output.
    """

    url: str
    folder: Path
    command: list[str]
    log: Path
    _process: subprocess.Popen[bytes] | None = None

    def bucket(self, name: str) -> Path:
        """Make a bucket; return its folder."""
        made = self.folder / name
        made.mkdir()
        return made

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which clients find it."""
        keys = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}
        return {"AWS_ENDPOINT_URL": self.url, "AWS_REGION": "us-east-1", **keys}

    def start(self) -> None:
        """Start it, and wait until it answers."""
        with self.log.open("ab") as said:
            self._process = subprocess.Popen(self.command, stdout=said, stderr=said)
        _wait(self._process, self.url, self.log)

    def kill(self) -> None:
        """Kill it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        """Stop it."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self.kill()


@contextmanager
def running(folder: Path) -> Iterator[S3Server]:
    """Run a server for the length of a block."""
    jars = fetched(Path(__file__).with_name("s3server.xml"))
    url, data = f"http://{HOST}:{free_port()}", folder / "buckets"
    data.mkdir()
    settings, quiet = folder / "s3proxy.conf", folder / "logback.xml"
    settings.write_text(SETTINGS.format(url=url, key=KEY, secret=SECRET, folder=data))
    quiet.write_text(LOGGING)
    quick = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    command = [
        java(),
        "-Xmx256m",
        *quick,
        f"-Dlogback.configurationFile={quiet}",
        "-cp",
        f"{jars}/*",
        "org.gaul.s3proxy.Main",
    ]
    server = S3Server(url, data, [*command, "--properties", str(settings)], folder / "s3proxy.log")
    try:
        server.start()
        yield server
    finally:
        server.stop()


def _wait(process: subprocess.Popen[bytes], url: str, said: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while process.poll() is None and time.monotonic() < deadline:
        try:
            httpx.get(url)
        except httpx.TransportError:
            time.sleep(0.1)
        else:
            return
    raise OSError(f"the S3 server does not answer:\n{said.read_text()[-3000:]}")


def started_or_skipped(folder: Path) -> Iterator[S3Server]:
    """Yield a running server; where there can be none, fail in CI, and elsewhere skip."""
    server = running(folder)
    try:
        found = server.__enter__()
    except (OSError, subprocess.SubprocessError) as error:
        report = f"NOT TESTED against S3, its server cannot be started: {error}\nremedy: let this machine reach a Maven server"
        if os.environ.get("CI") == "true":
            pytest.fail(report)
        pytest.skip(report)
    try:
        yield found
    finally:
        server.__exit__(None, None, None)
