"""Files: CSV, NDJSON and Parquet files in a folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from umbel.connectors.declared import DataConnector, DataSource
from umbel.connectors.formats import CSV, check_format

FORMATS = ("json", "parquet")


@dataclass(frozen=True, kw_only=True)
class FilesConnector(DataConnector):
    """Files of one kind.

    Args:
        folder: absolute path of the folder.
        pattern: which files in it, with `*` and `**`; also gzipped ones.
        format: "json" (one object per line), "parquet" or CSV.
    """

    folder: str
    pattern: str
    format: str | CSV

    @property
    def nests(self) -> bool:
        return self.format == "json"


@dataclass(frozen=True, kw_only=True)
class Files(DataSource):
    """A folder of files; new files are picked up as they appear. A file must not change once it is there.

    Args:
        folder: its path.
    """

    folder: str

    needs: ClassVar[str] = "which files: .path(...)"

    def path(self, pattern: str, format: Any = "json") -> FilesConnector:
        """Return the connector for the files that match a pattern such as `2013/*.json.gz`.

        Args:
            pattern: relative to the folder, with `*` and `**`.
            format: "json", "parquet" or CSV(...).
        """
        check_format(f"Files '{self.name}', path '{pattern}'", format, FORMATS, CSV)
        return FilesConnector(source=self, folder=str(Path(self.folder).absolute()), pattern=pattern, format=format)
