"""A deployment with people, one of whom is erased, and a search for the bytes in all of its files."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Optional

import polars as pl
import pyarrow as pa
import pytest

from tests.deployed import Deployed
from umbel.catalog.purges import Purges
from umbel.connectors import Webhook, source
from umbel.datasets import Count, dataset, field, pipeline
from umbel.dtypes import Continuous
from umbel.lib import inputs
from umbel.query.lookups import Lookups
from umbel.runtime.batch import drain
from umbel.runtime.erasures import erase
from umbel.runtime.history import replayed
from umbel.runtime.recovery.check import check
from umbel.state.runs.maintenance import maintain

__owner__ = "tests@example.com"
START = datetime(2024, 1, 1, tzinfo=UTC)
web = Webhook(name="web")


@source(web.endpoint("people"), disorder="60d", cdc="upsert")
@dataset(index=True)
class People:
    email: str = field(key=True, erase_key=True)
    region: str = field(key=True)
    name: Optional[str]
    t: datetime


@dataset(index=True)
class PerRegion:
    region: str = field(key=True)
    people: int
    t: datetime

    @pipeline
    @inputs(People)
    def count(cls, people: Any) -> Any:
        return people.groupby("region").aggregate(people=Count(window=Continuous("forever")))


GONE = "wünsche-alice@example.com"
"""A key with text beyond ASCII; others begin with it, or have it as a value."""
PREFIXED = f"{GONE}.au"
SECRET = "Alice Liddell-Geheim"
BOB = "bob@example.com"


def person(email: str, minute: int, name: str | None = "nobody", region: str = "eu") -> dict[str, Any]:
    return {"email": email, "region": region, "name": name, "t": (START + timedelta(minutes=minute)).isoformat()}


class Town:
    """A deployment with people, in all of its places."""

    def __init__(self, folder: Path, *, is_new: bool = False, **settings: Any) -> None:
        self.folder, self._settings = folder, settings
        self.deployed = Deployed(folder, **settings)
        if is_new:
            self.deployed.commit([People, PerRegion])

    def fill(self) -> None:
        for wave in range(4):
            rows = [person(f"p{number}@example.com", wave, f"name {number}") for number in range(12)]
            rows += [person(GONE, wave, f"{SECRET} {wave}"), person(GONE, wave, SECRET, "us")]
            rows += [person(PREFIXED, wave, "prefixed"), person(BOB, wave, "bob")]
            self.deployed.log("people", rows)
            self.deployed.log("people", [{"email": GONE, "region": "eu", "name": SECRET, "t": "not a time"}])
            self.process()
            if wave == 2:
                self.flush()
                self.deployed.flush_logs()
        self.deployed.log_bytes("people", b'[{"email": "%b", broken' % GONE.encode(), 1)
        self.process()

    def flush(self) -> None:
        for shard in self.deployed.deployment.store._shards:  # type: ignore[attr-defined]
            maintain(shard, flush_bytes=1)

    def process(self) -> None:
        drain(self.deployed.deployment)

    def reopen(self) -> None:
        self.deployed.close()
        self.deployed = Deployed(self.folder, **self._settings)

    def erase(self, *emails: str) -> int:
        keys = {"email": pl.Series(list(emails))}
        revision = erase(self.deployed.deployment, "main", "People", keys)
        Purges(self.deployed.deployment.catalog).request(revision)
        return revision

    def online(self) -> list[Any]:
        emails = [f"p{number}@example.com" for number in range(12)] + [PREFIXED, BOB]
        keys = [{"email": each, "region": "eu"} for each in emails]
        at = START + timedelta(days=30)
        return self.deployed.lookup("People", keys, [at] * len(keys)) + self.deployed.lookup(
            "PerRegion", [{"region": "eu"}, {"region": "us"}], [at] * 2
        )

    def offline(self) -> list[Any]:
        place = self.deployed.deployment
        graph = place.graph(place.catalog.revision())
        lookups = Lookups(graph, place.store, partial(replayed, place))
        emails = [f"p{number}@example.com" for number in range(12)] + [PREFIXED, BOB]
        keys = pl.DataFrame({"email": emails, "region": ["eu"] * len(emails)})
        at = pl.Series([START + timedelta(minutes=3)] * len(emails), dtype=pl.Datetime("us", "UTC"))
        frame, found = lookups.offline("People", keys, at)
        return [*frame.to_dicts(), *found.to_list()]

    def progress(self) -> Any:
        return Purges(self.deployed.deployment.catalog).progress


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A town with rows, to be copied."""
    made = Town(tmp_path_factory.mktemp("filled") / "umbel", is_new=True)
    made.fill()
    made.deployed.close()
    return made.folder


@pytest.fixture
def town(filled: Path, tmp_path: Path) -> Iterator[Town]:
    """A copy of the town, for one test."""
    shutil.copytree(filled, tmp_path / "umbel")
    made = Town(tmp_path / "umbel")
    yield made
    made.deployed.close()


def contents(path: Path) -> Iterator[bytes]:
    """Yield what is in a file: its bytes, and those of what is compressed in it."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:  # a running worker has deleted or renamed it
        return
    yield data
    if path.suffix == ".parquet":
        yield repr(pl.read_parquet(path, hive_partitioning=False).to_dicts()).encode()
    at = data.find(b"\xff\xff\xff\xff") if path.suffix in (".log", ".arrow", ".rows") else -1
    while at >= 0:
        with suppress(pa.ArrowInvalid, OSError):  # Arrow streams and files, as journals and tails have them
            yield repr(pa.ipc.open_stream(pa.py_buffer(data[at:])).read_all().to_pylist()).encode()
        at = data.find(b"\xff\xff\xff\xff", at + 4)


def where(folder: Path, text: str) -> list[str]:
    """Return the files in which a text is, in any encoding that umbel writes."""
    needles = [text.encode(), text.encode("unicode_escape"), repr(text)[1:-1].encode(), text.encode("utf-16-le")]
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return [
        path.relative_to(folder).as_posix()
        for path in paths
        if any(needle in content.replace(PREFIXED.encode(), b"") for content in contents(path) for needle in needles)
    ]


def damage(town: Town) -> list[str]:
    return [found.text for found in check(town.deployed.deployment) if found.subject != "checkpoint"]
