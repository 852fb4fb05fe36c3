"""S3: files in a bucket."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from umbel.connectors.declared import DataConnector, DataSource, Delivery, refuse_options, require_incremental
from umbel.connectors.formats import CSV, check_format
from umbel.connectors.s3path import split_path
from umbel.connectors.secret import Credential
from umbel.errors import InvalidAttribute, InvalidType, InvalidValue
from umbel.types.durations import parse_duration

FORMATS = ("json", "parquet", "hudi", "delta")
NATIVE = {"delta": frozenset({"native"}), "hudi": frozenset({"append", "upsert", "native"})}


@dataclass(frozen=True, kw_only=True)
class S3Connector(DataConnector):
    """Files of one kind in a bucket.

    Args:
        bucket: its name.
        prefix: what all paths begin with.
        suffix: what follows, with wildcards and dates; None for everything below the prefix.
        format: "json", "parquet", "hudi", "delta" or CSV.
        presorted: whether paths sort by time.
        spread: how far from the date in its path a file's rows may lie.
    """

    bucket: str
    prefix: str
    suffix: str | None
    format: str | CSV
    presorted: bool = False
    spread: str | None = None

    @property
    def nests(self) -> bool:
        return self.format == "json"

    @property
    def cdcs(self) -> frozenset[str]:  # type: ignore[override]
        """How rows read from it may be meant."""
        return NATIVE.get(str(self.format), DataConnector.cdcs)

    @property
    def title(self) -> str:
        return f"{super().title} with format {self.format if isinstance(self.format, str) else 'CSV'}"

    def check_sink(self, delivery: Delivery) -> None:
        owner = f"sink to {self.title}"
        assert isinstance(self.source, S3)
        refuse_options(owner, cdc=delivery.cdc)
        if self.format != "delta":
            raise InvalidValue(
                f"{owner}: format must be 'delta', found {self.format!r}", hint='.bucket(..., format="delta")'
            )
        require_incremental(owner, delivery.how)
        if self.source.aws_access_key_id or self.source.aws_secret_access_key or self.source.role_arn:
            raise InvalidValue(
                f"{owner}: keys and role_arn cannot be set; the platform's own role writes", hint="leave them out"
            )


@dataclass(frozen=True, kw_only=True)
class S3(DataSource):
    """S3 buckets, and what speaks their protocol.

    Args:
        aws_access_key_id: of the key that may read them.
        aws_secret_access_key: of the same.
        role_arn: the role that may read them, instead of a key.
    """

    aws_access_key_id: Credential | None = None
    aws_secret_access_key: Credential | None = None
    role_arn: str | None = None

    needs: ClassVar[str] = "a bucket, and a prefix or a path: .bucket(...)"

    def bucket(
        self,
        bucket_name: str,
        prefix: str | None = None,
        path: str | None = None,
        format: Any = CSV(),  # noqa: B008  it is frozen
        presorted: bool = False,
        spread: str | None = None,
    ) -> S3Connector:
        """Return the connector for files in one bucket.

        Args:
            bucket_name: its name.
            prefix: what their paths begin with.
            path: their paths with wildcards and dates, instead of a prefix.
            format: "json", "parquet", "hudi", "delta" or CSV(...).
            presorted: whether paths sort by time.
            spread: how far from the date in its path a file's rows may lie; needs `path`.
        """
        owner = f"S3 '{self.name}', bucket '{bucket_name}'"
        if (prefix is None) == (path is None):
            raise InvalidAttribute(
                f"{owner}: give either prefix or path", hint='prefix="folder", or path="folder/%Y/*"'
            )
        if spread is not None and path is None:
            raise InvalidAttribute(f"{owner}: spread needs path", hint='path="folder/%Y-%m-%d/*"')
        check_format(owner, format, FORMATS, CSV)
        _check_spread(owner, spread)
        start, rest = (prefix or "", None) if path is None else split_path(path)
        return S3Connector(
            source=self,
            bucket=bucket_name,
            prefix=start,
            suffix=rest,
            format=format,
            presorted=presorted,
            spread=spread,
        )


def _check_spread(owner: str, spread: Any) -> None:
    if spread is None:
        return
    try:
        parse_duration(spread)
    except (InvalidType, InvalidValue) as error:
        raise InvalidValue(f"{owner}: spread: {error.message}", hint=error.hint) from error
