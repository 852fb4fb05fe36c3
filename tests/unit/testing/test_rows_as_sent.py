"""Rows logged in process are taken and refused as a server takes and refuses what the client sends of them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from decimal import Decimal as Number
from pathlib import Path
from typing import Any, Dict, List, Optional

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from tests.deployed import Deployed
from umbel.client.plain import columns
from umbel.connectors import Webhook, source
from umbel.datasets import dataset, field
from umbel.dtypes import Decimal, Embedding, between, oneof, regex, struct
from umbel.errors import InvalidType, InvalidValue
from umbel.runtime.batch import drain
from umbel.serving.ingestion import taken
from umbel.testing import MockClient, log

__owner__ = "shop@example.com"
AT = "2026-03-01T00:00:00Z"
NIGHT = pd.Timestamp("2026-03-01T00:00:00Z")
NOON = NIGHT + pd.Timedelta(hours=12)


@struct
class Point:
    x: int
    y: Optional[float]


@struct
class Coupon:
    text: Optional[str]
    price: Optional[float]
    at: Optional[datetime]


class Plain:
    x: int
    y: Optional[float]

    def __init__(self, x: Any, y: Any) -> None:
        self.x, self.y = x, y


TYPES: dict[str, Any] = {
    "int": int, "float": float, "str": str, "bool": bool, "datetime": datetime, "date": date, "bytes": bytes,
    "decimal": Decimal[2], "optional int": Optional[int], "optional float": Optional[float], "optional str": Optional[str],
    "optional bool": Optional[bool], "optional date": Optional[date], "list": List[int],
    "list of optional": List[Optional[float]], "dict": Dict[str, int], "embedding": Embedding[2],
    "between": between(int, 1, 5), "oneof": oneof(str, ["a", "b"]), "regex": regex("a+"), "struct": Point, "class": Plain,
    "optional texts": List[Optional[str]], "optional ints": List[Optional[int]], "optional bytes": List[Optional[bytes]],
    "dict of optional": Dict[str, Optional[str]], "struct of optional": Coupon, "list of coupons": List[Optional[Coupon]],
    "list of structs": List[Point], "list of instants": List[Optional[datetime]], "list of dates": List[date],
}  # fmt: skip
OBJECTS: list[list[Any]] = [
    ["a", None], [True, None], [np.bool_(True), 1], [NIGHT.to_pydatetime(), None], [date(2026, 3, 1), None], [b"a", b"\xff"],
    [bytearray(b"a"), memoryview(b"b")], [Number("1.25"), Number(3)], [Number("1.256"), Number("NaN")], [[1, 2], []],
    [np.array([1, 2]), np.array([1.0, 2.0], dtype="float32")], [(1, 2), [1, None]], [[1.5, math.nan], None], [{"a": 1}, {}],
    [{"a": np.int64(1)}, {"b": None}], [{1: 2}, {1}], [object(), 1], [np.float64(1), np.int8(2)], [np.str_("a"), 2**70],
    [1 + 2j, pd.Interval(0, 1)], [{"x": 1, "y": None}, {"x": 1}], [{"x": 1, "y": 2, "z": 3}, {"x": "1", "y": 2}],
    [Plain(1, 2.5), Plain("a", None)], [[{"x": 1, "y": 1.5}], [{"y": 1}]], [pd.NA, pd.NaT], [timedelta(1), pd.Period("2026-03")],
    [NOON.to_pydatetime(), np.datetime64("2026-03-01")], [datetime(2026, 3, 1), datetime(9999, 12, 31)],
    [np.array(["2026-03-01", "NaT"], dtype="M8[ns]"), np.array(["1970-01-01T00:00:01", "2026-03-01"], dtype="M8[ns]")],
    [np.datetime64("20000-01-01"), np.datetime64("1970-01-01T00:00:01", "ns")],
    [["x", math.nan], [1, math.nan]], [[b"x", math.nan], [math.nan]], [{"x": math.nan}, {"x": "NaN"}], [["NaN"], {"price": "NaN"}],
    [{"text": math.nan, "price": math.nan, "at": math.nan}, [{"text": Number("NaN")}, math.nan]],
    [np.array(["20000-01-01"], dtype="M8[D]"), [np.datetime64("2026-03-01", "ns")]], [np.timedelta64(1, "ns"), np.array([1], "m8[ns]")],
]  # fmt: skip
COLUMNS: list[pd.Series[Any]] = [
    *(pd.Series(each, dtype=object) for each in OBJECTS),
    *(pd.Series([1, 2], dtype=each) for each in ("int8", "int64", "uint64", "float32", "Int64", "Sparse[int64]")),
    pd.Series([1, 2], dtype=pd.ArrowDtype(pa.int64())),
    pd.Series([1, 2**63], dtype="uint64"),
    pd.Series([1, None], dtype="Int64"),
    pd.Series([1.5, math.nan]),
    pd.Series([math.inf, -0.0]),
    pd.Series([1e16, 2e19]),
    pd.Series([0.1, None], dtype="Float64"),
    pd.Series([True, False]),
    pd.Series([True, None], dtype="boolean"),
    pd.Series(["a", pd.NA], dtype="string"),
    pd.Series(["a", "b"], dtype="category"),
    *(pd.Series(each) for each in (["1", "2.0"], ["NaN", "inf"], ["true", "YQ=="], [" 1", "1e3"], ["a\0b", ""])),
    pd.Series(["2026-03-01", "2026-03-01T01:02:03+02:00"]),
    pd.Series(["2026-03-01T00:00:00Z", "2026-03-01 02:00:00+02:00"]),
    pd.Series([1772323200, 1772323200000]),
    *(pd.Series([each, pd.NaT]) for each in (NIGHT, NOON, NIGHT.tz_localize(None), NIGHT.tz_convert("Asia/Tokyo"))),
    pd.Series([NIGHT, NOON]).astype("datetime64[s, UTC]"),
    pd.Series(["2026-03-01", "2026-03-02T00:00:00.123456789"], dtype="datetime64[ns]"),
    pd.Series([date(2026, 3, 1), None], dtype=pd.ArrowDtype(pa.date32())),
]


def events(dtype: Any) -> Any:
    names = {"i": int, "v": dtype, "at": datetime}
    body = {"__annotations__": names, "__module__": __name__, "__qualname__": "E", "at": field(timestamp=True)}
    return source(Webhook(name="web").endpoint("e"), disorder="14d", cdc="append")(dataset(type("E", (), body)))


def frames() -> Iterator[pd.DataFrame]:
    """Yield each value as a row of its own: the columns of a frame are converted together."""
    for number, column in enumerate(COLUMNS):
        for row in (0, 1):
            one = column.iloc[[row]].reset_index(drop=True)
            yield pd.DataFrame({"i": [2 * number + row], "v": one, "at": [AT]})


def posted(frame: pd.DataFrame) -> bytes:
    """Return what the server stores of a request of the client."""
    body = {"webhook": "web", "endpoint": "e", "data": columns(frame)}
    return taken(json.dumps(body, allow_nan=False).encode()).payload


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.nightly if number % 3 else ()) for number, name in enumerate(TYPES)],
)
def test_a_value_is_taken_in_process_as_by_a_server(name: str, tmp_path: Path) -> None:
    made, client, deployed = events(TYPES[name]), MockClient(), Deployed(tmp_path / "umbel")
    client.commit("test", datasets=[made])
    deployed.commit([made])
    refused = set()
    for frame in frames():
        try:
            client.log("web", "e", frame)
        except (InvalidValue, InvalidType):
            refused.add(frame["i"][0])
        try:
            deployed.log_bytes("e", posted(frame), 1)
        except (InvalidValue, InvalidType):
            assert frame["i"][0] in refused
    drain(deployed.deployment)
    there = {row["i"]: repr(row["v"]) for row in deployed.changes("E").to_dicts()}
    here = {row["i"]: repr(row["v"]) for row in client._transport.branch("main").table("E").to_dicts()}
    assert here == there
    assert refused == set(range(2 * len(COLUMNS))) - there.keys()
    assert there
    deployed.close()


@pytest.mark.parametrize(
    ("dtype", "value", "expected"),
    [
        (List[Optional[str]], ["NaN", math.nan], ["NaN", pd.NA]),
        (List[Optional[int]], np.array([1, math.nan]), [1, pd.NA]),
        (List[Optional[bytes]], [b"a", math.nan], [b"a", pd.NA]),
        (List[Optional[date]], [pd.NaT, math.nan], [pd.NA, pd.NA]),
        (List[Optional[bool]], [True, math.nan], [True, pd.NA]),
        (Dict[str, Optional[str]], {"a": math.nan}, {"a": pd.NA}),
        (List[Optional[Coupon]], [math.nan], [pd.NA]),
        (Coupon, {"text": math.nan, "price": math.inf, "at": math.nan}, Coupon(pd.NA, math.inf, pd.NA)),
        (Coupon, Coupon(math.nan, 1.0, math.nan), Coupon(pd.NA, 1.0, pd.NA)),
    ],
)
def test_nan_within_a_value_is_null_however_it_is_logged(dtype: Any, value: Any, expected: Any) -> None:
    made, frame = events(dtype), pd.DataFrame({"i": [1], "v": pd.Series([value], dtype=object), "at": [AT]})
    for send in (lambda client: client.log("web", "e", frame), lambda _: log(made, frame)):
        client = MockClient()
        client.commit("test", datasets=[made])
        send(client)
        assert client.get_dataset_df("E")["v"].tolist() == [expected]


def test_nan_within_a_value_is_a_number_where_that_is_a_float() -> None:
    made, client = events(List[Coupon]), MockClient()
    client.commit("test", datasets=[made])
    rows = [{"text": "NaN", "price": math.nan}, {"text": math.nan, "price": "NaN"}]
    client.log("web", "e", pd.DataFrame({"i": [1], "v": [rows], "at": [AT]}))
    first, second = client.get_dataset_df("E")["v"][0]
    assert (first.text, second.text) == ("NaN", pd.NA)
    assert math.isnan(first.price)
    assert math.isnan(second.price)


def test_instants_of_numpy_are_sent_as_instants() -> None:
    """As numbers of nanoseconds they would be read as seconds or milliseconds, where they are small."""
    nested = pd.Series([np.array(["1970-01-01T00:00:01", "2026-03-01", "NaT"], dtype="M8[ns]")])
    assert columns(pd.DataFrame({"v": nested}))["v"] == [["1970-01-01T00:00:01", "2026-03-01T00:00:00", None]]
    with pytest.raises(InvalidType, match="timedelta64"):
        columns(pd.DataFrame({"v": pd.Series([np.array([1], "m8[ns]")])}))


def test_a_row_may_be_as_long_as_a_request(tmp_path: Path) -> None:
    """A mock client refused rows above 8 MiB, the limit of files, which a server takes."""
    made, client, text = events(str), MockClient(), "x" * (9 << 20)
    client.commit("test", datasets=[made])
    client.log("web", "e", pd.DataFrame({"i": [1], "v": [text], "at": [AT]}))
    deployed = Deployed(tmp_path)
    deployed.commit([made])
    deployed.log("e", [{"i": 1, "v": text, "at": AT}])
    drain(deployed.deployment)
    assert client.get_dataset_df("E")["v"].tolist() == [text]
    assert deployed.deployment.catalog.counts()["E", "rows"] == 1
