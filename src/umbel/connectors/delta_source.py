"""Reading a Delta table: the rows of one version, then the changes of later ones.

A version that changes or deletes rows has its changes in the table's change data feed, or removes whole files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from umbel.connectors.delta_tables import FEED, DataFile, DeltaPlace, TableVersion, check_features, types_of
from umbel.connectors.sql.following import ANEW
from umbel.connectors.versioned_source import VersionedSource
from umbel.errors import InvalidValue

_SET_FEED = f"ALTER TABLE … SET TBLPROPERTIES ({FEED} = true)"


@dataclass(frozen=True)
class DeltaSource(VersionedSource):
    """A Delta table whose versions are read."""

    server: DeltaPlace
    deleted: ClassVar[str] = "were deleted (by VACUUM)"

    def first_state(self) -> dict[str, Any]:
        table = self.server.opened()
        metadata, protocol = table.metadata(), table.protocol()
        check_features(self.title, protocol.reader_features or (), metadata.configuration)
        types = self.columns_in(types_of(table.schema().to_json()))
        has_feed = _has_feed(metadata.configuration)
        if self.options.is_keyed and not has_feed:
            raise InvalidValue(
                f"{self.title}: the table has no change data feed, which a keyed dataset needs", hint=_SET_FEED
            )
        return {"version": table.version(), "table": metadata.id, "types": types, "feed": has_feed}

    def first_files(self, state: Mapping[str, Any]) -> Sequence[DataFile]:
        return self.server.snapshot(int(state["version"]))

    def versions(self, state: Mapping[str, Any]) -> Iterator[tuple[int, TableVersion]]:
        latest = self._latest(state)
        for version in range(int(state["version"]) + 1, latest + 1):
            try:
                commit = self.server.commit(version)
            except FileNotFoundError:
                raise InvalidValue(
                    f"{self.title}: version {version} is missing in the table's log, which was cleaned up before it "
                    f"was read; the latest is {latest}",
                    hint=ANEW,
                ) from None
            yield version, commit

    def _latest(self, state: Mapping[str, Any]) -> int:
        table = self.server.opened()
        latest, read = int(table.version()), int(state["version"])
        if latest < read or table.metadata().id != state["table"]:
            what = f"it was read up to version {read}, and has {latest}" if latest < read else "it was made anew"
            raise InvalidValue(f"{self.title}: this is another table than before: {what}", hint=ANEW)
        return latest

    def check_version(self, version: int, commit: TableVersion, state: dict[str, Any]) -> None:
        subject = f"{self.title}, version {version}"
        check_features(subject, sorted(commit.features), commit.settings or {})
        if commit.settings is not None:
            state["feed"] = _has_feed(commit.settings)
        if commit.table is not None and commit.table != state["table"]:
            raise InvalidValue(f"{subject}: the table was made anew", hint=ANEW)
        for name, kind in state["types"].items():
            now = kind if commit.schema is None else commit.schema.get(name)
            if now is None:
                raise InvalidValue(f"{subject}: column '{name}' was dropped, or renamed", hint=ANEW)
            if now != kind:
                raise InvalidValue(f"{subject}: column '{name}' was of type {kind}, and is of {now}", hint=ANEW)
        if commit.has_changes and not state["feed"]:
            raise InvalidValue(
                f"{subject}: it changes or deletes rows, and the table has no change data feed",
                hint=f"{_SET_FEED}; then {ANEW}",
            )


def _has_feed(settings: Mapping[str, str | None]) -> bool:
    return str(settings.get(FEED) or "").lower() == "true"
