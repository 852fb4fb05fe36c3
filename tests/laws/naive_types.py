"""The rules of types, read naively, one value at a time."""

import decimal
import math
import re
from datetime import UTC, date, datetime, timedelta

import pandas as pd

from umbel.types import dtypes as d

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


class Bad(Exception):
    pass


def need(condition):
    if not condition:
        raise Bad


def is_number(value):
    return isinstance(value, (int, float, decimal.Decimal)) and not isinstance(value, bool)


def is_finite(value):
    return isinstance(value, int) or math.isfinite(value)


def naive(dtype, value):
    """Return the stored form of a value, raise Bad when it does not belong to the type."""
    inner = dtype.base
    missing = value is None or value is pd.NA or value is pd.NaT
    missing |= isinstance(value, float) and math.isnan(value) and not isinstance(inner.plain, d.Float)
    if missing:
        need(dtype.is_optional)
        return None
    return NAIVE[type(inner)](inner, value)


def naive_int(_, value):
    if isinstance(value, str):
        need(re.fullmatch(r"\s*[+-]?[0-9]+(\.0*)?\s*", value))
        value = decimal.Decimal(value.strip())
    need(isinstance(value, (int, float, decimal.Decimal)) and is_finite(value) and value == math.floor(value))
    need(-(2**63) <= value < 2**63)
    return int(value)


def naive_float(_, value):
    need(is_number(value))
    try:
        return float(value)
    except OverflowError:
        raise Bad from None


def naive_str(_, value):
    need(isinstance(value, (str, int, float, decimal.Decimal)))
    return str(value)


def naive_decimal(dtype, value):
    if isinstance(value, str):
        try:
            value = decimal.Decimal(value)
        except decimal.InvalidOperation:
            raise Bad from None
    need(is_number(value) and is_finite(value))
    if isinstance(value, float):
        value = decimal.Decimal(f"{value:.{dtype.scale}f}")
    need(abs(value) < 10 ** (28 - dtype.scale))
    with decimal.localcontext(prec=100):
        need(decimal.Decimal(value) * 10**dtype.scale % 1 == 0)
        return decimal.Decimal(value).quantize(decimal.Decimal(10) ** -dtype.scale)


def naive_instant(_, value):
    if isinstance(value, str):
        value = {"2024-01-31": datetime(2024, 1, 31), "2024-01-31T10:00:00Z": datetime(2024, 1, 31, 10)}.get(
            value, decimal.Decimal(value.strip()) if re.fullmatch(r"\s*[+-]?[0-9]+(\.[0-9]*)?\s*", value) else None
        )
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)
    if isinstance(value, datetime):
        return value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)
    need(is_number(value) and is_finite(value))
    for power in (6, 3, 0):
        if abs(value) <= 9_223_372_036 * 10 ** (6 - power):
            return EPOCH + round(value * 10**power) * MICROSECOND
    need(abs(value) < 2**63)
    return EPOCH + math.floor(decimal.Decimal(value) / 1000) * MICROSECOND


def naive_date(_, value):
    if value == "2024-01-31":
        return date(2024, 1, 31)
    if isinstance(value, datetime):
        value = naive_instant(None, value)
        need(value.time() == datetime.min.time())
        return value.date()
    need(isinstance(value, date))
    return value


def naive_list(dtype, value):
    need(isinstance(value, list))
    return [naive(dtype.of, element) for element in value]


def naive_embedding(dtype, value):
    need(isinstance(value, list) and len(value) == dtype.size)
    return [naive(d.Float(), element) for element in value]


def naive_dict(dtype, value):
    if isinstance(value, list):
        need(all(isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str) for pair in value))
        value = dict(value)
    need(isinstance(value, dict))
    return [{"key": key, "value": naive(dtype.of, value[key])} for key in sorted(value)]


def naive_record(dtype, value):
    need(isinstance(value, dict))
    return {name: naive(member, value.get(name)) for name, member in dtype.members()}


def naive_between(dtype, value):
    value = naive(dtype.of, value)
    need(dtype.min < value if dtype.strict_min else dtype.min <= value)
    need(value < dtype.max if dtype.strict_max else value <= dtype.max)
    return value


def naive_one_of(dtype, value):
    value = naive(dtype.of, value)
    need(value in dtype.options)
    return value


def naive_regex(dtype, value):
    value = naive(dtype.of, value)
    need(re.match(dtype.pattern, value))
    return value


def naive_kind(*kinds):
    def check(_, value):
        need(isinstance(value, kinds))
        return value

    return check


NAIVE = {
    d.Int: naive_int,
    d.Float: naive_float,
    d.Bool: naive_kind(bool),
    d.Str: naive_str,
    d.Bytes: naive_kind(bytes),
    d.Datetime: naive_instant,
    d.Date: naive_date,
    d.Decimal: naive_decimal,
    d.List: naive_list,
    d.Dict: naive_dict,
    d.Embedding: naive_embedding,
    d.Struct: naive_record,
    d.Window: naive_record,
    d.OneOf: naive_one_of,
    d.Between: naive_between,
    d.Regex: naive_regex,
}


def naive_all(dtype, values):
    good = {}
    for row, value in enumerate(values):
        try:
            good[row] = naive(dtype, value)
        except Bad:
            continue
    return good


def same(left, right):
    """Equality in which NaN equals itself."""
    if isinstance(left, float) and isinstance(right, float):
        return left == right or (math.isnan(left) and math.isnan(right))
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    return left == right and type(left) is type(right)
