"""RFC 2822 instants with named zones: one value, a column, in process and through the readers of JSON."""

import random
from datetime import UTC, datetime, timedelta, timezone

import orjson
import pandas as pd
import polars as pl
import pytest

from umbel.connectors import Webhook, source
from umbel.datasets import dataset
from umbel.formats.json_lines import JsonLines
from umbel.testing import MockClient
from umbel.types.dtypes import Datetime, Int, Optional
from umbel.types.epochs import from_text, from_texts
from umbel.types.rfc2822 import unknown_zone
from umbel.types.validate import validate
from umbel.types.zones import offset_of

__owner__ = "team@example.com"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# Written down by hand, in hours: what the database must agree with.
ZONES = {
    **dict.fromkeys(["UT", "GMT", "UTC", "Z", "A", "I", "K", "M", "N", "Y", "WET"], 0.0),
    "EST": -5, "EDT": -4, "CST": -6, "CDT": -5, "MST": -7, "MDT": -6, "PST": -8, "PDT": -7, "AKST": -9, "AKDT": -8,
    "HST": -10, "AST": -4, "ADT": -3, "NST": -3.5, "NDT": -2.5, "WEST": 1, "BST": 1, "CET": 1, "CEST": 2, "EET": 2,
    "EEST": 3, "MSK": 3, "CAT": 2, "EAT": 3, "WAT": 1, "SAST": 2, "IDT": 3, "IST": 5.5, "PKT": 5, "WIB": 7, "WITA": 8,
    "WIT": 9, "HKT": 8, "JST": 9, "KST": 9, "AWST": 8, "ACST": 9.5, "ACDT": 10.5, "AEST": 10, "AEDT": 11, "NZST": 12,
    "NZDT": 13, "ChST": 10, "SST": -11,
}  # fmt: skip
UNKNOWN = ["J", "XYZ", "LMT", "MSD", "BRT", "SGT", "ABCDE", "ut1", "\u017fst", "\u212ast"]


@pytest.mark.parametrize("zone", ZONES)
def test_zones(zone: str) -> None:
    expected = datetime(2000, 1, 23, 1, 23, 45, tzinfo=timezone(timedelta(hours=ZONES[zone])))
    for name in (zone, zone.lower(), zone.upper()):
        assert offset_of(name) == ZONES[zone] * 3600
        found = from_text(f"Sun, 23 Jan 2000 01:23:45 {name}")
        assert found == (expected - EPOCH) // timedelta(microseconds=1)


@pytest.mark.parametrize("zone", UNKNOWN)
def test_unknown_zones(zone: str) -> None:
    text = f"Sun, 23 Jan 2000 01:23:45 {zone}"
    assert from_text(text) is None
    (error,) = Datetime().ingest(pl.Series([text])).errors.values()
    if zone.isascii() and zone.isalpha():
        assert unknown_zone(text) == zone
        assert f"unknown time zone '{zone}'" in error
    assert text in error


def us(*at: int) -> int:
    return (datetime(*at, tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)


FORMS = {
    "Sun, 23 Jan 2000 01:23:45 JST": us(2000, 1, 22, 16, 23, 45),
    "23 Jan 2000 01:23:45 JST": us(2000, 1, 22, 16, 23, 45),
    "23 Jan 2000 01:23 JST": us(2000, 1, 22, 16, 23),
    "Sunday, 23 jan 2000 1:23:45 jst": us(2000, 1, 22, 16, 23, 45),
    "Sun 23 JAN 2000 01:23:45 +0900 (JST)": us(2000, 1, 22, 16, 23, 45),
    "  Sun,  23  Jan\t2000  01:23:45  JST (Asia/Tokyo) ": us(2000, 1, 22, 16, 23, 45),
    "Sun, 23 Jan 2000 01:23:45 JST (東京)": us(2000, 1, 22, 16, 23, 45),
    "Sun, 23 Jan 2000\r\n 01:23:45 JST": us(2000, 1, 22, 16, 23, 45),
    "23 Jan 00 01:23:45 GMT": us(2000, 1, 23, 1, 23, 45),
    "23 Jan 49 01:23:45 UT": us(2049, 1, 23, 1, 23, 45),
    "23 Jan 50 01:23:45 Z": us(1950, 1, 23, 1, 23, 45),
    "23 Jan 99 01:23 PST": us(1999, 1, 23, 9, 23),
    "23 Jan 103 01:23:45 GMT": us(2003, 1, 23, 1, 23, 45),
    "3 Jan 2000 01:23:45": us(2000, 1, 3, 1, 23, 45),
    "29 Feb 2024 00:00:00 -0330": us(2024, 2, 29, 3, 30),
    "31 Dec 2016 23:59:60 GMT": us(2017, 1, 1),
    "29 Feb 2023 00:00:00 JST": None,
    "30 Feb 2024 00:00:00 JST": None,
    "0 Jan 2024 00:00:00 JST": None,
    "32 Jan 2024 00:00:00 JST": None,
    "1 Jan 2024 24:00:00 JST": None,
    "1 Jan 2024 10:60:00 JST": None,
    "1 Jan 2024 10:00:61 JST": None,
    "1 Foo 2024 10:00:00 JST": None,
    "Foo, 1 Jan 2024 10:00:00 JST": None,
    "1 Jan 2024 10:00:00 +2400": None,
    "1 Jan 2024 10:00:00 +0060": None,
    "1 Jan 2024 10:00:00 +09": None,
    "1 Jan 2024 10:00:00 JST+1": None,
    "1 Jan 2024 10:00:00 JST JST": None,
    "1 Jan 2024 10:00:00 (comment": None,
    "1 Jan 2024 10:00:00JST": None,
    "1 Jan 2 10:00:00 JST": None,
    "1 Jan 20240 10:00:00 JST": None,
    "1 Jan 0000 10:00:00 JST": None,
    "31 Dec 9999 23:59:59 PST": None,
    "1 Jan 0001 00:00:00 JST": None,
    "١ Jan 2024 10:00:00 JST": None,
}


@pytest.mark.parametrize("text", FORMS)
def test_forms(text: str) -> None:
    assert from_text(text) == FORMS[text]


def test_a_column_of_all_forms() -> None:
    others = {"2024-01-31": us(2024, 1, 31), "1700000000": 1_700_000_000_000_000, "yesterday": None}
    known = {
        **FORMS,
        **others,
        **{f"1 Jan 2024 00:00 {zone}": us(2024, 1, 1) - round(ZONES[zone] * 3600 * 10**6) for zone in ZONES},
    }
    texts = [*known, None]
    assert from_texts(pl.Series("t", texts)).to_list() == [*known.values(), None]
    checked = Optional(Datetime()).ingest(pl.Series(texts))
    assert sorted(checked.errors) == [at for at, (_, value) in enumerate(known.items()) if value is None]
    by_value = Optional(Datetime()).ingest([*texts, 3])  # Python values take another way in
    assert by_value.values[:-1].to_list() == checked.values.to_list()
    assert by_value.errors == checked.errors


WEEKDAYS = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]
MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]


