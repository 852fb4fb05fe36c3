"""Datasets that cannot be: what is said about them (api §2)."""

from datetime import date, datetime
from typing import Optional

import pytest

from tests.unit.rules.refusals import refused
from umbel.datasets import dataset, field, index
from umbel.lib import meta

__owner__ = "team@example.com"


def test_bad_indexes() -> None:
    with refused(ValueError, "NoKeys"):

        @dataset(index=True)
        class NoKeys:
            v: int
            t: datetime

    with refused(ValueError, "Both"):

        @dataset(online=True, offline=True)
        class Both:
            k: int = field(key=True)
            t: datetime

    for options in ({"online": True}, {"offline": True}, {"online": True, "offline": True}):
        with refused(ValueError, "True"):

            @dataset(index=True, **options)
            class Mixed:
                k: int = field(key=True)
                t: datetime


def test_bad_uses_of_index() -> None:
    @dataset
    class Keyless:
        v: int
        t: datetime

    @dataset
    class Keyed:
        k: int = field(key=True)
        t: datetime

    with refused(ValueError, "Keyless"):
        index(Keyless)
    with refused(ValueError, "index"):
        index(int)
    with refused(ValueError, "Keyed"):
        index(index(Keyed))
    with refused(ValueError, "Keyed", "1d"):
        index(offline="1d")(Keyed)
    with refused(ValueError, "Keyed", "secondary", "primary"):
        index(type="secondary")(Keyed)


def test_bad_fields() -> None:
    with refused(ValueError, "key"):

        @dataset
        class A:
            k: int = field(erase_key=True)
            t: datetime

    with refused(ValueError, "key", "timestamp"):

        @dataset
        class B:
            k: datetime = field(key=True, timestamp=True)

    with refused(ValueError, "C", "kk"):

        @dataset
        class C:
            kk: Optional[int] = field(key=True)
            t: datetime


def test_bad_names_of_fields() -> None:
    with refused(ValueError, "a.b", "D"):
        dataset(type("D", (), {"__annotations__": {"a.b": int, "t": datetime}, "__module__": __name__}))

    with refused(Exception, "E", "v"):

        @dataset
        class E:
            v: int
            v: str  # noqa: PIE794
            t: datetime

    with refused(Exception, "G", "cls", "fields", "key_fields", "on_demand", "timestamp_field", "fqn", "self"):

        @dataset
        class G:
            cls: int
            self: int
            fields: int
            key_fields: int
            on_demand: int
            timestamp_field: int
            fqn: int
            t: datetime


def test_bad_metadata_of_fields() -> None:
    for flag in ("deleted", "deprecated"):
        with refused(ValueError, flag):

            @dataset
            class H:
                v: int = field().meta(**{flag: True})
                t: datetime

    with refused(ValueError, "nobody"):

        @dataset
        class J:
            v: int = field().meta(owner="nobody")
            t: datetime


def test_bad_timestamps() -> None:
    with refused(ValueError, "NoTime"):

        @dataset
        class NoTime:
            v: int

    with refused(ValueError, "Several", "t1", "t2"):

        @dataset
        class Several:
            t1: datetime
            t2: datetime

    with refused(ValueError, "Two", "t1", "t2"):

        @dataset
        class Two:
            t1: datetime = field(timestamp=True)
            t2: datetime = field(timestamp=True)

    with refused(ValueError, "Dated", "day", "date"):

        @dataset
        class Dated:
            day: date = field(timestamp=True)


def test_bad_meta() -> None:
    with refused(ValueError, "nobody"):
        meta(owner="nobody")
    with pytest.raises(TypeError, match="ownr"):
        meta(ownr="a@b.co")
    assert meta(owner="a@b.co", description="d", tags=["x"], deprecated=True, deleted=False) is not None


def test_bad_versions() -> None:
    for version, kind in {0: ValueError, -1: ValueError, "1": TypeError, 1.0: TypeError}.items():
        with refused(kind, "V", "version"):

            @dataset(version=version)
            class V:
                t: datetime
