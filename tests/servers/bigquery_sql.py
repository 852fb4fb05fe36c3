"""The queries of umbel to BigQuery, in DuckDB, and values in the JSON of its API."""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

NEWER_NAMES = {"INTEGER": "INT64", "FLOAT": "FLOAT64", "BOOLEAN": "BOOL", "RECORD": "STRUCT"}
TYPES = {
    "INT64": "BIGINT",
    "FLOAT64": "DOUBLE",
    "NUMERIC": "DECIMAL(38,9)",
    "BIGNUMERIC": "DECIMAL(38,20)",
    "BOOL": "BOOLEAN",
    "STRING": "VARCHAR",
    "BYTES": "BLOB",
    "DATE": "DATE",
    "TIME": "TIME",
    "DATETIME": "TIMESTAMP",
    "TIMESTAMP": "TIMESTAMPTZ",
    "JSON": "VARCHAR",
    "GEOGRAPHY": "VARCHAR",
}
STATUS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ALREADY_EXISTS",
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FROM = re.compile(r" FROM `([^`]+)`\.`([^`]+)`\.`([^`]+)` AS t WHERE ")


class Failure(Exception):
    """An answer that something is wrong.

    Args:
        code: the status of HTTP.
        reason: in the API's terms.
        message: what is wrong.
    """

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code, self.reason = code, reason

    @property
    def body(self) -> dict[str, Any]:
        """The body of the answer, as the API gives it."""
        text = str(self)
        errors = [{"message": text, "domain": "global", "reason": self.reason}]
        status = STATUS.get(self.code, "INTERNAL")
        return {"error": {"code": self.code, "message": text, "errors": errors, "status": status}}


def type_of(field: Mapping[str, Any]) -> str:
    """Return the name in SQL of a field's type."""
    return NEWER_NAMES.get(field["type"], field["type"])


def definition(field: Mapping[str, Any]) -> str:
    """Return the definition of a column for DuckDB."""
    kind = type_of(field)
    made = f"STRUCT({', '.join(map(definition, field['fields']))})" if kind == "STRUCT" else TYPES[kind]
    return f'"{field["name"]}" {made}{"[]" if field.get("mode") == "REPEATED" else ""}'


def examined(query: str) -> tuple[str, str]:
    """Return the dataset and the table of a query."""
    found = _FROM.search(query)
    if found is None:
        raise Failure(400, "invalidQuery", "Syntax error: Unexpected keyword at [1:1]")
    return found[2], found[3]


def duck(query: str, fields: Sequence[Mapping[str, Any]]) -> tuple[str, list[dict[str, Any]]]:
    """Return a query for DuckDB, and the fields of its result."""
    known = {each["name"].lower(): each for each in fields}
    for name in re.findall(r"t\.`([^`]+)`", query):
        if name.lower() not in known:
            raise Failure(400, "invalidQuery", f"Name {name} not found inside t at [1:8]")
    chosen = re.match(r"SELECT (.*?) FROM ", query)
    assert chosen, query
    columns = []
    for expression, name in re.findall(r"(.*?) AS (\w+)(?:, |$)", chosen[1]):
        inner = re.fullmatch(r"t\.`([^`]+)`", expression)
        columns.append({**known[inner[1].lower()], "name": name} if inner else {"name": name, "type": "BOOLEAN"})
    made = _FROM.sub(lambda found: f' FROM "{found[3]}" AS t WHERE ', query)
    return re.sub(r"`([^`]+)`", r'"\1"', made).replace("@", "$"), columns


def bound(parameters: Sequence[Any], query: str, fields: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the values of a query's parameters; each must be of the type of the column it is compared with."""
    known, made = {each["name"].lower(): type_of(each) for each in fields}, {}
    for each in parameters:
        kind, text = each["parameterType"]["type"], each["parameterValue"]["value"]
        compared = re.search(rf"t\.`([^`]+)` >=? @{each['name']}\b", query)
        if each.get("name") is None or compared is None or known[compared[1].lower()] != kind:
            text = f"No matching signature for operator > for argument types: {compared and compared[1]}, {kind}"
            raise Failure(400, "invalidQuery", text)
        made[each["name"]] = _VALUES[kind](text)
    return made


def cells(fields: Sequence[Mapping[str, Any]], row: Sequence[Any], *, is_whole: bool) -> dict[str, Any]:
    """Return a row, or a struct, in the JSON of the API.

    Args:
        fields: of the row.
        row: its values.
        is_whole: whether timestamps are whole numbers of µs.
    """
    return {"f": [{"v": _cell(field, value, is_whole)} for field, value in zip(fields, row, strict=True)]}


def _cell(field: Mapping[str, Any], value: Any, is_whole: bool) -> Any:
    if field.get("mode") == "REPEATED":
        single = {**field, "mode": "NULLABLE"}
        return [{"v": _cell(single, each, is_whole)} for each in value or []]
    if value is None:
        return None
    kind = type_of(field)
    if kind == "STRUCT":
        return cells(field["fields"], list(value.values()), is_whole=is_whole)
    if kind == "TIMESTAMP":
        after = value.astimezone(UTC) - _EPOCH
        return str(after // timedelta(microseconds=1)) if is_whole else repr(after / timedelta(seconds=1))
    return _TEXTS.get(kind, str)(value)


def _float(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return repr(value) if math.isfinite(value) else ("Infinity" if value > 0 else "-Infinity")


_TEXTS: Mapping[str, Any] = {
    "FLOAT64": _float,
    "NUMERIC": lambda value: format(value.normalize(), "f"),
    "BIGNUMERIC": lambda value: format(value.normalize(), "f"),
    "BOOL": lambda value: "true" if value else "false",
    "BYTES": lambda value: base64.b64encode(value).decode(),
    "DATE": date.isoformat,
    "DATETIME": datetime.isoformat,
}
_VALUES: Mapping[str, Any] = {
    "INT64": int,
    "NUMERIC": Decimal,
    "BIGNUMERIC": Decimal,
    "STRING": str,
    "DATE": date.fromisoformat,
    "DATETIME": datetime.fromisoformat,
    "TIMESTAMP": datetime.fromisoformat,
}
