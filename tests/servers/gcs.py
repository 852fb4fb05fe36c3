"""A server that speaks the protocol of Google Cloud Storage, as far as reading needs it: fake-gcs-server."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.scenarios.server import HOST, free_port
from tests.servers.missing import missing

PROGRAM = "fake-gcs-server"
REMEDY = "go install github.com/fsouza/fake-gcs-server@latest"
PATIENCE = 120.0


@dataclass(frozen=True)
class GcsServer:
    """A running server.

    Args:
        url: where it listens.
    """

    url: str

    @property
    def key(self) -> str:
        """The key of a service account that leads here."""
        names = {"client_email": "", "private_key": "", "private_key_id": ""}
        return json.dumps({"gcs_base_url": self.url, "disable_oauth": True, **names})

    def bucket(self, name: str) -> None:
        """Make a bucket."""
        httpx.post(f"{self.url}/storage/v1/b", json={"name": name}).raise_for_status()

    def put(self, bucket: str, name: str, content: bytes) -> None:
        """Write an object."""
        query = {"uploadType": "media", "name": name}
        httpx.post(f"{self.url}/upload/storage/v1/b/{bucket}/o", params=query, content=content).raise_for_status()

    def put_compressed(self, bucket: str, name: str, content: bytes) -> None:
        """Write an object with `Content-Encoding: gzip`, as `gsutil cp -Z` does."""
        facts = json.dumps({"name": name, "contentEncoding": "gzip"}).encode()
        packed = gzip.compress(content)
        parts = [b"Content-Type: application/json\r\n\r\n" + facts, b"Content-Type: text/plain\r\n\r\n" + packed]
        body = b"".join(b"--part\r\n" + part + b"\r\n" for part in parts) + b"--part--\r\n"
        headers = {"Content-Type": "multipart/related; boundary=part"}
        url = f"{self.url}/upload/storage/v1/b/{bucket}/o"
        httpx.post(url, params={"uploadType": "multipart"}, content=body, headers=headers).raise_for_status()


def started_or_missing(folder: Path) -> Iterator[GcsServer]:
    """Yield a running server; where there can be none, fail in CI, and elsewhere skip."""
    program = shutil.which(PROGRAM) or shutil.which(PROGRAM, path=str(Path.home() / "go" / "bin"))
    if program is None:
        missing(PROGRAM, "it is not installed", REMEDY)
    port = free_port()
    options = ["-scheme", "http", "-host", HOST, "-port", str(port), "-backend", "memory", "-log-level", "warn"]
    url = f"http://{HOST}:{port}"
    with (folder / "gcs.log").open("wb") as log:
        process = subprocess.Popen(
            [str(program), *options, "-public-host", f"{HOST}:{port}"], stdout=log, stderr=log, cwd=folder
        )
    try:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                httpx.get(f"{url}/storage/v1/b")
                break
            except httpx.TransportError:
                assert time.monotonic() < deadline, (folder / "gcs.log").read_text()
                time.sleep(0.05)
        yield GcsServer(url)
    finally:
        process.kill()
        process.wait()
