"""Plans as text and as drawings."""

from __future__ import annotations

from tests.unit.serving.flights import DATASETS
from umbel.api.commit import check_commit
from umbel.graph.explain import explain, mermaid, shown_value
from umbel.graph.graph import Graph
from umbel.types.dtypes import Int, Optional
from umbel.types.windows import Continuous, Hopping

TEXT = """\
4 operators in 2 stages, 3 datasets

stage 0: read, validate, row by row
   0  Departure = leaf(Departure)  version=1  logged
      origin: str, delay: int, ratio: Optional[float], at: datetime timestamp
   1  leaf(Plane)  version=1
      tailnum: str key, seats: int, at: datetime timestamp

stage 1: exchanged by key
   2  Plane = index(#1)  mode=upsert  by [tailnum]  logged
   3  DelayOfOrigin = aggregate(#0)  keys=[origin]  aggregates=[Count(window=Continuous(6h), into_field=departures), \
Average(window=Continuous(6h), into_field=average, of=delay)]  by [origin]
      origin: str key, departures: int, average: float, at: datetime timestamp
"""

DRAWING = """\
flowchart LR
  subgraph stage0["stage 0"]
    n0[["Departure<br/>leaf"]]
    n1["Plane<br/>leaf"]
  end
  subgraph stage1["stage 1"]
    n2[["Plane<br/>index"]]
    n3[["DelayOfOrigin<br/>aggregate"]]
  end
  n1 ==> n2
  n0 ==> n3
"""


def graph() -> Graph:
    return Graph(check_commit(DATASETS, []).datasets.values())


def test_a_plan_as_text() -> None:
    assert explain(graph()) == TEXT


def test_a_plan_as_a_drawing() -> None:
    assert mermaid(graph()) == DRAWING


def test_no_plan_is_shown_too() -> None:
    assert explain(Graph([])) == "0 operators in 1 stage, 0 datasets\n\nstage 0: read, validate, row by row\n"
    assert mermaid(Graph([])).startswith("flowchart LR\n")


def test_values_are_shown_as_one_reads_them() -> None:
    assert shown_value((("a", "b"), ("c", "c"))) == "[a: b, c]"
    assert shown_value(Optional(Int())) == "Optional[int]"
    assert shown_value({"a": 1, "b": None}) == "[a: 1, b: None]"
    assert shown_value(Continuous("1d")) == "Continuous(1d)"
    assert "Hopping" in shown_value(Hopping("1d", "1h"))
