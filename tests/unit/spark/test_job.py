"""What happens in a batch of the live job must reach Spark."""

from __future__ import annotations

from typing import Any

import pytest
from polars.exceptions import PanicException

from umbel.spark.job import LiveJob


@pytest.mark.parametrize(
    ("error", "reported"),
    [
        (PanicException("out of bounds"), "PanicException: out of bounds"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (OSError("disk full"), "disk full"),
    ],
)
def test_a_batch_ends_with_an_exception_that_is_passed_on(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, reported: str
) -> None:
    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr(LiveJob, "_run_batch", fails)
    job: Any = object.__new__(LiveJob)
    with pytest.raises(Exception, match=reported):  # py4j passes on no BaseException, and Spark waits for ever
        job._batch(None, 1)
