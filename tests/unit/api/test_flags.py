"""Arguments that are True or False (api §2.1 to §2.3, §3.2)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import numpy as np
import pytest

from tests.unit.refusals import refusal
from umbel.connectors import Webhook, source
from umbel.datasets import Dataset, dataset, field, index
from umbel.lib import meta

__owner__ = "team@example.com"


def _dataset(**options: Any) -> Dataset:
    @dataset(**options)
    class D:
        k: int = field(key=True)
        t: datetime

    return D


def _source(**options: Any) -> Callable[[type], type]:
    return source(Webhook(name="w").endpoint("e"), disorder="1d", cdc="append", **options)


DEFINITIONS: list[tuple[str, Callable[..., Any]]] = [
    ("key", field),
    ("timestamp", field),
    ("erase_key", lambda **flags: field(key=True, **flags)),
    ("index", _dataset),
    ("online", _dataset),
    ("offline", _dataset),
    ("online", lambda **flags: index(_dataset(), **flags)),
    ("deleted", meta),
    ("deprecated", meta),
    ("deleted", field().meta),
    ("deprecated", field().meta),
    ("bounded", lambda **flags: _source(idleness="1h", **flags)),
]


@pytest.mark.parametrize("value", ["no", "", 0, 1, np.False_], ids=repr)
@pytest.mark.parametrize(("flag", "define"), DEFINITIONS)
def test_what_is_neither_true_nor_false_is_refused(flag: str, define: Callable[..., Any], value: Any) -> None:
    with refusal(ValueError, flag, f"{flag} must be True or False, found {value!r}"):
        define(**{flag: value})
