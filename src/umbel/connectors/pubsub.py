"""PubSub: topics of messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from umbel.connectors.declared import DataConnector, DataSource
from umbel.connectors.formats import check_format
from umbel.connectors.secret import Secret


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
    """Google PubSub.

    Args:
        project_id: of the project.
        service_account_key: the key as a dict, or where it is kept.
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
