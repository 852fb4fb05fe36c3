"""`Dataset.lookup`: its arguments, and who answers (api §2.4)."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import pandas as pd
import pytest

from tests.unit.refusals import Cases, check_refused
from umbel.api.dataset import dataset
from umbel.api.field import field
from umbel.api.lookup import current

refused = Cases()
TS = pd.Series(pd.to_datetime(["2024-01-01", "2024-01-02"], utc=True))
KEYS = pd.Series([1, 2])


@dataset(index=True)
class Users:
    uid: int = field(key=True)
    org: str = field(key=True)
    age: int
    t: datetime


@dataset
class Unindexed:
    uid: int = field(key=True)
    t: datetime


@dataset
class Stream:
    t: datetime


class Answers:
    """Returns its arguments."""

    def lookup(self, dataset: str, ts: Any, keys: Mapping[str, Any], fields: Sequence[str]) -> Any:
        return dataset, list(ts), {name: list(each) for name, each in keys.items()}, list(fields)


def test_the_current_client_answers() -> None:
    token = current.set(Answers())
    try:
        report: Any = Users.lookup(TS, org=KEYS.astype(str), uid=KEYS, fields=["age", Users.uid])
        assert report == ("Users", list(TS), {"uid": [1, 2], "org": ["1", "2"]}, ["age", "uid"])
        by_keyword: Any = Users.lookup(ts=TS, org=KEYS, uid=KEYS)
        assert by_keyword[3] == ["uid", "org", "age", "t"]
        objects: Any = Users.lookup(TS.astype(object), org=KEYS, uid=KEYS)
        assert objects[0] == "Users"
    finally:
        current.reset(token)


refused.add("not running", lambda: Users.lookup(TS, uid=KEYS, org=KEYS), ValueError, "'Users'", "not committed")
refused.add("no keys", lambda: Stream.lookup(TS), Exception, "'Stream'", "no key fields")
refused.add("no index", lambda: Unindexed.lookup(TS, uid=KEYS), ValueError, "define an index on dataset 'Unindexed'")
refused.add("positional", lambda: Users.lookup(TS, KEYS, KEYS), ValueError, "'Users'", "one positional")
refused.add("no timestamps", lambda: Users.lookup(uid=KEYS, org=KEYS), ValueError, "'Users'")
refused.add("misspelt key", lambda: Users.lookup(TS, uid=KEYS, orgg=KEYS), ValueError, "is 'orgg' meant to be 'org'?")
refused.add("missing key", lambda: Users.lookup(TS, uid=KEYS), ValueError, "'Users'", "'org'")
refused.add("unknown key", lambda: Users.lookup(TS, uid=KEYS, org=KEYS, zz=KEYS), ValueError, "'zz'")
refused.add("no series", lambda: Users.lookup(TS, uid=KEYS, org=["a", "b"]), ValueError, "'org'", "list")
refused.add("ts no series", lambda: Users.lookup(datetime(2024, 1, 1), uid=KEYS, org=KEYS), ValueError, "datetime")
refused.add("ts no datetimes", lambda: Users.lookup(KEYS, uid=KEYS, org=KEYS), ValueError, "int64")
refused.add("lengths", lambda: Users.lookup(TS, uid=KEYS, org=KEYS.head(1)), ValueError, "'org'", "2", "1")
refused.add("unknown field", lambda: Users.lookup(TS, uid=KEYS, org=KEYS, fields=["zz"]), ValueError, "'zz'")


@pytest.mark.parametrize(("define", "error", "texts"), refused.found)
def test_refused(define: Any, error: type[Exception], texts: tuple[str, ...]) -> None:
    check_refused(define, error, texts)
