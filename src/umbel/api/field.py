"""Fields: the columns of a dataset, as declared."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from umbel.api.flags import check_flags
from umbel.api.metadata import metadata
from umbel.definitions.records import Metadata
from umbel.errors import InvalidValue
from umbel.types.arguments import checked_call
from umbel.types.dtypes import DType

NOTHING = Metadata()


@dataclass(frozen=True, slots=True)
class FieldOptions:
    """The arguments of `field(...)`.

    Args:
        key: True if the field is part of the row's key.
        timestamp: True if the field is the row's event time.
        erase_key: True if rows can be erased by the field.
    """

    key: bool = False
    timestamp: bool = False
    erase_key: bool = False
    described: Metadata = NOTHING

    def meta(
        self,
        owner: str = "",
        description: str = "",
        tags: Sequence[str] = (),
        deprecated: bool = False,
        deleted: bool = False,
    ) -> FieldOptions:
        """Set the field's owner, description and tags."""
        check_flags("meta", deprecated=deprecated, deleted=deleted)
        for flag, value in {"deprecated": deprecated, "deleted": deleted}.items():
            if value:
                raise InvalidValue(f"meta: a dataset field cannot be {flag}", hint="make a new version of the dataset")
        return replace(self, described=metadata(owner, description, tags))


@checked_call
def field(key: bool = False, timestamp: bool = False, erase_key: bool = False) -> Any:
    """Declare the role of a dataset's field.

    Args:
        key: the field is part of the row's key, with the dataset's other key fields.
        timestamp: the field is the row's event time.
        erase_key: rows can be erased by the field; key fields only.

    Raises:
        InvalidValue: the roles contradict each other.
    """
    check_flags("field", key=key, timestamp=timestamp, erase_key=erase_key)
    if key and timestamp:
        raise InvalidValue(
            "field: a key cannot be the timestamp", hint="mark one field as key and another as timestamp"
        )
    if erase_key and not key:
        raise InvalidValue("field: erase_key needs key=True", hint="field(key=True, erase_key=True)")
    return FieldOptions(key, timestamp, erase_key)


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a dataset.

    `str` gives the bare column name.

    Args:
        name: the column.
        dataset: the dataset's name.
        type: the type of its values.
        dtype: the type as the user wrote it.
        options: its roles and metadata.
        owner: the dataset; set once it exists.
    """

    name: str
    dataset: str
    type: DType
    dtype: Any
    options: FieldOptions
    owner: Any = dataclasses.field(default=None, compare=False, repr=False)

    @property
    def key(self) -> bool:
        """Return True if the field is part of the row's key."""
        return self.options.key

    @property
    def timestamp(self) -> bool:
        """Return True if the field is the row's event time."""
        return self.options.timestamp

    @property
    def erase_key(self) -> bool:
        """Return True if rows can be erased by the field."""
        return self.options.erase_key

    @property
    def meta(self) -> Metadata:
        """Its owner, description and tags."""
        return self.options.described

    @property
    def dataset_name(self) -> str:
        """The dataset's name."""
        return self.dataset

    def is_optional(self) -> bool:
        """Return True if the field is nullable."""
        return self.type.is_optional

    def fqn(self) -> str:
        """`Dataset.field`."""
        return f"{self.dataset}.{self.name}"

    def desc(self) -> str:
        """Description from the metadata."""
        return self.meta.description

    def with_meta(self, meta: Metadata) -> Field:
        """Return the field with metadata."""
        return replace(self, options=replace(self.options, described=meta))

    def description(self) -> str:
        """Description from the metadata."""
        return self.desc()

    def __str__(self) -> str:
        return self.name
