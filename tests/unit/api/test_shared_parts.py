"""Datasets and featuresets that many functions refer to are pickled once."""

import pickle
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import pandas as pd

from umbel.api.commit import check_commit
from umbel.api.dataset import dataset
from umbel.api.extractor import extractor
from umbel.api.featureset import featureset
from umbel.api.field import field
from umbel.api.inputs import inputs, outputs
from umbel.definitions.serde import dump, load
from umbel.functions.user_function import UserFunction

__owner__ = "a@b.c"


def extracting(name: str) -> Any:
    def body(cls: Any, ts: pd.Series, key: pd.Series) -> pd.Series:
        return pd.Series(key * len(cls.all()), name=name)

    body.__name__ = f"of_{name}"
    return extractor(outputs(name)(inputs("key")(body)))


def wide(extractors: int) -> Any:
    """Return a featureset of as many features and extractors."""
    names = [f"feature_{number}" for number in range(extractors)]
    body = {f"of_{name}": extracting(name) for name in names}
    features = {"key": int, **dict.fromkeys(names, int)}
    return featureset(type("Wide", (), {"__annotations__": features, "__module__": __name__, **body}))


def test_the_size_of_a_featureset_grows_with_its_extractors() -> None:
    small, large = (len(dump(check_commit([], [wide(number)]))) for number in (40, 160))
    assert large < 5 * small  # 4 at best, 16 where each extractor has all features


def test_extractors_share_their_featureset_after_they_were_sent() -> None:
    definitions = load(dump(check_commit([], [wide(3)])))
    functions = [each.function for each in definitions.featuresets["Wide"].extractors]
    assert {len(each.pickled.parts) for each in functions} == {1}
    assert len({id(each.pickled.parts[0]) for each in functions}) == 1
    assert len({id(each.load().args[0]) for each in functions}) == 1
    assert functions[2](None, pd.Series([2])).to_list() == [8]
    again = [each.function.load() for each in load(dump(definitions)).featuresets["Wide"].extractors]
    assert again[0].args[0] is functions[0].load().args[0]


@dataset(index=True)
class Rates:
    key: int = field(key=True)
    rate: float
    at: datetime = field(timestamp=True)

    @classmethod
    def doubled(cls, value: int) -> str:
        return f"{value * 2} {cls.rate}"  # type: ignore[attr-defined]


def of_columns(value: int) -> list[str]:
    return [str(each) for each in Rates.fields]  # type: ignore[attr-defined]


def of_members(value: int) -> str:
    return Rates.doubled(value)


def test_functions_that_share_a_dataset_have_the_members_they_mention() -> None:
    sent = [UserFunction(each) for each in (of_columns, of_members)]
    columns, members = pickle.loads(pickle.dumps(sent))
    assert columns(1) == ["key", "rate", "at"]
    assert members(3) == "6 rate"
    assert sent[0].pickled.parts[0] is sent[1].pickled.parts[0]
    assert b"doubled" not in sent[0].pickled.parts[0]


MODULE = "from umbel.dtypes import struct\n\n@struct\nclass Money:\n    amount: float\n"
DEFINITIONS = """
import sys
import pandas as pd
from money import Money
from umbel.api.commit import check_commit
from umbel.definitions.serde import dump
from umbel.featuresets import extractor, featureset
from umbel.lib import inputs, outputs

__owner__ = "a@b.c"

@featureset
class Paid:
    key: int
    money: Money
    total: float

    @extractor
    @inputs("key")
    @outputs("total")
    def sums(cls, ts, key):
        return pd.Series([cls.money.dtype(amount=2.0).amount] * len(key), name="total")

sys.stdout.buffer.write(dump(check_commit([], [Paid])))
"""


def test_struct_classes_of_features_travel_from_other_modules(tmp_path: Path) -> None:
    (tmp_path / "money.py").write_text(MODULE)
    run = subprocess.run([sys.executable, "-c", DEFINITIONS], cwd=tmp_path, stdout=subprocess.PIPE, check=True)
    function = load(run.stdout).featuresets["Paid"].extractors[0].function
    assert "money" not in sys.modules
    assert function(None, pd.Series([1])).to_list() == [2.0]
