"""Names of columns that umbel or Polars would read as others."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from umbel.api.dataset import dataset
from umbel.api.field import field
from umbel.api.inputs import inputs
from umbel.api.pipeline import pipeline
from umbel.errors import InvalidValue

PATTERNS = ["*", "^n*$", "^n$"]


def named(name: str, **members: Any) -> Any:
    return dataset(type("D", (), {"__annotations__": {name: int, "t": datetime}, "__module__": __name__, **members}))


@pytest.mark.parametrize("name", PATTERNS)
def test_a_field_cannot_be_named_by_a_pattern(name: str) -> None:
    with pytest.raises(InvalidValue, match="are reserved"):
        named(name)


@pytest.mark.parametrize("name", PATTERNS)
def test_an_operator_cannot_make_a_column_named_by_a_pattern(name: str) -> None:
    events = named("n")

    def renamed(cls: Any, rows: Any) -> Any:
        return rows.rename({"n": name}).rename({name: "m"}).groupby("m").latest()

    with pytest.raises(InvalidValue, match="are reserved"):
        named("m", m=field(key=True), renamed=pipeline(inputs(events)(renamed)))


@pytest.mark.parametrize("name", ["^n", "n$", "**", "n*", "$^"])
def test_names_that_only_resemble_patterns_are_columns(name: str) -> None:
    assert [each.name for each in named(name).fields] == [name, "t"]
