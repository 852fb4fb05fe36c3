"""Configurations, code and records for the laws of the transformation."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

TEXTS = st.one_of(
    st.sampled_from(
        [
            "",
            "Dark_Mode",
            " x ",
            "a,b,c",
            "12",
            "-7",
            "007",
            "1.50",
            "1e5",
            "nan",
            "inf",
            "true",
            "No",
            "İstanbul",
            "a\ua7cbb",
            "\u019b",
            "ß",
            "ΑΣ",
            "\x1f x\x85",
            "2024-02-29T12:00:00Z",
            "2023-02-29T00:00:00Z",
            "2024-01-01",
            "/p/42?x",
            "a\nb",
            "x\n",
            "٣",
            "1_000",
            " 12",
            "+5",
            "9" * 19,
            "$1",
            "\\1",
            "0001-01-01T00:00:00Z",
            "2024-01-01T24:00:00Z",
            "é",
            "\x00",
            "2024-05-06 07:08:09.123456",
        ]
    ),
    st.text(max_size=8),
)
INTS = st.one_of(
    st.integers(-3, 300),
    st.sampled_from(
        [2**31, 2**53, 2**53 + 1, 2**62, 2**63 - 1, -(2**63), 2**63, 10**30, 1_700_000_000, 1_700_000_000_000]
    ),
)
FLOATS = st.one_of(
    st.sampled_from(
        [0.0, -0.0, 1.5, 2.0, 0.1, 1e16, 1e22, 1e-7, 1e300, 5e-324, float("nan"), float("inf"), float("-inf")]
    ),
    st.floats(),
)
SCALARS = st.one_of(st.none(), st.booleans(), INTS, FLOATS, TEXTS)
NAMES = st.sampled_from(["a", "b", "c"])
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=3)),
    max_leaves=6,
)

RAW = st.sampled_from(
    [
        b"",
        b"  ",
        b"[1]",
        b"5",
        b'{"a":1',
        b'{"a":1} {"a":2}',
        b'{"a":"\xff"}',
        b'{"zz":"\xff","a":"x"}',
        b'{"a":"\\ud800"}',
        b'{"zz":"\\ud800","a":"x"}',
        b'{"a":1,"a":"x"}',
        b'{"a":{"a":1},"a":{"b":2}}',
        b'{"a":1e400}',
        b'{"a":-0}',
        b'{"a":01}',
        b'{"a":"x",}',
        b'{"\\u0061":"x"}',
        b' {"a":"x"}\r',
        b'{"a":NaN}',
        b'{"a":{"a":"X"},"a":null}',
        b"\xef\xbb\xbf{}",
        b"null",
        b'{"a":1.0,"b":1E2}',
        b'{"zz":' + b"9" * 4301 + b',"a":"x"}',
        b'{"zz":' + b"9" * 4301 + b'.5,"a":"x"}',
        b'{"a":"' + b"9" * 4301 + b'"}',
    ]
)
PATHS = ["a", "b", "a.b", "a.a", "b.c", "a[0]", "a[-1].b", "$", "c"]
STEPS: list[dict[str, Any]] = [
    {"name": "lower"},
    {"name": "upper"},
    {"name": "trim"},
    {"name": "replace", "pattern": "a", "by": "$1"},
    {"name": "replace", "pattern": "[a-z]+", "by": "<$0>", "regex": True},
    {"name": "replace", "pattern": "x*", "by": "-", "regex": True},
    {"name": "replace", "pattern": r"(\w)", "by": r"\1\1", "regex": True},
    {"name": "regex_extract", "pattern": r"/p/(\d+)", "group": 1},
    {"name": "regex_extract", "pattern": r"(a|(b))?\s*x$", "group": 2},
    {"name": "regex_extract", "pattern": r"^\D+?(\W|.)", "group": 1},
    {"name": "split"},
    {"name": "join", "separator": "-"},
    *(
        {"name": "cast", "type": kind}
        for kind in ("int", "float", "str", "bool", "decimal", "datetime", "date", "epoch_s", "epoch_ms")
    ),
    {"name": "default", "value": "none"},
    {"name": "default", "value": 0},
    {"name": "default", "value": 1.5},
    {"name": "default", "value": {"a": 1}},
    {"name": "parse_datetime", "format": "%Y-%m-%dT%H:%M:%SZ"},
    {"name": "parse_datetime", "format": "%Y-%m-%d"},
    {"name": "parse_datetime", "format": "%Y-%m-%d %H:%M:%S.%f"},
    {"name": "parse_datetime", "format": "%d.%m.%y"},
    {"name": "format_datetime", "format": "%d/%m/%Y %H:%M"},
    {"name": "format_datetime", "format": "%A", "timezone": "Europe/Berlin"},
    {"name": "json_parse"},
    {"name": "json_extract", "path": "a"},
    {"name": "hash", "salt": "s"},
    {"name": "mask", "keep": 2},
    {"name": "map_values", "values": {"a": "x", "12": "y"}, "default": "z"},
    {"name": "map_values", "values": {"12": 1, "": 2}},
    {"name": "expr", "expr": "col('value') * 2 + 1"},
    {"name": "expr", "expr": "col('value').str.upper()"},
    {"name": "expr", "expr": "when(col('value') > 3).then(col('value'))"},
    {"name": "filter"},
    {"name": "explode"},
]
CODES = [
    "return source_field",
    "return source_field.get('a')",
    "return source_field['a'].lower()",
    "return source_field.get('b', 'x').strip()",
    "return record.get('a').get('b')",
    "return record['b']",
    "return source_field.lower() if source_field else 'none'",
    "if source_field is None:\n  return 0\nreturn source_field",
    "return source_field + 1",
    "return source_field * 2 - 1",
    "return source_field / 3",
    "return source_field // 2",
    "return source_field % 3",
    "return source_field + 'x'",
    "return f'{source_field}-{record.get(\"b\")}'",
    "return int(source_field)",
    "return float(source_field)",
    "return str(source_field)",
    "return len(source_field)",
    "return abs(source_field)",
    "return bool(source_field)",
    "return -source_field",
    "x = source_field.upper()\ny = x.replace('A', 'b')\nreturn y",
    "return source_field[1:3]",
    "return source_field[-2:]",
    "return source_field[0]",
    "return source_field[:-1]",
    "return source_field[5:2]",
    "return source_field.split(',')[1]",
    "return source_field.split(',')[-1]",
    "return source_field in ('12', 'true')",
    "return 'a' in source_field",
    "return source_field == record.get('b')",
    "return source_field != 12",
    "return source_field < 5",
    "return source_field >= 1.5",
    "return source_field > 'm'",
    "return not source_field",
    "return source_field and source_field.lower()",
    "return source_field or 'empty'",
    "return source_field is not None and source_field.startswith('a')",
    "return record.get('a', {}).get('b', 'none')",
    "if source_field == 'a' or record.get('b') == 1:\n  return 'yes'\nelif source_field:\n  return 7\nelse:\n  return None",
    "return [source_field]",
    "return {'v': source_field, 1: 2}",
    "return {source_field}",
    "return 1 / 0",
    "raise SystemExit(3)",
    "return source_field.removeprefix('a').removesuffix('c')",
    "return json.dumps(source_field)",
    "return re.sub('a', 'b', source_field)",
    "return math.floor(source_field)",
    "return date(2024, 1, 1)",
    "return datetime(2024, 1, 1, 1, tzinfo=timezone(timedelta(hours=2)))",
    "return float('nan')",
    "return '\\ud800'",
    "return source_field.strip('x')",
    "source_field['a'] = 1\nreturn source_field",
    "return record.pop('a')",
    "x = source_field.lower()\nreturn 1",
    "return source_field.get('a').get('b').lower().strip().upper()",
    "lower = source_field\nreturn lower",
    "return True if record.get('c') else False",
    "return source_field - record.get('b')",
    "return (source_field + 0.5) * 1e300",
    "pass",
    "return source_field == 1.0",
    "return len(source_field) > 3 and source_field[3] == 'a'",
    "return record",
    "return source_field.endswith('')",
    "return source_field.rstrip() + source_field.lstrip()",
    "return source_field.replace('', 'x')",
    "return source_field.encode()",
    "return int(source_field) + 1 if source_field.isdigit() else 0",
]
STEP = st.one_of(
    st.sampled_from(STEPS),
    st.sampled_from(CODES).map(lambda code: {"name": "custom_code", "language": "python", "code": code}),
)


@st.composite
def configurations(draw: st.DrawFn) -> str:
    """Draw the text of a configuration; JSON is YAML."""
    documents = [{"passthrough": True}] if draw(st.integers(0, 3)) == 0 else []
    for number in range(draw(st.integers(1, 3))):
        steps = [dict(each) for each in draw(st.lists(STEP, max_size=3))]
        for each in steps:
            each["on_error"] = draw(st.sampled_from(["dead_letter", "dead_letter", "null", "drop"]))
        target = draw(st.sampled_from([f"t{number}", f"t.x{number}", f"a{number}.b", None]))
        document = {"source_field": draw(st.sampled_from(PATHS)), "target_field": target, "transformations": steps}
        if target is None:
            steps.append(
                draw(st.sampled_from([{"name": "filter"}, {"name": "filter", "code": "return source_field > 1"}]))
            )
            del document["target_field"]
        documents.append(document)
    return "".join(f"---\n{json.dumps(each)}\n" for each in documents)


@st.composite
def batches(draw: st.DrawFn) -> list[bytes]:
    """Draw lines: mostly of records of the same types, some of others, some that are no records."""
    usual = draw(
        st.sampled_from(
            [
                TEXTS,
                INTS,
                FLOATS,
                st.booleans(),
                VALUES,
                st.dictionaries(NAMES, TEXTS, max_size=3),
                st.lists(TEXTS, max_size=3),
            ]
        )
    )
    record = st.dictionaries(NAMES, st.one_of(usual, usual, usual, VALUES), max_size=3)
    line = st.one_of(
        *[record.map(lambda each: json.dumps(each).encode())] * 6,
        record.map(lambda each: json.dumps(each, ensure_ascii=False).encode(errors="replace")),
        RAW,
    )
    return [each for each in draw(st.lists(line, min_size=1, max_size=12)) if each.strip()]
