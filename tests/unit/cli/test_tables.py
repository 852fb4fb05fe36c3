"""NAME=VALUE arguments of commands."""

from __future__ import annotations

from decimal import Decimal

from umbel.cli.tables import pairs
from umbel.types import dtypes


def test_a_decimal_has_all_its_digits() -> None:
    """A number of JSON has 16 digits: another key was looked up, and erased."""
    types = {
        "D.price": "Decimal[3]",
        "D.cost": "Optional[Decimal[3]]",
        "D.none": "Optional[Decimal[3]]",
        "D.f": "float",
    }
    texts = ["99999999999999.37", '"-1.5"', "null", "0.1"]
    found = pairs([f"{name[2:]}={text}" for name, text in zip(types, texts, strict=True)], types, "D.")
    assert found == {"price": "99999999999999.37", "cost": "-1.5", "none": None, "f": 0.1}
    assert dtypes.Decimal(3).ingest([found["price"]]).values.to_list() == [Decimal("99999999999999.370")]
