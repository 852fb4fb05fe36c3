"""Google Cloud Storage: files in a bucket; read as those of S3."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from umbel.connectors.s3 import S3Connector, in_bucket, refuse_tables
from umbel.definitions.arguments import DataConnector, DataSource, Delivery, ReadOptions
from umbel.definitions.secret import Credential
from umbel.formats.declarations import CSV

if TYPE_CHECKING:
    from umbel.connectors.sinks import SinkWriter, WriteOptions
    from umbel.connectors.splits import SplitSource


@dataclass(frozen=True, kw_only=True)
class GCSConnector(S3Connector):
    """Files of one kind in a bucket of Google's."""

    @property
    def connect(self) -> Callable[[], Any]:
        from umbel.connectors.credentials import check_credential
        from umbel.connectors.object_stores import gcs_bucket

        assert isinstance(self.source, GCS)
        check_credential(self.source.service_account_key, self.title)
        return partial(gcs_bucket, self.source, self.bucket)

    def table_reader(self, options: ReadOptions) -> SplitSource:
        refuse_tables(self)
        raise AssertionError(self.format)

    def check_sink(self, delivery: Delivery) -> None:
        DataConnector.check_sink(self, delivery)

    def check_writer(self) -> None:
        """Refuse: it is read only."""
        DataConnector.check_writer(self)

    def writer_of(self, options: WriteOptions) -> SinkWriter:
        return DataConnector.writer_of(self, options)


@dataclass(frozen=True, kw_only=True)
class GCS(DataSource):
    """Buckets of Google Cloud Storage.

    Args:
        service_account_key: the JSON of a service account's key with read access; None for the worker's own credentials.
    """

    service_account_key: Credential | None = field(default=None, repr=False)

    needs: ClassVar[str] = "a bucket, and a prefix or a path: .bucket(...)"

    def bucket(
        self,
        bucket_name: str,
        prefix: str | None = None,
        path: str | None = None,
        format: Any = CSV(),  # noqa: B008  it is frozen
        presorted: bool = False,
        spread: str | None = None,
    ) -> GCSConnector:
        """Return the connector for files in one bucket.

        Args:
            bucket_name: its name.
            prefix: the common prefix of their paths.
            path: their paths with wildcards and dates, instead of a prefix.
            format: "json", "parquet", "avro" or CSV(...).
            presorted: True if paths sort by time.
            spread: the maximum distance of a row's time from the date in its file's path; needs `path`.
        """
        return in_bucket(GCSConnector, self, bucket_name, prefix, path, format, presorted, spread)
