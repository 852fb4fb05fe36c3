from __future__ import annotations

import polars as pl

from umbel.formats.text_types import spelled
from umbel.types.dtypes import Bool, Float, Int, Optional, Str
from umbel.types.raw import Raw, rejects


def test_floats_and_truth_are_read_and_the_rest_stays_text() -> None:
    frame = pl.DataFrame(
        {"f": ["1.5", " 2 ", None], "b": ["True", "0", None], "i": ["1", "2", "3"], "s": ["1.5", "", None]}
    )
    expected = {"f": Optional(Float()), "b": Bool(), "i": Int(), "s": Str()}
    found = spelled(Raw(frame, rejects({})), expected).frame
    assert found["f"].to_list() == [1.5, 2.0, None]
    assert found["b"].to_list() == [True, False, None]
    assert found.schema["i"] == found.schema["s"] == pl.String()


def test_what_spells_no_number_stays_for_validation_to_refuse() -> None:
    found = spelled(Raw(pl.DataFrame({"f": ["1.5", "x"]}), rejects({})), {"f": Float()}).frame
    assert found["f"].to_list() == [1.5, "x"]
    assert list(Float().ingest(found["f"]).errors) == [1]
