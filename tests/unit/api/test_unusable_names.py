"""Names that only classes made by `type()` can have: an empty one, one that is no identifier."""

from datetime import datetime
from typing import Any

import pytest

from tests.unit.api.streams import Events, built
from tests.unit.refusals import Cases, check_refused
from umbel.api.dataset import dataset
from umbel.api.featureset import featureset
from umbel.expr import lit
from umbel.types.structs import struct

refused = Cases()


def made(**members: Any) -> type:
    return type("D", (), {"__annotations__": members, "__module__": __name__})


@refused(ValueError, "'D'", "a field name is empty", "'t'")
def empty_field() -> None:
    dataset(made(**{"": int, "t": datetime}))


@refused(ValueError, "'D'", "a feature name is empty")
def empty_feature() -> None:
    featureset(made(**{"": int, "a": int}))


@refused(TypeError, "assign", "D.p", "found ''")
def empty_assigned() -> None:
    built(lambda e: e.assign(**{"": lit(1).astype(int)}), Events)


def test_fields_of_structs() -> None:
    with pytest.raises(ValueError, match="struct D is not well defined") as caught:
        struct(made(**{"": int, "class": int, "a b": int, "ok": int}))
    assert all(f"'{name}' cannot name a field" in str(caught.value) for name in ("", "class", "a b"))


@pytest.mark.parametrize(("define", "error", "texts"), refused.found)
def test_refused(define: Any, error: type[Exception], texts: tuple[str, ...]) -> None:
    check_refused(define, error, texts)
