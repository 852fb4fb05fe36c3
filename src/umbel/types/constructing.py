"""Class methods of struct classes for building struct expressions, which are built on types."""

from __future__ import annotations

from typing import Any


def of_fields(cls: type, /, **fields: Any) -> Any:
    """Return a struct expression from one expression per field."""
    from umbel.expr import make_struct

    return make_struct(fields, cls)


def of_lists(cls: type, /, **fields: Any) -> Any:
    """Return a list-of-structs expression from one list expression per field, cut to the shortest."""
    from umbel.expr import zip_struct

    return zip_struct(fields, cls)
