"""Datasets that pipelines of these tests read, and a short way to build one."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, Optional

from umbel.api.dataset import Dataset, dataset, record_of
from umbel.api.field import field
from umbel.api.node import Building, Node
from umbel.operators.operator import Operator
from umbel.types.annotations import from_annotation
from umbel.types.dtypes import DType
from umbel.types.windows import Continuous

FOREVER = Continuous("forever")


@dataset
class Events:
    uid: int
    amount: float
    note: Optional[str]
    tags: list[str]
    at: datetime
    t: datetime = field(timestamp=True)


@dataset(index=True)
class Users:
    uid: int = field(key=True)
    city: str
    at: Optional[datetime]
    ut: datetime


@dataset(index=True)
class Cities:
    city: str = field(key=True)
    size: int
    ct: datetime


def built(body: Callable[..., Any], *datasets: Dataset) -> Operator:
    """Return the operator a pipeline body builds."""
    building = Building("D.p", (), datasets)
    found = body(*(Node(record_of(each).leaf(), building) for each in datasets))
    assert isinstance(found, Node)
    return found.operator


def typed(annotations: dict[str, Any]) -> dict[str, DType]:
    """Return the types that annotations make."""
    return {name: from_annotation(each) for name, each in annotations.items()}
