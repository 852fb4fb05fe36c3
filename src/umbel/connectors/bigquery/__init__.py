"""BigQuery: tables, read by a cursor column."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from umbel.connectors.credentials import check_credential
from umbel.connectors.splits import SplitSource
from umbel.connectors.table import CursorTable
from umbel.definitions.arguments import DataSource, ReadOptions
from umbel.definitions.secret import Secret


@dataclass(frozen=True, kw_only=True)
class BigQueryTable(CursorTable):
    """One table of BigQuery."""

    def reader_of(self, options: ReadOptions) -> SplitSource:
        from umbel.connectors.bigquery.cursor import BigQueryCursor
        from umbel.connectors.bigquery.server import BigQueryServer, driver

        assert isinstance(self.source, BigQuery)
        assert self.cursor is not None
        self.check_options(options)
        driver()
        key = self.source.service_account_key
        if isinstance(key, Secret):
            check_credential(key, self.title)
        server = BigQueryServer(self.title, self.source.project_id, self.source.dataset_id, key)
        return BigQueryCursor(server, self.table, options, server.field_of(self.cursor, options.columns))


@dataclass(frozen=True, kw_only=True)
class BigQuery(DataSource):
    """A BigQuery dataset.

    Args:
        project_id: of the project, which pays for the queries.
        dataset_id: of the dataset.
        service_account_key: the key as a dict, or a Secret.
    """

    project_id: str
    dataset_id: str
    service_account_key: dict[str, Any] | Secret = field(repr=False)

    needs: ClassVar[str] = "a table and a cursor: .table(...)"

    def table(self, table_name: str, cursor: str | None = None) -> BigQueryTable:
        """Return the connector for one table.

        Args:
            table_name: its name; `dataset.name` or `project.dataset.name` for one of another dataset.
            cursor: the column that increases with every change.
        """
        return BigQueryTable(source=self, table=table_name, cursor=cursor)
