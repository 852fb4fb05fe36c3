"""Iceberg: tables of a catalog."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

from umbel.connectors.credentials import check_credential, resolved
from umbel.connectors.splits import SplitSource
from umbel.definitions.arguments import DataConnector, DataSource, ReadOptions, check_text
from umbel.definitions.secret import Credential
from umbel.errors import InvalidValue


@dataclass(frozen=True, kw_only=True)
class IcebergConnector(DataConnector):
    """One table of a catalog.

    Args:
        table: its name, with its namespace.
    """

    table: str

    cdcs: ClassVar[frozenset[str]] = frozenset({"native"})
    placed_by: ClassVar[tuple[str, ...]] = ("table",)

    def reader_of(self, options: ReadOptions) -> SplitSource:
        from umbel.connectors.iceberg_catalogs import iceberg
        from umbel.connectors.iceberg_source import IcebergSource
        from umbel.connectors.iceberg_tables import IcebergPlace

        iceberg()
        assert isinstance(self.source, Iceberg)
        for each in (self.source.uri, *self.source.properties.values()):
            check_credential(each, self.title)
        title = f"Iceberg '{self.source.name}', table '{self.table}'"
        return IcebergSource(IcebergPlace(title, partial(_loaded, self.source, self.table)), self.table, options)


@dataclass(frozen=True, kw_only=True)
class Iceberg(DataSource):
    """A catalog of Iceberg tables.

    Args:
        uri: of the catalog: `sqlite:////path/catalog.db`, `postgresql://…`, `https://…` (REST).
        properties: further ones as in PyIceberg, such as `s3.endpoint` or `token`.
    """

    uri: Credential = field(repr=False)
    properties: Mapping[str, Credential] = field(default_factory=dict, repr=False)

    needs: ClassVar[str] = "a table: .table(...)"

    def table(self, table_name: str) -> IcebergConnector:
        """Return the connector for one table.

        Args:
            table_name: its name, with its namespace: `shop.orders`.
        """
        check_text(f"Iceberg '{self.name}'", "table", table_name)
        if "." not in table_name:
            raise InvalidValue(
                f"Iceberg '{self.name}': table '{table_name}' has no namespace", hint='.table("namespace.table")'
            )
        return IcebergConnector(source=self, table=table_name)


def _loaded(source: Iceberg, table: str) -> object:
    from umbel.connectors.iceberg_catalogs import from_catalog

    properties = {name: resolved(value) for name, value in source.properties.items()}
    return from_catalog(source.name, resolved(source.uri), properties, table)
