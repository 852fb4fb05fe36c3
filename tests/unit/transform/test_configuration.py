"""Configurations: what is accepted, and what is refused where."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema_rs
import pytest

from umbel.errors import InvalidType, InvalidValue, UmbelError
from umbel.transform import load
from umbel.transform.batches import BatchTransform
from umbel.transform.configuration import loads
from umbel.transform.documents import read_yaml
from umbel.transform.registry import steps
from umbel.transform.schema import json_schema

EXAMPLE = """---
source_field: properties
target_field: config_value
transformations:
  - name: custom_code
    language: python
    code: |
      year = datetime.now().strftime("%Y")
      return source_field.get("config_name").lower()
---
source_field: sent_at
target_field: ts
transformations:
  - {name: parse_datetime, format: "%Y-%m-%dT%H:%M:%SZ"}
  - {name: cast, type: epoch_ms}
"""

COPY = "source_field: a\ntarget_field: b"
TOML = '''
[[fields]]
source_field = "properties"
target_field = "config_value"

[[fields.transformations]]
name = "custom_code"
language = "python"
code = """
year = datetime.now().strftime("%Y")
return source_field.get("config_name").lower()
"""

[[fields]]
source_field = "sent_at"
target_field = "ts"
transformations = [{name = "parse_datetime", format = "%Y-%m-%dT%H:%M:%SZ"}, {name = "cast", type = "epoch_ms"}]

[[tests]]
input = {properties = {config_name = "A"}}
output = {config_value = "a", ts = 1}
'''


def test_the_configuration_of_the_issue_is_read() -> None:
    found = loads(EXAMPLE, "c.yaml")
    assert [str(each.target) for each in found.documents] == ["config_value", "ts"]
    assert [each.line for each in found.applied] == [5, 14, 15]
    assert next(found.applied).code_line == 8


def test_toml_says_the_same() -> None:
    assert [each.steps[-1].step for each in loads(TOML, "c.toml").documents[1:]] == [
        each.steps[-1].step for each in loads(EXAMPLE, "c.yaml").documents[1:]
    ]
    assert loads(TOML, "c.toml").cases[0].record == {"properties": {"config_name": "A"}}


FIELD = "[[fields]]\nsource_field = 'a'\ntarget_field = 'b'\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "sourcefield: a\ntarget_field: b",
            "'source_field' is missing; is 'sourcefield' meant to be 'source_field'? (at c.yaml:1)",
        ),
        ("source_field: a\ntarget_field: b\ntransformation: []", "did you mean 'transformations'? (at c.yaml:3)"),
        (
            "source_field: a\ntarget_field: b\ntransformations:\n  - {name: lowr}",
            "there is no step 'lowr'; did you mean 'lower'? (at c.yaml:4)",
        ),
        (
            "source_field: a\ntarget_field: b\ntransformations:\n  - {name: cast, type: itn}",
            "'type' cannot be 'itn'; did you mean 'int'? (at c.yaml:4)",
        ),
        (
            "source_field: a\ntarget_field: b\ntransformations:\n  - {name: cast}",
            "step 'cast': 'type' is missing (at c.yaml:4)",
        ),
        (
            "source_field: a\ntarget_field: b\ntransformations:\n  - {name: mask, keep: x}",
            "'keep' must be an integer, found 'x' (at c.yaml:4)",
        ),
        (
            "source_field: a\ntarget_field: b\ntransformations:\n  - {name: mask, keep: true}",
            "'keep' must be an integer, found True (at c.yaml:4)",
        ),
        (
            "source_field: a\ntarget_field: b\ntransformations:\n  - {name: lower, on_error: dropp}",
            "did you mean 'drop'? (at c.yaml:4)",
        ),
        (
            "source_field: a\ntarget_field: b\ntransformations:\n  - name: custom_code\n    code: 'return ('",
            "line 1 of the code: '(' was never closed (at c.yaml:5)",
        ),
        (
            "source_field: a\ntarget_field: b\ntransformations:\n  - {name: regex_extract, pattern: '(', group: 1}",
            "'(' is no regular expression",
        ),
        (
            "source_field: a\ntarget_field: b\ntransformations:\n  - {name: regex_extract, pattern: 'a', group: 1}",
            "there is no group 1 (at c.yaml:4)",
        ),
        (
            "source_field: a\ntarget_field: b\ntransformations:\n  - {name: parse_datetime, format: '%Y', timezone: Mars}",
            "there is no time zone 'Mars' (at c.yaml:4)",
        ),
        ("source_field: a..b\ntarget_field: b", "'a..b' is no path (at c.yaml:1)"),
        ("source_field: a\ntarget_field: b[0]", "a target is a field, or a field of objects: a.b (at c.yaml:2)"),
        (
            "source_field: a\ntarget_field: b\n---\nsource_field: a\ntarget_field: b.c",
            "target_field 'b.c' and 'b' of line 1 overlap (at c.yaml:4)",
        ),
        ("source_field: a", "'target_field' is missing (at c.yaml:1)"),
        (f"{COPY}\ntransformations:\n  - {{name: replace}}", "'pattern', 'by' are missing (at c.yaml:4)"),
        (
            f"{COPY}\ntransformations:\n  - {{name: hash, algoritm: md5, slat: x}}",
            "there is no 'algoritm'; did you mean 'algorithm'? and no 'slat'; did you mean 'salt'? (at c.yaml:4)",
        ),
        ("source_field: a\nsource_field: b", "'source_field' is there twice (at c.yaml:2)"),
        (
            "source_field: a\nyes: 1\non: 2",
            "'on' is there twice: YAML reads 'on' as True, put it in quotes (at c.yaml:3)",
        ),
        (
            f"{COPY}\ntransformations:\n  - name: map_values\n    values:\n      1: a\n      true: b",
            "1 and True are one key, as they are equal in Python: only one of them can be there (at c.yaml:7)",
        ),
        (f"{COPY}\ntransformations:\n  - {{name: default, value: !include [x]}}", "no tag '!include' (at c.yaml:4)"),
        (f"{COPY}\ntransformations:\n  - !!set {{name: lower}}", "there is no tag '!!set' (at c.yaml:4)"),
        (f"{COPY}\ntransformations:\n  - {{<<: !x {{name: lower}}}}", "there is no tag '!x' (at c.yaml:4)"),
        (f"{COPY}\ntransformations:\n  - {{name: default, value: !x y}}", "the tag '!x' (at c.yaml:4)"),
        ("source_field: [a", "broken YAML"),
        ("", "there is no document with a source_field (at c.yaml:1)"),
        ("source_field: a\ntarget_field: b\n---\npassthrough: true", "passthrough is the first document (at c.yaml:4)"),
        ("- a", "a document must be a mapping, found ['a'] (at c.yaml:1)"),
        ("tests:\n  - {input: {a: 1}}", "a case has 'output' or 'dead_letter' (at c.yaml:2)"),
        (f"{COPY}\n---\ntests:\n  - {{input: {{}}, output: b}}", "null, found 'b' (at c.yaml:5)"),
        (
            f"{COPY}\n---\ntests:\n  - {{input: {{}}, dead_letter: lower}}",
            "no step 'lower' that could fail (at c.yaml:5)",
        ),
        (
            f"{COPY}\n---\ntests:\n  - {{input: {{a: !!binary aGk=}}, output: {{}}}}",
            "b'hi' is not a value of JSON (at c.yaml:5)",
        ),
        (
            f"{COPY}\n---\n{COPY}\n---\nsource_field: a\ntarget_field: b.c",
            "'b.c' and 'b' of line 1 overlap (at c.yaml:7)",
        ),
        ("source_field: a\ntarget_field: b.c\n---\nsource_field: a\ntarget_field: b", "overlap (at c.yaml:4)"),
        ("passthrough: true\nsource_field: a", "passthrough is a document of its own"),
        (f"{COPY}\ntransformations:\n  - {{nme: lower}}", "is 'nme' meant to be 'name'? (at c.yaml:4)"),
        (f"{COPY}\ntransformations:\n  - {{name: [lower]}}", "a step has no name (at c.yaml:4)"),
        (f"{COPY}\ntransformations:\n  - name: mask\n    kep: 1", "did you mean 'keep'? (at c.yaml:5)"),
        (f"{COPY}\ntransformations:\n  - {{name: mask, keep: false}}", "an integer, found False (at c.yaml:4)"),
        (
            f"{COPY}\ntransformations:\n  - {{name: default, value: !!binary aGk=}}",
            "is not a value of JSON (at c.yaml:4)",
        ),
        (f"{COPY}\ntransformations:\n  - {{name: default, value: {'9' * 5000}}}", "broken YAML: Exceeds the limit"),
        (f'{COPY}\ntransformations:\n  - {{name: hash, salt: "\\ud800"}}', "a surrogate alone (at c.yaml:4)"),
        (
            f"{COPY}\ntransformations:\n  - {{name: expr, expr: 1/0}}",
            "is no expression: division by zero (at c.yaml:4)",
        ),
        (f"{COPY}\ntransformations:\n  - {{name: expr, expr: cl('value')}}", "did you mean 'col'? (at c.yaml:4)"),
        (f"source_field: {'.'.join('a' * 101)}\ntarget_field: b", "more than 100 parts (at c.yaml:1)"),
        (f"source_field: 'a[{'9' * 5000}]'\ntarget_field: b", "is no path"),
        ("<<: 3\nsource_field: a", "'<<' merges mappings (at c.yaml:1)"),
        (f"{COPY}\ntransformations:\n  - {{name: custom_code, code: ''}}", "the code is empty"),
        (
            f"{COPY}\ntransformations:\n  - name: custom_code\n    code: |\n      x = 1\n\n      retrun x",
            "line 3 of the code: invalid syntax (at c.yaml:8)",
        ),
        (
            f"{COPY}\ntransformations:\n  - {{name: format_datetime, format: '%Y', timezone: Europe/Berln}}",
            "did you mean 'Europe/Berlin'? (at c.yaml:4)",
        ),
    ],
)
def test_an_error_has_its_line_and_a_suggestion(text: str, message: str) -> None:
    with pytest.raises(UmbelError) as found:
        loads(text, "c.yaml")
    assert message in str(found.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[field]]\nsource_field = 'a'", "there is no 'field'; did you mean 'fields'? (at c.toml:1)"),
        ("\npasthrough = true", "did you mean 'passthrough'? (at c.toml:2)"),
        ("[fields]\nsource_field = 'a'", "'fields' must be tables (at c.toml:1)"),
        ("fields = [1]", "a document must be a mapping, found 1"),
        (f"x = {'[' * 200_000}", "nested too deeply"),
        (f"x = {'9' * 5000}", "broken TOML: Exceeds the limit"),
        (TOML.replace("return source", "return (source"), "'(' was never closed (at c.toml:11)"),
        (f"{FIELD}transformations = [\n  {{name = 'lower'}},\n  {{name = 'uper'}},\n]", "'upper'? (at c.toml:6)"),
        (f"{FIELD}[[fields.transformations]]\nname = 'mask'\n\nkep = 1", "did you mean 'keep'? (at c.toml:7)"),
        (f"{FIELD}[[fields.transformations]]\nname = 'cast'\ntype = 'integer'", "did you mean 'int'? (at c.toml:6)"),
        (f"{FIELD}transformations = 3", "expected a list of steps, found 3 (at c.toml:4)"),
        (f"{FIELD}[[tests]]\ninput = {{}}\noutput = {{}}\n[[tests]]\nimput = {{}}\noutput = {{}}", "(at c.toml:8)"),
    ],
)
def test_an_error_in_toml_has_a_suggestion(text: str, message: str) -> None:
    with pytest.raises(UmbelError) as found:
        loads(text, "c.toml")
    assert message in str(found.value)


def test_lines_of_toml() -> None:
    inline = TOML.partition("[[tests]]")[0] + TOML.partition("[[tests]]")[0].replace('"config_value"', '"c"').replace(
        '"ts"', '"t"'
    )
    found = loads(inline, "c.toml")
    assert [[each.line for each in document.steps] for document in found.documents] == [[6], [17, 17], [24], [35, 35]]
    assert [each.code_line for each in found.applied] == [10, 0, 0, 28, 0, 0]
    assert len(loads("\ufeff" + TOML, "c.toml").documents) == 2


STEP = f"{COPY}\ntransformations:\n  - name: custom_code\n    code: "
TOML_STEP = (
    "[[fields]]\nsource_field = 'a'\ntarget_field = 'b'\n[[fields.transformations]]\nname = 'custom_code'\ncode = "
)


@pytest.mark.parametrize(
    ("text", "ending", "line"),
    [
        (f"{STEP}|\n      x = 1\n\n      return {{}}\n---\n{COPY}x", "yaml", 8),
        (f"{STEP}|-\n\n      x = 1\n      return {{}}", "yaml", 8),
        (f"{STEP}>\n      x = 1;\n      y = 2\n\n      return {{}}\n---\n{COPY}x", "yaml", 5),
        (f'{STEP}"x = 1\\n\\n\\nreturn {{}}"\n---\n{COPY}x', "yaml", 5),
        (f"{STEP}'x = 1\n\n      return {{}}'", "yaml", 5),
        (f"{STEP}x = 1\n\n      return {{}}", "yaml", 5),
        (f'{TOML_STEP}"x = 1\\n\\n\\nreturn {{}}"', "toml", 6),
        (f'{TOML_STEP}"""\nx = 1\n\nreturn {{}}"""', "toml", 9),
        (f'{TOML_STEP}"""x = 1\n\nreturn {{}}\n"""', "toml", 8),
        (f"{TOML_STEP}'''\r\nx = len('\\n')\r\nreturn {{}}'''", "toml", 8),
        (f'{TOML_STEP}"""\nx = 1\\n\nreturn {{}}"""', "toml", 7),
        (f'{TOML_STEP}"""\nx = 1\nreturn\\\n {{}}"""', "toml", 7),
    ],
)
def test_the_line_of_code(text: str, ending: str, line: int) -> None:
    with pytest.raises(UmbelError, match=rf"invalid syntax.* \(at c\.{ending}:{line}\)"):
        loads(text.format("x +"), f"c.{ending}")
    (letter,) = BatchTransform(loads(text.format("x + source_field"), f"c.{ending}"))([b'{"a":"s"}']).letters
    assert letter.at == f"c.{ending}:{line}"


def test_mappings_are_merged() -> None:
    text = (
        COPY
        + """
