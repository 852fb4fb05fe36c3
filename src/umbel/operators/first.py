"""First: the row of each key with the smallest timestamp.

Class `First`; field `keys`.
"""

from __future__ import annotations

from dataclasses import dataclass

from umbel.operators.choice import Choice


@dataclass(frozen=True, eq=False, kw_only=True)
class First(Choice):
    """Key the rows by `keys` and keep the earliest of each. Of equal timestamps the row seen first wins."""
