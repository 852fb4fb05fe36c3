"""PubSub: topics of messages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, cast

from umbel.definitions.arguments import DataConnector, DataSource, ReadOptions, check_text
from umbel.definitions.secret import Secret
from umbel.errors import NotSupported
from umbel.formats.declarations import check_format

if TYPE_CHECKING:
    from umbel.connectors.splits import SplitSource


@dataclass(frozen=True, kw_only=True)
class PubSubConnector(DataConnector):
    """One topic."""

    topic_id: str
    format: str = "json"

    is_stream: ClassVar[bool] = True

    @property
    def project(self) -> PubSub:
        """The source of the topic."""
        return cast("PubSub", self.source)

    @property
    def title(self) -> str:
        return f"{super().title}, topic '{self.topic_id}'"

    @property
    def letter_format(self) -> Any:
        return self.format

    def reader_of(self, options: ReadOptions) -> SplitSource:
        from umbel.connectors.pubsub.client import check_installed, check_key
        from umbel.connectors.pubsub.source import PubSubSource

        if self.source.is_reference:
            raise NotSupported(
                f"{self.title}: it is registered elsewhere, and this version has no register of sources",
                hint="PubSub(name=..., project_id=..., service_account_key=...)",
            )
        check_installed()
        check_key(self)
        return PubSubSource(self, options)

    @property
    def nests(self) -> bool:
        return True


@dataclass(frozen=True, kw_only=True)
class PubSub(DataSource):
    """A Google PubSub project.

    Args:
        project_id: of the project.
        service_account_key: the key as a dict, or a Secret.
    """

    project_id: str
    service_account_key: dict[str, Any] | Secret = field(repr=False)

    needs: ClassVar[str] = "a topic: .topic(...)"

    def topic(self, topic_id: str, format: str = "json") -> PubSubConnector:
        """Return the connector for one topic.

        Args:
            topic_id: of the topic.
            format: "json".
        """
        check_text(f"PubSub '{self.name}'", "topic_id", topic_id)
        check_format(f"PubSub '{self.name}', topic '{topic_id}'", format, ("json",))
        return PubSubConnector(source=self, topic_id=topic_id)
