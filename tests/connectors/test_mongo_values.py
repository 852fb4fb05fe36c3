"""Values of documents of MongoDB in fields, and documents that do not fit."""

from __future__ import annotations

import math
import re
from datetime import UTC, date, datetime
from decimal import Decimal as Number
from pathlib import Path
from typing import Any, Optional
from uuid import UUID

import bson
import polars as pl
from bson import DBRef, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp
from bson.binary import Binary, UuidRepresentation
from bson.datetime_ms import DatetimeMS

from tests.connectors.mongo_shop import START, events, inserted, shop
from tests.connectors.shop_datasets import deployed, letters, until
from tests.servers.mongo import MongoServer
from umbel.catalog.purges import Mentions
from umbel.connectors import ref, source
from umbel.connectors.mongo.values import raw_rows, read_all
from umbel.datasets import dataset, field
from umbel.dtypes import Decimal, struct
from umbel.query.erasure import ErasedKeys
from umbel.runtime.redactions import redact_staged
from umbel.runtime.sources import open_sources

__owner__ = "shop@example.com"


@struct
class Size:
    width: int
    label: Optional[str]


UNIQUE = UUID("12345678-1234-5678-1234-567812345678")
THING = {
    "_id": ObjectId("65f000000000000000000001"),
    "n": 2**31 - 1,
    "big": Int64(-(2**63)),
    "whole": 5.0,
    "exact": Decimal128("123456789012345678.0123456789"),
    "real": 0.1 + 0.2,
    "nan": math.nan,
    "inf": -math.inf,
    "wide": Decimal128("1E-3"),
    "yes": True,
    "words": "ä\U0001f600\0x",
    "ref": ObjectId("65f000000000000000000002"),
    "id": Binary.from_uuid(UNIQUE, UuidRepresentation.STANDARD),
    "raw": b"\x00\xff",
    "other": Binary(b"\x01", 128),
    "day": datetime(2024, 2, 29),
    "at": datetime(2024, 2, 29, 12, 34, 56, 789000),
    "clock": Timestamp(1_700_000_000, 5),
    "numbers": [1, Int64(2), 3.0],
    "size": {"width": 1, "label": None},
    "sizes": [{"width": 1}, {"width": 2, "label": "x", "more": 1}],
    "marks": {"a": 1.5, "b": 2},
    "nothing": None,
}


def things(server: MongoServer) -> Any:
    @source(
        shop(server).collection("things", "at"),
        disorder="1000d",
        cdc="append",
        every="1s",
        preproc={"key": ref("_id")},
    )
    @dataset
    class Things:
        key: str
        n: int
        big: int
        whole: int
        exact: Decimal[10]
        real: float
        nan: float
        inf: float
        wide: Decimal[3]
        yes: bool
        words: str
        ref: str
        id: str
        raw: bytes
        other: bytes
        day: date
        at: datetime = field(timestamp=True)
        clock: datetime
        numbers: list[int]
        size: Size
        sizes: list[Size]
        marks: dict[str, float]
        nothing: Optional[int]
        missing: Optional[str]

    return Things


def test_types(mongo_typed: MongoServer, tmp_path: Path) -> None:
    inserted(mongo_typed, "things", [THING])
    with deployed(tmp_path, made_of := things(mongo_typed)) as made:
        until(made, lambda: made.taken().get("Things") == 1)
        assert letters(made) == []
        (found,) = made.changes("Things").select(list(made_of.schema())).to_dicts()
    assert math.isnan(found.pop("nan"))
    sizes = [{"width": 1, "label": None}, {"width": 2, "label": "x"}]
    marks = found.pop("marks")
    assert {each["key"]: each["value"] for each in marks} == {"a": 1.5, "b": 2.0}
    assert found == {
        "key": "65f000000000000000000001", "n": 2**31 - 1, "big": -(2**63), "whole": 5,
        "exact": Number("123456789012345678.0123456789"), "real": 0.1 + 0.2, "inf": -math.inf, "wide": Number("0.001"),
        "yes": True, "words": "ä\U0001f600\0x", "ref": "65f000000000000000000002", "id": str(UNIQUE), "raw": b"\x00\xff",
        "other": b"\x01", "day": date(2024, 2, 29), "at": datetime(2024, 2, 29, 12, 34, 56, 789000, UTC),
        "clock": datetime.fromtimestamp(1_700_000_000, UTC), "numbers": [1, 2, 3], "size": sizes[0], "sizes": sizes,
        "nothing": None, "missing": None,
    }  # fmt: skip


MISFITS = {
    "regex": (Regex("a", "i"), r"field 'n': a value of the BSON type Regex has no form"),
    "least": (MinKey(), r"'n': a value of the BSON type MinKey"),
    "most": (MaxKey(), r"'n': a value of the BSON type MaxKey"),
    "nested": ([{"a": Regex("x")}], r"'n': a value of the BSON type Regex"),
    "text": ("five", r"five"),
    "fraction": (5.5, r"5.5"),
    "wide": (Decimal128("9E30"), r"9"),
    "reference": (DBRef("c", 1), r"dict"),
    "array": ([5], r"list|array"),
    "null": (None, r"(?i)null|missing|required"),
    "far": (DatetimeMS(2**60), r"beyond the years 1 to 9999"),
}