transformations:
  - &number {name: cast, type: int, on_error: drop}
  - &other {name: default, value: 1}
  - {<<: *number, type: float}
  - {<<: [{name: cast, type: str}, *number]}
"""
    )
    found = loads(text, "c.yaml")
    assert [(getattr(each.step, "type", None), each.on_error) for each in found.applied][2:] == [
        ("float", "drop"),
        ("str", "drop"),
    ]
    bomb = "a0: &a0 {}\n" + "".join(f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}\n" for n in range(1, 12))
    with pytest.raises(InvalidValue, match="aliases make more"):
        loads(bomb, "c.yaml")


def test_all_errors_are_listed_at_once() -> None:
    text = "source_field: a\ntarget_field: b\ntransformations:\n  - {name: lowr}\n  - {name: upperr}\n"
    text += "---\nsource_field: 3\ntarget_field: c"
    with pytest.raises(
        UmbelError, match=r"(?s)3 faults.*lowr.*c.yaml:4.*upperr.*c.yaml:5.*source_field must be.*c.yaml:7"
    ):
        loads(text, "c.yaml")


def test_a_file_is_read_by_its_ending(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(TOML)
    assert len(load(tmp_path / "c.toml").documents) == 2
    (tmp_path / "c.txt").write_text(EXAMPLE)
    with pytest.raises(InvalidValue, match=r"by its ending: \.yaml"):
        load(tmp_path / "c.txt")
    (tmp_path / "c.toml").write_text("[[fields]]\nsource_field = \n")
    with pytest.raises(InvalidValue, match=r"broken TOML.*c\.toml:2"):
        load(tmp_path / "c.toml")


def test_an_error_in_toml_has_its_line() -> None:
    with pytest.raises(UmbelError, match=r"did you mean 'custom_code'.*c\.toml:6"):
        loads(TOML.replace('"custom_code"', '"custom_cod"'), "c.toml")


def test_dates_stay_texts() -> None:
    (document,) = read_yaml("value: 2024-01-01", "c.yaml")
    assert document.plain == {"value": "2024-01-01"}


def test_transformations_may_be_left_empty() -> None:
    text = f"{COPY}\ntransformations:\n"
    assert loads(text).documents[0].steps == ()
    assert jsonschema_rs.validator_for(json_schema()).is_valid(read_yaml(text, "c.yaml")[0].plain)


def test_transformations_are_a_list() -> None:
    with pytest.raises(InvalidType, match="expected a list of steps"):
        loads("source_field: a\ntarget_field: b\ntransformations: {name: lower}", "c.yaml")


def test_the_schema_accepts_what_the_reader_accepts() -> None:
    schema = jsonschema_rs.validator_for(json_schema())
    assert all(schema.is_valid(each.plain) for each in read_yaml(EXAMPLE, "c.yaml"))
    assert not schema.is_valid({"source_field": "a", "target_field": "b", "transformations": [{"name": "lowr"}]})
    assert not schema.is_valid({"source_field": "a", "target": "b"})
    assert not schema.is_valid({"source_field": "a", "transformations": [{"name": "cast", "type": "itn"}]})


def test_every_step_is_documented() -> None:
    for each in steps().values():
        assert each.doc()
        assert all(one.doc.endswith(".") for one in each.parameters)


def test_a_pair_of_escapes_is_one_character() -> None:
    """JSON, which is YAML, writes characters beyond U+FFFF so: json.dumps does by default."""
    document = {
        "source_field": "a",
        "target_field": "b",
        "transformations": [{"name": "default", "value": "\N{GRINNING FACE}"}],
    }
    text = json.dumps(document)
    assert "\\ud83d\\ude00" in text
    assert BatchTransform(loads(text))([b"{}"]).data == '{"b":"\N{GRINNING FACE}"}\n'.encode()
    with pytest.raises(InvalidValue, match="half of a character"):
        loads(text.replace("\\ud83d\\ude00", "\\ude00\\ud83d"))
