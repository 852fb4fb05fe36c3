"""Mongo: collections."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from umbel.connectors.table import TableConnector
from umbel.definitions.arguments import DataSource
from umbel.definitions.secret import Credential


@dataclass(frozen=True, kw_only=True)
class Mongo(DataSource):
    """A MongoDB database.

    Args:
        host: of the server.
        db_name: of the database.
        username: the user.
        password: the user's password.
    """

    host: str
    db_name: str
    username: Credential
    password: Credential

    needs: ClassVar[str] = "a collection and a cursor: .collection(...)"

    def collection(self, collection_name: str, cursor: str | None = None) -> TableConnector:
        """Return the connector for one collection.

        Args:
            collection_name: its name.
            cursor: the field that increases with every change.
        """
        return TableConnector(source=self, table=collection_name, cursor=cursor)