def test_documents_that_do_not_fit_are_dead_letters_with_their_ids(mongo_typed: MongoServer, tmp_path: Path) -> None:
    """The others are taken, whatever the neighbours of a value are."""
    bad = [{"_id": name, "n": value, "at": START} for name, (value, _) in MISFITS.items()]
    bad.append({"_id": "without", "at": START})
    inserted(
        mongo_typed, "events", [*bad, *({"_id": i, "n": (int, float, Int64)[i % 3](i), "at": START} for i in range(50))]
    )
    with deployed(tmp_path, events(mongo_typed)) as made:
        until(made, lambda: made.taken().get("Events") == 50 + len(bad))
        assert sorted(made.changes("Events")["n"]) == list(range(50))
        found = letters(made)
    assert len(found) == len(bad)
    for name, (_, reason) in MISFITS.items():
        assert [each for each in found if f"_id {name}" in each.position and re.search(reason, each.reason)], (
            name,
            found,
        )


def test_a_field_without_a_name_is_none_of_another_name() -> None:
    document = {"_id": 1, "": 2, "column_1": 3}
    raw, _ = raw_rows([bson.encode(document)], ["_id"], lambda _: None, exact=False)
    assert raw.frame.to_dicts() == [document]


def test_a_document_with_damaged_text() -> None:
    """Drivers of other languages have written text that is not UTF-8."""
    good = bson.encode({"_id": 1, "id": 1, "note": "abcd", "updated_at": START})
    bad = good.replace(b"abcd", b"a\xff\xfed")
    assert [each["_id"] for each in read_all(bad + good, [bad, good])] == [1, 1]
    raw, found = raw_rows([bad, good, good[:-9], None], ["id", "note"], lambda _: None)
    assert raw.rejects["row"].to_list() == [0, 2]
    assert "utf" in raw.rejects["reason"][0].lower()
    assert raw.frame.rows() == [(None, None), (1, "abcd"), (None, None), (None, None)]
    assert [each.get("_id") for each in found] == [1, 1, None, None]


def test_erased_documents_are_erased_from_what_was_staged(mongo_typed: MongoServer, tmp_path: Path) -> None:
    """Also of those that are no rows: of another type of cursor, or of a field."""
    gone = [
        {"_id": 1, "email": "gone@example.com", "n": 1, "at": START},
        {"_id": 2, "email": "gone@example.com", "n": Regex("x"), "at": START},
        {"_id": 3, "email": "gone@example.com", "n": 1, "at": "text"},
    ]
    inserted(mongo_typed, "people", [*gone, {"_id": 4, "email": 5, "n": 1, "at": START}])
    inserted(mongo_typed, "people", [{"_id": 5, "email": "stays@example.com", "n": 1, "at": START}])

    @source(shop(mongo_typed).collection("people", "at"), disorder="1h", cdc="upsert", every="1s")
    @dataset
    class People:
        email: str = field(key=True, erase_key=True)
        n: int
        at: datetime

    with deployed(tmp_path, People) as made:
        until(made, lambda: made.taken().get("People") == 5)
        place = made.deployment
        graph = place.graph(place.catalog.revision())
        erased = {"People": ErasedKeys.of(pl.DataFrame({"email": ["gone@example.com"]}))}
        mentions = Mentions([("gone@example.com",)])
        assert redact_staged(place, graph, erased, mentions) == 3
        assert redact_staged(place, graph, erased, mentions) == 0
        (opened,) = open_sources(place.directory, graph)
        reader: Any = opened.reading
        left = pl.concat([reader.stage.read(each)["_document"] for each in reader.stage.numbers()])
        assert sorted(bson.decode(each)["_id"] for each in left.drop_nulls()) == [4, 5]
        parts = [{"part": each} for each in reader.stage.numbers()]
        rows = [batch.raw.frame for part in parts for batch in reader.open(part, People.schema(), exact=False)]
        assert sum(each.height for each in rows) == 5, "the numbers of rows stay"


def test_a_ref_with_dots_leads_into_subdocuments(mongo_typed: MongoServer, tmp_path: Path) -> None:
    """Also beside the whole subdocument, and into arrays of them."""
    paths = {"label": "size.label", "widths": "sizes.width", "stamp": "meta.at", "beyond": "size.label.more"}

    @source(
        shop(mongo_typed).collection("things", "meta.at"),
        disorder="1h",
        cdc="append",
        every="1s",
        preproc={name: ref(path) for name, path in paths.items()},
    )
    @dataset
    class Things:
        n: int
        label: Optional[str]
        widths: Optional[list[int]]
        size: Optional[Size]
        beyond: Optional[str]
        stamp: datetime = field(timestamp=True)

    first = {"n": 1, "size": {"width": 3, "label": "big"}, "sizes": [{"width": 1}, {"label": "x"}, 7, {"width": 2}]}
    documents = [{**first, "meta": {"at": START}}, {"n": 2, "size": None, "meta": {"at": START}}]
    inserted(mongo_typed, "things", documents)
    with deployed(tmp_path, Things) as made:
        until(made, lambda: made.taken().get("Things") == 2)
        assert letters(made) == []
        rows = made.changes("Things").sort("n").select("label", "widths", "beyond", "stamp").rows()
    assert rows == [("big", [1, 2], None, START), (None, None, None, START)]
