"""Extractors called directly (api §6.3)."""

from datetime import datetime, timezone

import pandas as pd
import pytest

from tests.unit.refusals import refusal
from umbel.featuresets import extractor, featureset
from umbel.featuresets import feature as F
from umbel.lib import inputs, outputs
from umbel.testing import MockClient, mock

__owner__ = "team@example.com"

T = datetime(2024, 1, 1, tzinfo=timezone.utc)


@featureset
class Other:
    z: int = F()


@featureset
class Direct:
    a: int = F()
    b: int
    c: int
    d: int

    @extractor
    @inputs("a", Other.z)
    @outputs("b")
    def one(cls, ts, a, z):
        assert (a.name, z.name) == ("Direct.a", "Other.z")
        assert str(cls.a) == "a"
        return (a + z).rename("b")

    @extractor
    @inputs(a)
    @outputs("c", "d")
    def two(cls, ts, first):
        assert first.name == "Direct.a"
        return pd.DataFrame({"c": first, str(cls.d): first * 2})


TS, A, Z = pd.Series([T, T]), pd.Series([1, 2]), pd.Series([10, 20], name="whatever")


@pytest.mark.parametrize("cls", [Direct, Direct.original_cls], ids=["featureset", "class"])
def test_extractors_called_directly(cls) -> None:
    found = Direct.one(cls, TS, A, Z)
    assert (found.name, found.tolist()) == ("Direct.b", [11, 22])
    frame = Direct.two(cls, TS, A)
    assert list(frame.columns) == ["Direct.c", "Direct.d"]
    assert frame["Direct.d"].tolist() == [2, 4]
    assert Direct.one(cls, TS, A, z=Z).tolist() == [11, 22]
    assert Direct.two(cls, TS, first=A)["Direct.c"].tolist() == [1, 2]
    assert (A.name, Z.name) == (None, "whatever")


@pytest.mark.parametrize("series", [(), (A,), (A, Z, A)], ids=len)
@pytest.mark.parametrize("kind", [ValueError, TypeError])
def test_one_series_for_each_input(series, kind) -> None:
    with refusal(kind, "Direct.one", "'Direct.a', 'Other.z'", f"found {len(series)}"):
        Direct.one(Direct, TS, *series)


def test_extractors_still_run_in_queries() -> None:
    client = MockClient()
    client.commit(message="m", featuresets=[Direct, Other])
    frame = pd.DataFrame({"Direct.a": [1], "Other.z": [5]})
    found = client.query([Direct.a, Other.z], [Direct], frame)
    assert found.iloc[0].tolist() == [1, 6, 1, 2]


@featureset
class Lacking:
    a: int = F()
    b: int

    @extractor(env="prod")
    @inputs("a")
    @outputs("b")
    def lacking(cls, ts):
        return pd.Series([1], name="b")

    @extractor(env="dev")
    @outputs("b")
    def good(cls, ts):
        return pd.Series([2] * len(ts), name="b")


@mock
def test_parameters_are_counted_when_an_extractor_is_called(client) -> None:
    one = pd.DataFrame({"Lacking.a": [1]})
    client.commit(message="m", featuresets=[Lacking], env="dev")
    assert client.query([Lacking.a], [Lacking.b], one)["Lacking.b"].tolist() == [2]
    client.commit(message="m", featuresets=[Lacking], env="prod")
    with pytest.raises(Exception, match=r"lacking in Lacking failed to run.*positional"):
        client.query([Lacking.a], [Lacking.b], one)
    with pytest.raises(TypeError):
        Lacking.lacking(Lacking, TS, A)
