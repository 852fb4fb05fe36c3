"""State of umbel 0.1: refused, and computed anew in the way the error says."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.deployed import Deployed
from umbel.cli.main import app
from umbel.connectors import Webhook, source
from umbel.datasets import dataset, field, pipeline
from umbel.lib import inputs
from umbel.runtime.batch import drain
from umbel.state.port import OldState

__owner__ = "test@umbel.dev"

NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)


@source(Webhook(name="web").endpoint("A"), disorder="1h", cdc="append")
@dataset
class Pair:
    k: int
    a: int
    b: int
    t: datetime


@dataset(index=True)
class Newest:
    b: int
    a: int
    k: int = field(key=True)
    t: datetime

    @pipeline
    @inputs(Pair)
    def newest(cls, pairs):
        return pairs.groupby("k").latest()


def test_the_catalog_notes_the_store_once_it_has_state(tmp_path: Path) -> None:
    place = Deployed(tmp_path)
    place.deployment.note_store()
    assert place.deployment.noted_store is None
    place.commit([Pair, Newest])
    place.log("A", [{"k": 1, "a": 10, "b": 20, "t": NOON}])
    drain(place.deployment)
    place.deployment.note_store()
    identity = place.deployment.noted_store
    assert identity is not None
    assert identity == place.deployment.store.identity
    place.deployment.note_store()
    assert place.deployment.noted_store == identity
    place.close()


def test_it_is_refused_and_the_way_out_works(tmp_path: Path) -> None:
    place = Deployed(tmp_path)
    place.commit([Pair, Newest])
    place.log("A", [{"k": 1, "a": 10, "b": 20, "t": NOON}])
    drain(place.deployment)
    place.close()
    description = tmp_path / "store" / "store.json"
    description.write_text(json.dumps({**json.loads(description.read_text()), "format": 1}))

    old = Deployed(tmp_path)
    with pytest.raises(OldState, match=r"the store in .* was written in format 1 .* reads format 5") as refused:
        old.commit([Pair, Newest])
    with pytest.raises(OldState):
        old.lookup("Newest", [{"k": 1}], [NOON])
    shown = CliRunner().invoke(app, ["up", "--dir", str(tmp_path)])
    assert isinstance(shown.exception, OldState)
    assert "move everything but the folder 'ingest' out of umbel's folder and commit again" in str(refused.value)
    old.deployment.catalog.close()

    for found in tmp_path.iterdir():
        if found.name != "ingest":
            shutil.rmtree(found) if found.is_dir() else found.unlink()
    fresh = Deployed(tmp_path)
    fresh.commit([Pair, Newest])
    drain(fresh.deployment)
    (row,) = fresh.lookup("Newest", [{"k": 1}], [NOON])
    assert (row["a"], row["b"], list(row)) == (10, 20, ["b", "a", "k", "t"])
    fresh.close()
