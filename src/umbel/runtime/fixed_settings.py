"""The settings of a deployment that are fixed when it is made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from umbel.errors import InvalidValue
from umbel.windowing.tiling import Tiling

if TYPE_CHECKING:
    from pathlib import Path

    from umbel.catalog.catalog import Catalog

SHARDED = "shards"
"""The setting with the number of shards."""
SHARDS = 4
DEFAULT = Tiling()


def check_grid(accuracy: float | None, exact_instants: int | None) -> None:
    """Refuse settings of the grid before anything is stored."""
    Tiling(
        DEFAULT.accuracy if accuracy is None else accuracy, DEFAULT.exact if exact_instants is None else exact_instants
    )


class FixedSettings:
    """The settings that are fixed when a deployment is made.

    Args:
        catalog: the catalog that stores them.
        folder: of the deployment, for messages.
    """

    def __init__(self, catalog: Catalog, folder: Path) -> None:
        self._catalog, self._folder = catalog, folder
        self._is_older = bool(catalog.latest())

    def tiling(self, accuracy: float | None, exact_instants: int | None) -> Tiling:
        """Return the resolution of continuous windows' tiles.

        Raises:
            InvalidValue: it was fixed at another one.
        """
        return Tiling(
            float(self.setting("accuracy", accuracy, DEFAULT.accuracy)),
            int(self.setting("exact-instants", exact_instants, DEFAULT.exact)),
        )

    def setting(self, name: str, provided: float | None, default: float) -> Any:
        """Return a setting: the fixed value, else the provided one, else the default.

        Args:
            name: as on the command line.
            provided: the requested value, None for any.
            default: of a new deployment, and of one made before there was such a setting.

        Raises:
            InvalidValue: it was fixed at another value.
        """
        found = self._catalog.setting(name, default if provided is None or self._is_older else provided)
        if provided is not None and found != provided:
            raise InvalidValue(
                f"--{name} {provided}: the deployment in {self._folder} was made with {found}, and its state is kept accordingly",
                hint=f"leave --{name} out; or make another deployment: --dir",
            )
        return found
