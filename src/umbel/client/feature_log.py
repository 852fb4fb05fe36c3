"""The client's methods on logged answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from umbel.client.corrections import Corrections, compare
from umbel.client.names import names_of
from umbel.client.transport import FeatureQuery, OfflineFiles, OfflineRows, Transport
from umbel.query.columns import instants
from umbel.query.rows import series_of

if TYPE_CHECKING:
    from datetime import datetime

    import pandas as pd


class FeatureLogMethods:
    """The methods of a client on the answers of queries with `log=True`."""

    _transport: Transport
    _branch: str

    def feature_log(
        self, workflow: str | None = None, since: datetime | str | None = None, until: datetime | str | None = None
    ) -> pd.DataFrame:
        """Return the logged answers of queries with `log=True`, ordered by time.

        Each row has "timestamp" and "workflow" as its first columns.

        Args:
            workflow: the label of the queries; all when None.
            since: the start instant, inclusive.
            until: the end instant, exclusive.
        """
        return self._transport.feature_log(self._branch, workflow, since, until).frame()

    def corrections(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any] = (),
        workflow: str | None = None,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
    ) -> Corrections:
        """Compare logged answers with those that the same queries would get today.

        A query answers from the rows that have arrived; rows that arrive later correct its answer. Each logged answer is computed
        again as of its own instant, by the definitions of today. Answers younger than the disorder of their sources may yet
        be corrected.

        Args:
            inputs: all input features of the queries, in any order; logged rows of queries with others are skipped.
            outputs: the features and featuresets to compare; all that were logged when empty.
            workflow: the label of the queries; all when None.
            since: the start instant, inclusive.
            until: the end instant, exclusive.

        Raises:
            UnknownName: an input or output is not committed.
            InvalidValue: logged values of a feature have another type than it has today.
        """
        names = names_of(inputs, "inputs")

        def ask(features: Sequence[str], rows: pd.DataFrame) -> Mapping[str, Sequence[Any]]:
            request = FeatureQuery(names, tuple(features), logged.types, workflow or "default")
            requested = OfflineRows(rows[[*names]], instants(rows, "timestamp"))
            answer = self._transport.query_offline(
                self._branch, request, "timestamp", requested, OfflineFiles(None, {}, None)
            )
            assert not isinstance(answer, dict)
            return {name: series_of(answer.columns[name]).to_list() for name in features}

        logged = self._transport.feature_log(self._branch, workflow, since, until)
        return compare(logged, names, names_of(outputs, "outputs") if outputs else (), ask)
