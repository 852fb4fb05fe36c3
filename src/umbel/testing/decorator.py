"""`@mock` and `log`: tests that use a mock client without making one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from umbel.client.response import Response
from umbel.errors import InvalidValue
from umbel.testing.client import MockClient, latest

if TYPE_CHECKING:
    import pandas as pd


def mock(func: Callable[..., Any]) -> Callable[..., Any]:
    """Pass a fresh `MockClient` to a test as the keyword argument `client`.

    Functions with "data_integration" in their name are for real servers, and are not run.
    """

    # Not functools.wraps: pytest would follow it to the original signature and look for a fixture `client`.
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if "data_integration" in func.__name__:
            return None
        before = latest.get()
        try:
            return func(*args, **kwargs, client=MockClient())
        finally:
            latest.set(before)

    wrapper.__name__, wrapper.__doc__, wrapper.__module__ = func.__name__, func.__doc__, func.__module__
    wrapper.__qualname__ = func.__qualname__
    return wrapper


def log(dataset: Any, df: pd.DataFrame) -> Response:
    """Push rows straight into a dataset of the mock client made last, also into one made by a pipeline.

    Args:
        dataset: a committed dataset or its name.
        df: the rows.
    """
    client = latest.get()
    if client is None:
        raise InvalidValue(
            "log: there is no mock client here", hint="decorate the test with @mock, or make a MockClient"
        )
    return client.log_to(dataset, df)
