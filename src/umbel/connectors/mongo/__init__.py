"""Mongo: collections, read by a cursor field."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from umbel.connectors.credentials import check_credential
from umbel.connectors.splits import SplitSource
from umbel.connectors.table import TableConnector
from umbel.definitions.arguments import DataSource, ReadOptions
from umbel.definitions.secret import Credential
from umbel.errors import NotSupported

if TYPE_CHECKING:
    from umbel.connectors.mongo.server import MongoServer


@dataclass(frozen=True, kw_only=True)
class Mongo(DataSource):
    """A MongoDB database.

    Args:
        host: `host`, `host:port`, several of them with commas, the name of an Atlas cluster, or a `mongodb://` or
            `mongodb+srv://` address with options and without a login.
        db_name: of the database.
        username: the user; empty for a server without logins.
        password: the user's password.
    """

    host: str
    db_name: str
    username: Credential
    password: Credential = field(repr=False)

    needs: ClassVar[str] = "a collection and a cursor: .collection(...)"

    def collection(self, collection_name: str, cursor: str | None = None) -> MongoCollection:
        """Return the connector for one collection.

        Args:
            collection_name: its name.
            cursor: the field that increases with every change; a dot leads into a subdocument.
        """
        return MongoCollection(source=self, table=collection_name, cursor=cursor)


@dataclass(frozen=True, kw_only=True)
class MongoCollection(TableConnector):
    """One collection."""

    def check_source(self, cdc: str) -> None:
        if cdc != "native":  # accepted when it is declared, and refused by a server
            super().check_source(cdc)

    def reader_of(self, options: ReadOptions) -> SplitSource:
        if options.cdc in {"native", "debezium"} or self.cursor is None:
            raise NotSupported(
                f"{self.title}, collection '{self.table}': cdc '{options.cdc}' cannot be read: change streams are not supported",
                hint='.collection(name, cursor="updated_at") with cdc="upsert" for a keyed dataset, "append" for a keyless '
                "one; or let Debezium write the changes to Kafka",
            )
        server = self._server
        from umbel.connectors.mongo.cursor import MongoCursor

        return MongoCursor(server, self.table, options, self.cursor)

    @property
    def _server(self) -> MongoServer:
        from umbel.connectors.mongo.server import MongoServer, driver

        assert isinstance(self.source, Mongo)
        driver()
        for each in (self.source.username, self.source.password):
            check_credential(each, self.title)
        return MongoServer.of(self.title, self.source)
