"""Latest: every row becomes the row of its key from its timestamp on.

Class `Latest`; field `keys`.
"""

from __future__ import annotations

from dataclasses import dataclass

from umbel.operators.choice import Choice


@dataclass(frozen=True, eq=False, kw_only=True)
class Latest(Choice):
    """Key the rows by `keys`; a later row ends the earlier one. Of equal timestamps the row seen last wins."""
