"""What the examples of operators, aggregates and expressions begin with: datasets, rows, `values` and `show`."""

from datetime import datetime
from math import isnan
from typing import Any, List, Optional

import pandas as pd

from umbel import *  # noqa: F403
from umbel.api.dataset import record_of
from umbel.api.node import Building, Node
from umbel.expr import Expr, from_epoch, make_struct, now, repeat, var, zip_struct  # noqa: F401
from umbel.expr import datetime as instant  # noqa: F401

__owner__ = "docs@example.com"


@dataset
class Order:
    user: str
    amount: int
    coupon: Optional[int]
    at: datetime


@dataset
class Basket:
    user: str
    items: List[str]
    at: datetime


@dataset
class Member:
    user: str = field(key=True)
    city: str
    at: datetime


@struct
class Point:
    x: int
    y: int


def _at(*times: str) -> list[datetime]:
    return [datetime.fromisoformat(f"2026-03-01T{each}:00+00:00") for each in times]


ROWS = {
    "Order": pd.DataFrame(
        {
            "user": ["ann", "bob", "ann", "ann"],
            "amount": [10, 7, 5, 5],
            "coupon": [1, None, None, None],
            "at": _at("09:00", "09:30", "10:15", "10:15"),
        }
    ),
    "Basket": pd.DataFrame({"user": ["ann", "bob"], "items": [["ink", "pen"], []], "at": _at("09:00", "09:30")}),
    "Member": pd.DataFrame(
        {
            "user": ["ann", "bob", "ann"],
            "city": ["Rome", "Oslo", "Bern"],
            "at": _at("08:00", "08:00", "10:00"),
        }
    ),
}


def values(expression: Expr, **columns: list[Any]) -> list[Any]:
    """Return the values of an expression over columns, whose types are those of their values."""
    schema = {name: _annotation(column) for name, column in columns.items()}
    found = expression.eval(
        pd.DataFrame({name: pd.Series(each, dtype=object) for name, each in columns.items()}), schema
    )
    return [_plain(each) for each in found]


def show(body: Any, *datasets: Dataset, at: str = "") -> None:
    """Print the rows that a pipeline's body makes of `Order`, `Member` or `Basket`.

    With `at`, print the current row of each key at that time of the day.
    """
    operator = body(
        *(Node(record_of(each).leaf(), Building("Result.rows", (), datasets)) for each in datasets)
    ).operator
    result = _result(body, datasets, operator.schema)
    client = MockClient()
    client.commit("example", datasets=[*datasets, result])
    for each in datasets:
        client.log_to(each, ROWS[each.__name__])
    frame = client.get_dataset_df("Result")
    if at:
        keys = frame[operator.schema.key_names].drop_duplicates(ignore_index=True)
        frame, _ = client.lookup("Result", keys, timestamps=pd.Series(_at(at) * len(keys)))
    table = [list(map(str, frame.columns)), *([_cell(each) for each in row] for row in frame.itertuples(index=False))]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _result(body: Any, datasets: tuple[Dataset, ...], schema: Any) -> Dataset:
    """Return a dataset named Result with the columns that a body makes."""

    def rows(cls: Any, *nodes: Any) -> Any:
        return body(*nodes)

    annotations = {name: dtype.annotation() for name, dtype in schema.dtypes.items()}
    keys = {name: field(key=True) for name in schema.key_names}
    stamp = {schema.timestamp: field(timestamp=True)}
    members = {"__annotations__": annotations, "__module__": __name__, **keys, **stamp}
    return dataset(index=bool(keys))(type("Result", (), {**members, "rows": pipeline(inputs(*datasets)(rows))}))


def _annotation(column: list[Any]) -> Any:
    known = [each for each in column if each is not None]
    first = known[0]
    annotation: Any = type(first)
    if isinstance(first, list):
        annotation = list[_annotation([item for each in known for item in each])]
    elif isinstance(first, dict):
        annotation = dict[str, _annotation([item for each in known for item in each.values()])]
    return Optional[annotation] if len(known) < len(column) else annotation


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple) or type(value).__name__ == "ndarray":
        return [_plain(each) for each in value]
    if value is pd.NA or value is pd.NaT or (isinstance(value, float) and isnan(value)):
        return None
    if isinstance(value, pd.Timestamp):
        return str(value)
    return value.item() if hasattr(value, "item") else value


def _cell(value: Any) -> str:
    if isinstance(value, datetime):
        return f"{value:%H:%M}"
    if isinstance(value, Window):
        return f"{value.begin:%H:%M}-{value.end:%H:%M}"
    found = _plain(value)
    return f"{found:g}" if isinstance(found, float) else str(found)
