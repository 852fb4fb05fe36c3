"""`@mock` and `log`: tests with an implicit mock client."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Any

from umbel.client.response import Response
from umbel.errors import InvalidValue
from umbel.testing.client import MockClient
from umbel.testing.latest import latest, scope

if TYPE_CHECKING:
    import pandas as pd


def mock(func: Callable[..., Any]) -> Callable[..., Any]:
    """Pass a new `MockClient` to a test as the keyword argument `client`.

    Coroutine functions and generators (fixtures) use it until they end. Functions with "data_integration" in their name are
    for real servers, and are skipped.
    """
    wrapper = next(make(func) for is_kind, make in _KINDS if is_kind(func))
    # Not functools.wraps: pytest would follow it to the original signature and look for a fixture `client`.
    for name in ("__name__", "__doc__", "__module__", "__qualname__"):
        setattr(wrapper, name, getattr(func, name))
    return wrapper


def _is_run(func: Callable[..., Any]) -> bool:
    return "data_integration" not in func.__name__


def _plain(func: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if not _is_run(func):
            return None
        with scope():
            return func(*args, **kwargs, client=MockClient())

    return wrapper


def _coroutine(func: Callable[..., Any]) -> Callable[..., Any]:
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        if not _is_run(func):
            return None
        with scope():
            return await func(*args, **kwargs, client=MockClient())

    return wrapper


def _generator(func: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(*args: Any, **kwargs: Any) -> Iterator[Any]:
        if _is_run(func):
            with scope():
                yield from func(*args, **kwargs, client=MockClient())

    return wrapper


def _asynchronous_generator(func: Callable[..., Any]) -> Callable[..., Any]:
    async def wrapper(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        if _is_run(func):
            with scope():
                async for each in func(*args, **kwargs, client=MockClient()):
                    yield each

    return wrapper


_KINDS: tuple[tuple[Callable[[Any], bool], Callable[[Callable[..., Any]], Callable[..., Any]]], ...] = (
    (inspect.iscoroutinefunction, _coroutine),
    (inspect.isgeneratorfunction, _generator),
    (inspect.isasyncgenfunction, _asynchronous_generator),
    (callable, _plain),
)


def log(dataset: Any, df: pd.DataFrame) -> Response:
    """Push rows directly into a dataset of the latest mock client.

    The dataset may be one computed by a pipeline.

    Args:
        dataset: a committed dataset or its name.
        df: the rows.
    """
    client = latest()
    if client is None:
        raise InvalidValue(
            "log: there is no mock client here", hint="decorate the test with @mock, or make a MockClient"
        )
    return client.log_to(dataset, df)
