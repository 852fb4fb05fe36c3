"""PubSub: topics of messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from umbel.definitions.arguments import DataConnector, DataSource
from umbel.definitions.secret import Secret
from umbel.formats.declarations import check_format


@dataclass(frozen=True, kw_only=True)
class PubSubConnector(DataConnector):
    """One topic."""

    topic_id: str
    format: str = "json"

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
    service_account_key: dict[str, Any] | Secret

    needs: ClassVar[str] = "a topic: .topic(...)"

    def topic(self, topic_id: str, format: str = "json") -> PubSubConnector:
        """Return the connector for one topic.

        Args:
            topic_id: of the topic.
            format: "json".
        """
        check_format(f"PubSub '{self.name}', topic '{topic_id}'", format, ("json",))
        return PubSubConnector(source=self, topic_id=topic_id)
