"""A shop with its state in a bucket, and repositories for its backups."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.deployed import Deployed
from tests.s3server import S3Server
from tests.selling import Shop
from umbel.runtime.recovery.check import check
from umbel.runtime.recovery.repository import Repository
from umbel.runtime.recovery.restore import restore


@pytest.fixture(autouse=True)
def bucket(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a bucket that can be reached."""
    monkeypatch.delenv("UMBEL_BUCKETS", raising=False)
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    for name in ("state", "backups"):
        (s3.folder / name).mkdir(exist_ok=True)
    return s3.folder / "state"


def new_url(folder: Path) -> str:
    """Return the URL of a store that is not there yet."""
    return f"s3://state/{uuid4().hex}?cache={folder / uuid4().hex}"


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(tmp_path, store_url=new_url(tmp_path))
    made.sell()
    made.flush()
    made.sell()
    yield made
    made.deployed.close()


@pytest.fixture(params=["bucket", pytest.param("folder", marks=pytest.mark.nightly)])
def repository(request: pytest.FixtureRequest, tmp_path: Path) -> Repository:
    """Return a repository of backups in a bucket of the same storage, or in a folder."""
    return Repository.at(f"s3://backups/{uuid4().hex}" if request.param == "bucket" else str(tmp_path / "backups"))


@pytest.fixture
def beside() -> Repository:
    """Return a repository in a bucket of the same storage."""
    return Repository.at(f"s3://backups/{uuid4().hex}")


@pytest.fixture
def streamed(tmp_path: Path) -> Repository:
    """Return a repository in a folder."""
    return Repository.at(str(tmp_path / "backups"))


def restored(repository: Repository, folder: Path, url: str | None, which: str | None = None) -> Deployed:
    restore(repository, folder, which, store_url=url)
    found = Deployed(folder, store_url=url)
    assert list(check(found.deployment)) == []
    return found
