"""The scheme `extras`: files of this machine, in a folder `state` of the folder that the URL names."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import SplitResult

from umbel.state import file
from umbel.state.port import Store


def open_url(url: SplitResult, shards: int, settings: Mapping[str, str]) -> Store:
    """Open `extras:///directory`."""
    return file.open_url(url._replace(path=f"{url.path}/state"), shards, settings)
