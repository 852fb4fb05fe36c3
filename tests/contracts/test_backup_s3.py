"""Backups in a bucket of a real S3 server, by the command line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.deployed import Deployed
from tests.s3server import S3Server
from tests.sales import check_all
from tests.selling import Shop
from tests.unit.cli.conftest import Umbel, umbel
from umbel.errors import InvalidValue
from umbel.runtime.recovery.repository import Repository

__all__ = ["umbel"]


@pytest.fixture
def url(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.delenv("UMBEL_BUCKETS", raising=False)
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    bucket = f"backups-{tmp_path.name.replace('_', '-').lower()}"[:60]
    s3.bucket(bucket)
    return f"s3://{bucket}/of/umbel"


def test_a_bucket_has_backups(url: str, umbel: Umbel, s3: S3Server, tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    where = ("--dir", str(tmp_path / "umbel"))
    for _ in range(2):
        shop.sell()
        shop.flush()
        made = umbel("backup", url, *where)
        assert made.exit_code == 0, made.output
    assert int(made.output.split("written: ")[1].split(" bytes")[0].replace(",", "")) < 400_000
    listed = umbel("backup", url, "--list").output.splitlines()
    assert [line.split("_")[0] for line in listed] == ["000001", "000002"]
    assert umbel("backup", url, *where, "--keep", "1").exit_code == 0
    assert umbel("backup", url, "--verify").output.startswith("backup 000003_")
    restored = umbel("restore", url, "--dir", str(tmp_path / "elsewhere"))
    assert restored.exit_code == 0, restored.output
    found = Deployed(tmp_path / "elsewhere")
    check_all(found, shop.rows, shop.users)
    found.close()
    shop.deployed.close()
    for part in s3.folder.glob("backups-*/of/umbel/objects/*/*"):
        part.write_bytes(bytes(part.stat().st_size))
    refused = umbel("restore", url, "--dir", str(tmp_path / "again"))
    assert (refused.exit_code, (tmp_path / "again").exists()) == (1, False)


def test_an_object_that_may_not_be_read_is_not_called_missing(
    url: str, umbel: Umbel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(tmp_path)
    assert umbel("backup", url, "--dir", str(tmp_path / "umbel")).exit_code == 0
    shop.deployed.close()
    repository = Repository.at(url)
    found = repository.read_list(repository.chosen(None))
    gone = replace(next(found.parts), object="0" * 64)
    with pytest.raises(ValueError, match="is missing in the backup"):
        repository.read_part(gone)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a-wrong-one")
    with pytest.raises(InvalidValue, match=r"access is denied|the keys do not fit"):
        Repository.at(url).read_part(next(found.parts))


def test_a_missing_bucket_is_said(url: str, umbel: Umbel, tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    refused = umbel("backup", "s3://no-such-bucket/umbel", "--dir", str(tmp_path / "umbel"))
    assert refused.exit_code
    assert "no-such-bucket" in str(refused.exception)
    for command in (("restore", "--dir", str(tmp_path / "x")), ("backup", "--list")):
        other = umbel(command[0], "s3://no-such-bucket/umbel", *command[1:])
        assert other.exit_code
        assert "there is no such bucket" in str(other.exception)
    shop.deployed.close()
