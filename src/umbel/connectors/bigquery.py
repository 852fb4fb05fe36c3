"""BigQuery: tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from umbel.connectors.table import TableConnector
from umbel.definitions.arguments import DataSource
from umbel.definitions.secret import Secret


@dataclass(frozen=True, kw_only=True)
class BigQuery(DataSource):
    """A BigQuery dataset.

    Args:
        project_id: of the project.
        dataset_id: of the dataset.
        service_account_key: the key as a dict, or a Secret.
    """

    project_id: str
    dataset_id: str
    service_account_key: dict[str, Any] | Secret

    needs: ClassVar[str] = "a table and a cursor: .table(...)"

    def table(self, table_name: str, cursor: str | None = None) -> TableConnector:
        """Return the connector for one table.

        Args:
            table_name: its name.
            cursor: the column that increases with every change.
        """
        return TableConnector(source=self, table=table_name, cursor=cursor)