def _written(at: datetime, zone: str, choose: random.Random) -> str:
    weekday = choose.choice(["", f"{WEEKDAYS[at.weekday()]}, "])
    second = f":{at.second:02}" if at.second else choose.choice([":00", ""])
    year = f"{at.year % 100:02}" if 1950 <= at.year < 2050 and choose.random() < 0.3 else at.year
    return f"{weekday}{choose.choice([f'{at.day:02}', at.day])} {MONTHS[at.month - 1]} {year} {at:%H:%M}{second} {zone}"


def test_random_instants_against_arithmetic() -> None:
    choose = random.Random(5)
    texts, expected = [], []
    for _ in range(3000):
        zone = choose.choice([*ZONES, "+0545", "-1130"])
        hours = ZONES.get(zone, 5.75 if zone == "+0545" else -11.5)
        at = EPOCH + timedelta(seconds=choose.randrange(-2 * 10**9, 5 * 10**9) // 60 * 60 + choose.choice([0, 7, 59]))
        texts.append(_written(at.astimezone(timezone(timedelta(hours=hours))), zone, choose))
        expected.append((at - EPOCH) // timedelta(microseconds=1))
    assert from_texts(pl.Series(texts)).to_list() == expected
    assert [from_text(text) for text in texts[:100]] == expected[:100]


GOOD = ["Sun, 23 Jan 2000 01:23:45 JST", "23 Jan 2000 01:23 PDT", "2000-01-23T00:00:00Z"]
BAD = "Sun, 23 Jan 2000 01:23:45 QQT"


def _lines(texts: list[str]) -> bytes:
    return b"\n".join(orjson.dumps({"k": at, "t": text}) for at, text in enumerate(texts))


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("spoil", [b"", b'\n{"k": 1, "t": "2000-01-23", "k": 1}'])
def test_through_the_readers_of_json(exact: bool, spoil: bytes) -> None:
    types = {"k": Int(), "t": Datetime()}
    found, errors, start = [], [], 0
    for raw in JsonLines(types, exact=exact).read(_lines([*GOOD, BAD]) + spoil):
        judged = validate(raw.frame, types, refused=raw.rejects)
        found += judged.frame["t"].to_physical().to_list()
        errors += judged.rejects["reason"].to_list() if "reason" in judged.rejects.columns else judged.rejects.rows()
        start += raw.frame.height
    assert found[:3] == [us(2000, 1, 22, 16, 23, 45), us(2000, 1, 23, 8, 23), us(2000, 1, 23)]
    assert "unknown time zone 'QQT'" in str(errors)


def test_in_process() -> None:
    @source(Webhook(name="w").endpoint("Email"), disorder="1d", cdc="append")
    @dataset
    class Email:
        k: int
        t: datetime

    client = MockClient()
    client.commit(message="m", datasets=[Email])
    client.log("w", "Email", pd.DataFrame({"k": [1, 2, 3], "t": GOOD}))
    assert client.get_dataset_df("Email")["t"].tolist() == [
        pd.Timestamp("2000-01-22T16:23:45Z"), pd.Timestamp("2000-01-23T00:00:00Z"), pd.Timestamp("2000-01-23T08:23:00Z"),
    ]  # fmt: skip
    with pytest.raises(Exception, match=r"Email.*unknown time zone 'QQT'"):
        client.log("w", "Email", pd.DataFrame({"k": [1], "t": [BAD]}))
