"""The rule that first and latest share: keyless rows, keyed by some columns."""

from __future__ import annotations

from dataclasses import dataclass

from umbel.errors import InvalidValue
from umbel.operators.columns import check_keyless, check_known
from umbel.operators.operator import Keyed
from umbel.types.schema import Schema


@dataclass(frozen=True, eq=False, kw_only=True)
class Choice(Keyed):
    """Choose among the rows with equal `keys`."""

    keys: tuple[str, ...]

    def output(self, *inputs: Schema) -> Schema:
        (rows,) = inputs
        check_keyless(rows, self.title)
        if not self.keys:
            raise InvalidValue(f"{self.title}: at least one key is needed", hint="groupby('key')")
        check_known(self.keys, rows.value_names, self.title, "key")
        keys = tuple((name, rows.dtypes[name]) for name in self.keys)
        optional = [name for name, dtype in keys if dtype.is_optional]
        if optional:
            raise InvalidValue(f"{self.title}: key '{optional[0]}' is optional", hint="drop the nulls first")
        return Schema(keys, tuple(item for item in rows.values if item[0] not in self.keys), rows.timestamp)

    def exchange(self) -> tuple[tuple[str, ...], ...]:
        return (self.keys,)
