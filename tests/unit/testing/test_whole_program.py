"""A whole program as users of the reference write it: a bike rental, from its events to its features."""

from datetime import datetime, timedelta
from decimal import Decimal as PythonDecimal
from typing import Optional

import pandas as pd
import pytest

from umbel.connectors import HTTP, Certificate, Kafka, Webhook, eval, ref, sink, source
from umbel.datasets import Average, Count, Dataset, LastK, Max, Sum, dataset, field, index, pipeline
from umbel.dtypes import Continuous, Decimal, Tumbling, Window, between, struct
from umbel.expr import col, lit, when
from umbel.featuresets import extractor, featureset
from umbel.featuresets import feature as F
from umbel.integrations import Secret
from umbel.lib import bucketize, includes, inputs, meta, outputs
from umbel.testing import log, mock

__owner__ = "bikes@example.com"

with pytest.warns(UserWarning, match="legacy_region"):
    webhook = Webhook(name="bikes", legacy_region="eu")  # an argument of an older version
secret = Secret(arn="arn:aws:secretsmanager:x")
kafka = Kafka(name="out", bootstrap_servers="b:9092", security_protocol="PLAINTEXT", sasl_mechanism="PLAIN")
partner = HTTP(name="partner", host=secret["host"], healthz="/health", ca_cert=Certificate(secret["cert"]))


class Spot:
    """Where something is; no struct by decorator."""

    lat: float
    lon: float
    name: Optional[str]


@struct
class Bill:
    amount: Decimal[2]
    note: Optional[str]


@meta(tags=["master-data"])
@dataset(index=True)
@source(webhook.endpoint("Stations"), disorder="1d", cdc="native")
class Stations:
    # as painted on the post
    station: int = field(key=True)
    spot: Spot
    docks: between(int, 0, 100)
    updated: datetime


@source(webhook.endpoint("OldRides"), disorder="14d", cdc="append", env="archive")
@dataset
@meta(owner="rides@example.com")
@source(
    webhook.endpoint("Rides"),
    disorder="1d",
    cdc="append",
    preproc={"rider": ref("user_id"), "paid": eval(col("cents") / 100, schema={"cents": int})},
    where=eval(col("minutes") > 0),
    env="~archive",
)
class Rides:
    rider: int
    station: int
    minutes: int
    paid: float
    at: datetime


@index
@dataset
class Riders:
    """What each rider does."""

    rider: int = field(key=True)
    rides: int
    minutes: int
    longest: int
    mean: float
    recent: list[int]
    at: datetime

    WINDOW = Continuous("7d")

    @classmethod
    def long(cls, minutes):
        return minutes >= cls.shortest()

    @staticmethod
    def shortest():
        return 5

    @pipeline
    @inputs(Rides)
    def computed(cls, rides: Dataset):
        long = rides.filter(lambda df: cls.long(df["minutes"]))
        return long.groupby("rider").aggregate(
            rides=Count(window=cls.WINDOW),
            minutes=Sum(of="minutes", window=cls.WINDOW),
            longest=Max(of="minutes", default=0.0, window=Continuous("forever")),
            mean=Average(of="minutes", window=cls.WINDOW),
            recent=LastK(of="minutes", limit=2, dedup=False, window=Continuous("forever")),
        )


@dataset(index=True)
@sink(partner.path("busy"), cdc="debezium")
@sink(kafka.topic("busy"), cdc="debezium")
class Busy:
    station: int = field(key=True)
    window: Window = field(key=True)
    rides: int
    at: datetime

    @pipeline
    @inputs(Rides)
    def hourly(cls, rides: Dataset):
        return rides.groupby("station", window=Tumbling("1h")).aggregate(rides=Count())


@dataset(online=True)
class Named:
    rider: int = field(key=True)
    where: Optional[str]
    free: bool
    bill: Bill
    at: datetime

    @pipeline
    @inputs(Rides, Stations)
    def joined(cls, rides: Dataset, stations: Dataset):
        found = rides.join(stations, how="left", on=["station"], fields=["spot"])
        named = found.assign(
            where=col("spot").struct.get("name").astype(Optional[str]),
            free=(col("paid") == lit(0.0)).astype(bool),
            bill=Bill.expr(amount=col("paid"), note=when(col("paid") > 9).then("dear")).astype(Bill),
        )
        return named.select("rider", "where", "free", "bill").groupby("rider").latest()


def percent(x):
    return x * 100


@featureset
class Request:
    """Not committed: its features are inputs."""

    rider: int = F()
    stations: list[Optional[int]] = F()


@featureset
class Rider:
    rider: int = F(Request.rider)
    rides: int = F(Riders.rides, default=0)
    minutes: Optional[int] = F(Riders.minutes)
    where: str = F(Named.where, default="nowhere")
    busy: bool = F(col("rides") >= 2)


@featureset
class Nearby:
    station: list[Optional[int]] = F(Request.stations)
    docks: list[between(int, 0, 100)] = F(Stations.docks, default=0)


@featureset
class Shares:
    rider: int = F()
    share: float
    loyal: bool

    TOTAL = 4

    @classmethod
    def of_all(cls, rides):
        return rides / cls.TOTAL

    @extractor(deps=[Riders])
    @includes(percent)
    @inputs("rider")
    @outputs("share", "loyal")
    def compute(cls, ts, rider):
        rows, found = Riders.lookup(ts, rider=rider, fields=["rides"])
        share = percent(cls.of_all(rows["rides"].fillna(0).astype(float)))
        return pd.DataFrame({str(cls.share): share, str(cls.loyal): found.astype(bool)})

    @extractor(env="never")
    @inputs("rider", "share")
    @outputs("loyal")
    def unfinished(cls, ts, rider):
        return rider


