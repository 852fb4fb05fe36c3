"""Older spellings of the client's methods."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


class OlderSpellings:
    """Older method names of a client.

    Each use warns and names the new method.
    """

    def sync(self, datasets: Sequence[Any] = (), featuresets: Sequence[Any] = (), **options: Any) -> Any:
        """Commit definitions; the older name of `commit`."""
        _deprecated("sync", "commit(message=..., datasets=..., featuresets=...)")
        tier = options.pop("tier", None)
        options.setdefault("env", tier)
        message = options.pop("message", "sync")
        return self._call("commit", message, datasets=datasets, featuresets=featuresets, **options)

    def extract_features(
        self,
        input_feature_list: Sequence[Any],
        output_feature_list: Sequence[Any],
        input_dataframe: pd.DataFrame,
        **options: Any,
    ) -> Any:
        """Query features as of now; the older name of `query`."""
        _deprecated("extract_features", "query(inputs=..., outputs=..., input_dataframe=...)")
        return self._call("query", input_feature_list, output_feature_list, input_dataframe, **options)

    def extract_historical_features(
        self,
        input_feature_list: Sequence[Any],
        output_feature_list: Sequence[Any],
        timestamp_column: str,
        **options: Any,
    ) -> Any:
        """Query features as of instants; the older name of `query_offline`."""
        _deprecated("extract_historical_features", "query_offline(inputs=..., outputs=..., timestamp_column=...)")
        return self._call("query_offline", input_feature_list, output_feature_list, timestamp_column, **options)

    def _call(self, name: str, *args: Any, **options: Any) -> Any:
        return getattr(self, name)(*args, **options)


def _deprecated(old: str, new: str) -> None:
    warnings.warn(f"client.{old} is an older spelling: use client.{new}", DeprecationWarning, stacklevel=3)
