"""Extractors that do what they should not, for the row that says so."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

import pandas as pd

from tests.misbehaving import acts, webhook
from umbel.connectors import source
from umbel.datasets import dataset, field
from umbel.featuresets import extractor, featureset
from umbel.lib import inputs, outputs

__owner__ = "tests@example.com"


@source(webhook.endpoint("people"), disorder="1d", cdc="upsert")
@dataset(index=True)
class Person:
    name: str = field(key=True)
    age: int
    at: datetime


@featureset
class Wild:
    what: str
    length: int

    @extractor
    @inputs("what")
    @outputs("length")
    def length_of(cls, ts: pd.Series, what: pd.Series):
        return acts(what).rename("length")


@featureset
class Tame:
    what: str
    size: int
    age: int
    ages: int

    @extractor
    @inputs("what")
    @outputs("size")
    def size_of(cls, ts: pd.Series, what: pd.Series):
        return what.str.len().astype("Int64").rename("size")

    @extractor(deps=[Person])
    @inputs("what")
    @outputs("age")
    def age_of(cls, ts: pd.Series, what: pd.Series):
        found, _ = Person.lookup(ts, name=what)
        return found["age"].fillna(-1).astype("Int64").rename("age")

    @extractor(deps=[Person])
    @inputs("what")
    @outputs("ages")
    def ages_of(cls, ts: pd.Series, what: pd.Series):
        def one(row: int) -> int:
            found, _ = Person.lookup(ts[[row]].reset_index(drop=True), name=what[[row]].reset_index(drop=True))
            return int(found["age"].fillna(-1)[0])

        with ThreadPoolExecutor(4) as pool:
            return pd.Series(list(pool.map(one, range(len(what)))), name="ages")


DATASETS, FEATURESETS = [Person], [Wild, Tame]
