"""Types, windows and structs travel between processes."""

import pickle
import subprocess
import sys

import cloudpickle
import pytest

from umbel.types import dtypes as d
from umbel.types.annotations import between, oneof, regex
from umbel.types.structs import struct, struct_type
from umbel.types.windows import Continuous, Hopping, Session, Tumbling

THINGS = [
    d.Optional(d.List(d.Decimal(2))),
    d.Dict(d.OneOf(d.Str(), ("a",))),
    d.Struct("P", (("x", d.Between(d.Int(), 1, 2)),)),
    Continuous("forever"),
    Tumbling("1d", lookback="1h"),
    Hopping("1d", "1h"),
    Session("5m"),
    oneof(int, [1]),
    between(float, 0, 1),
    regex("a"),
]


@pytest.mark.parametrize("thing", THINGS, ids=str)
def test_by_pickle(thing):
    back = pickle.loads(pickle.dumps(thing))
    assert back == thing
    assert hash(back) == hash(thing)


def test_struct_classes_by_value():
    @struct
    class Money:
        amount: int

    program = "import pickle, sys; print(pickle.load(sys.stdin.buffer))"
    sent = cloudpickle.dumps((Money(5), struct_type(Money), struct_type(Money).cls(7).as_json()))
    printed = subprocess.run([sys.executable, "-c", program], input=sent, capture_output=True, check=True)
    assert b"Money(amount=5)" in printed.stdout
    assert b"{'amount': 7}" in printed.stdout
