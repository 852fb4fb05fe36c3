"""What a commit tells: new, changed, removed and unchanged, by what objects mean and not by how they are written."""

from __future__ import annotations

from pathlib import Path

import pytest

from umbel.cli.loading import definitions
from umbel.definitions.records import AliasExtractor, Definitions, FeatureDefinition, FeaturesetDefinition
from umbel.errors import InvalidValue
from umbel.runtime.commit import commit
from umbel.runtime.deployment import Deployment
from umbel.types.dtypes import Int

WRITTEN = """
from datetime import datetime

import pandas as pd

from umbel.connectors import Webhook, source
from umbel.datasets import Count, dataset, field, index, pipeline
from umbel.dtypes import Continuous
from umbel.featuresets import extractor, feature as F, featureset
from umbel.lib import inputs, outputs

__owner__ = "tests@example.com"


@source(Webhook(name="web").endpoint("visits"), disorder="1d", cdc="append")
@dataset
class Visit:
    # who came
    user: int
    at: datetime


@index
@dataset
class Visits:
    user: int = field(key=True)
    visits: int
    at: datetime

    @pipeline
    @inputs(Visit)
    def counted(cls, rows):
        return rows.filter(lambda df: df["user"] > 0).groupby("user").aggregate(visits=Count(window=Continuous("1h")))


@featureset
class User:
    user: int
    visits: int = F(Visits.visits, default=0)
    often: bool

    @extractor
    @inputs("visits")
    @outputs("often")
    def much(cls, ts, visits):
        return pd.Series(visits > 3, name="often")
"""
CHANGES = {
    "a comment": (WRITTEN.replace("    @pipeline", "    # every visit is counted\n\n    @pipeline"), []),
    "a comment in a function": (
        WRITTEN.replace("        return rows", "        # of real users\n        return rows"),
        [],
    ),
    "a comment in an extractor": (WRITTEN.replace("        return pd", "        # > 3\n        return pd"), []),
    "a description": (WRITTEN.replace("# who came", "# the visitor"), []),
    "lines before it": ("\n" * 7 + WRITTEN, []),
    "a source": (WRITTEN.replace('disorder="1d"', 'disorder="2d"'), ["Visit"]),
    "an owner": (WRITTEN.replace("tests@", "others@"), ["User", "Visit", "Visits"]),
    "tags": (
        WRITTEN.replace("user: int = field(key=True)", "user: int = field(key=True).meta(tags=['id'])"),
        ["Visits"],
    ),
    "an index": (WRITTEN.replace("@index\n", "@index(online=False)\n"), ["Visits"]),
    "a default": (WRITTEN.replace("default=0", "default=1"), ["User"]),
    "an extractor": (WRITTEN.replace("visits > 3", "visits > 4"), ["User"]),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_preview_lists_what_differs_in_meaning(change: str, tmp_path: Path) -> None:
    place = Deployment.at(tmp_path / "umbel", shards=1)
    for number, text in enumerate(
        [WRITTEN, WRITTEN, CHANGES[change][0]]
    ):  # each in a file of its own: other lines, other paths
        file = tmp_path / f"shop_{abs(hash(change))}_{number}.py"
        file.write_text(text)
        report = commit(place, definitions(str(file)), preview=number > 0)
        assert report["changed"] == ([] if number < 2 else CHANGES[change][1]), number
        assert sorted([*report["changed"], *report["unchanged"]]) == (
            [] if number == 0 else ["User", "Visit", "Visits"]
        )


def test_a_source_with_expressions_is_committed_again(tmp_path: Path) -> None:
    """Whether the source differs is compared, and `==` of two expressions is an expression."""
    made = 'preproc={"user": eval(col("name").str.len(), schema={"name": str})}, where=eval(col("ok"), schema={"ok": bool})'
    text = WRITTEN.replace('cdc="append"', f'cdc="append", {made}').replace(
        "import Webhook, source", "import Webhook, eval, source\nfrom umbel.expr import col"
    )
    place = Deployment.at(tmp_path / "umbel", shards=1)
    for number, (each, changed) in enumerate([(text, []), (text, []), (text.replace("len()", "len() + 1"), ["Visit"])]):
        file = tmp_path / f"measured_{number}.py"
        file.write_text(each)
        assert commit(place, definitions(str(file)))["changed"] == changed


def test_a_description_is_committed_though_it_changes_nothing(tmp_path: Path) -> None:
    place = Deployment.at(tmp_path / "umbel", shards=1)
    for number, text in enumerate([WRITTEN, CHANGES["a description"][0]], 1):
        file = tmp_path / f"described_{number}.py"
        file.write_text(text)
        assert commit(place, definitions(str(file)))["revision"] == number
    (found,) = {each.description for each in place.branch("main").datasets["Visit"].field_meta.values()} - {""}
    assert found == "the visitor"


def test_a_server_checks_dependencies_itself(tmp_path: Path) -> None:
    """Two incremental commits at once are each checked against what was there before both."""
    place = Deployment.at(tmp_path / "umbel", shards=1)
    (file := tmp_path / "checked.py").write_text(WRITTEN)
    whole = definitions(str(file))
    features = {name: FeatureDefinition(name=name, featureset="Round", dtype=Int()) for name in "ab"}
    extractors = tuple(
        AliasExtractor(name=name, featureset="Round", inputs=(f"Round.{of}",), outputs=(f"Round.{name}",))
        for name, of in ("ab", "ba")
    )
    circle = FeaturesetDefinition(name="Round", features=tuple(features.values()), extractors=extractors)
    for datasets, featuresets, text in (
        (
            {"Visits": whole.datasets["Visits"]},
            {},
            "dataset 'Visit' is an input of pipeline 'Visits.counted', and is not",
        ),
        (whole.datasets, {"Round": circle}, "features depend on each other in a circle"),
    ):
        with pytest.raises(InvalidValue, match=text):
            commit(place, Definitions(datasets, featuresets))
    assert place.catalog.head("main") == 0