NOON = datetime(2024, 5, 6, 12)
SPOT = {"lat": 52.5, "lon": 13.4, "name": "Zoo"}


def rides(*rows: tuple[int, int, int, int, object]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["user_id", "station", "minutes", "cents", "at"])


def fill(client) -> None:
    everything = [Stations, Rides, Riders, Busy, Named]
    client.commit(message="all", datasets=everything, featuresets=[Rider, Nearby, Shares], env="prod")
    stations = {"station": [7, 8], "spot": [SPOT, {**SPOT, "name": None}], "docks": [20, 0]}
    client.log("bikes", "Stations", pd.DataFrame({**stations, "updated": ["Mon, 06 May 2024 09:00 CEST"] * 2}))
    written = ["Mon, 06 May 2024 12:00:00 GMT", "Mon, 06 May 2024 05:30:00 PDT", "2024-05-06T13:10:00Z"]
    logged_rows = [(1, 7, 30, 250, written[0]), (1, 8, 4, 0, written[1]), (2, 7, 9, 1250, written[2])]
    client.log("bikes", "Rides", rides(*logged_rows, (3, 7, 0, 100, NOON)))


@mock
def test_datasets(client) -> None:
    fill(client)
    assert Riders.long(5)
    at = pd.Series([NOON - timedelta(hours=1), NOON, NOON + timedelta(days=8), NOON])
    rows, found = Riders.lookup(at, rider=pd.Series([1, 1, 1, 9]))
    assert found.tolist() == [False, True, True, False]
    assert rows["rides"].tolist() == [pd.NA, 1, 0, pd.NA]
    assert rows["longest"].tolist() == [0, 30, 30, 0]
    assert rows["recent"].tolist() == [pd.NA, [30], [30], pd.NA]
    hour = bucketize(NOON + timedelta(hours=1), "1h")
    rows, found = Busy.lookup(pd.Series([NOON + timedelta(hours=2)]), station=pd.Series([7]), window=pd.Series([hour]))
    assert (rows["rides"].tolist(), found.tolist()) == ([1], [True])
    rows, _ = Named.lookup(pd.Series([NOON + timedelta(days=1)] * 2), rider=pd.Series([1, 2]))
    assert rows["where"].tolist() == [pd.NA, "Zoo"]
    assert rows["free"].tolist() == [True, False]
    assert [each["note"] for each in rows["bill"]] == [pd.NA, "dear"]
    assert rows["bill"][1] == Bill(PythonDecimal("12.50"), "dear")
    spots = Stations.lookup(pd.Series([NOON]), station=pd.Series([7]))[0]["spot"]
    assert (spots[0].name, spots[0]["lat"], isinstance(spots[0], Spot)) == ("Zoo", 52.5, True)


@mock
def test_features(client) -> None:
    fill(client)
    log(Rides, pd.DataFrame([(1, 7, 60, 1.0, datetime.now())], columns=[*Rides.schema()]))
    frame = pd.DataFrame({"Request.rider": [1, 9]})
    found = client.query([Request.rider], [Rider], frame)
    assert found["Rider.where"].tolist() == ["Zoo", "nowhere"]
    assert found["Rider.rides"].tolist() == [1, 0]
    assert found["Rider.busy"].tolist() == [False, False]
    logged_rows = pd.DataFrame({"Request.stations": [[7, None, 99], []]})
    assert client.query([Request.stations], ["Nearby.docks"], logged_rows)["Nearby.docks"].tolist() == [[20, 0, 0], []]
    logged_rows = pd.DataFrame({"Shares.rider": [1, 9], "when": [NOON, NOON]})
    offline = client.query_offline([Shares.rider], [Shares.share, Shares.loyal], "when", logged_rows)
    assert offline["Shares.share"].tolist() == [25.0, 0.0]
    assert [str(each) for each in offline.dtypes[:2]] == ["float64", "bool"]
    direct = Shares.compute(Shares.original_cls, pd.Series([NOON]), pd.Series([1]))
    assert list(direct.columns) == ["Shares.share", "Shares.loyal"]
    assert Shares.of_all(2) == 0.5


@mock
def test_branches_and_replacement(client) -> None:
    fill(client)
    one = {"rider": pd.Series([1])}
    client.clone_branch("trial", from_branch="main")
    log(Rides, pd.DataFrame([(1, 7, 9, 1.0, NOON + timedelta(hours=3))], columns=[*Rides.schema()]))
    after = pd.Series([NOON + timedelta(hours=4)])
    assert Riders.lookup(after, **one)[0]["rides"].tolist() == [2]
    client.checkout("main")
    assert Riders.lookup(after, **one)[0]["rides"].tolist() == [1]
    client.commit(message="only rides", datasets=[Rides, Riders], env="archive")
    assert Riders.lookup(after, **one)[1].tolist() == [False]
    client.log("bikes", "OldRides", pd.DataFrame([(1, 7, 9, 1.0, NOON)], columns=[*Rides.schema()]))
    assert Riders.lookup(after, **one)[0]["rides"].tolist() == [1]
    with pytest.raises(ValueError, match="'Busy' is not committed"):
        Busy.lookup(after, station=pd.Series([7]), window=pd.Series([bucketize(NOON, "1h")]))
