"""Configurations as written: YAML and TOML documents whose values know their line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from umbel.errors import InvalidValue, did_you_mean
from umbel.transform.toml_lines import TomlLine, TomlPath, toml_lines

_TABLES = ("passthrough", "fields", "tests")
ENDINGS = (".yaml", ".yml", ".toml")
_MERGE = "tag:yaml.org,2002:merge"
_TAGS = {"tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"}
MOST_VALUES = 1_000_000
"""Values of a configuration, those behind aliases counted each time."""


@dataclass(frozen=True, slots=True)
class Written:
    """A value of a configuration, with its line.

    Args:
        value: a mapping of names to written values, a list of them, or a plain value.
        line: where it begins, from 1.
        key_line: of the name it has in a mapping.
        is_block: whether it is a text whose lines are those of the file.
    """

    value: Any
    line: int
    key_line: int = 0
    is_block: bool = False

    @property
    def plain(self) -> Any:
        """The value without lines."""
        if isinstance(self.value, dict):
            return {name: each.plain for name, each in self.value.items()}
        return [each.plain for each in self.value] if isinstance(self.value, list) else self.value


@dataclass(frozen=True, slots=True)
class ConfigurationFile:
    """A configuration as written, unchecked.

    Args:
        text: the documents.
        file: its name, for messages.
    """

    text: str
    file: str


def read_file(path: str | Path) -> ConfigurationFile:
    """Return the text of a file, YAML or TOML by its ending.

    Raises:
        InvalidValue: it has another ending, or is not UTF-8.
    """
    file = Path(path)
    if file.suffix.lower() not in ENDINGS:
        raise InvalidValue(f"{file}: a configuration is YAML or TOML, by its ending: {', '.join(ENDINGS)}")
    try:
        return ConfigurationFile(file.read_text(encoding="utf-8-sig"), str(path))
    except UnicodeDecodeError as error:
        raise InvalidValue(f"{file}: it is not UTF-8: {error}") from None


def read_yaml(text: str, file: str) -> list[Written]:
    """Return the documents of a YAML text, empty ones left out.

    Raises:
        InvalidValue: it is not YAML.
    """
    import yaml

    try:
        return [each for each in _YamlReader(text, file).documents() if each.value is not None]
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{file}:{mark.line + 1}" if mark else file
        raise InvalidValue(f"broken YAML: {getattr(error, 'problem', None) or error}", where=where) from None
    except RecursionError:
        raise InvalidValue("broken YAML: it is nested too deeply", where=file) from None


class _YamlReader:
    """A reader of YAML whose dates stay texts, as in JSON."""

    def __init__(self, text: str, file: str) -> None:
        import yaml

        resolvers = {
            sign: [each for each in found if each[0] != "tag:yaml.org,2002:timestamp"]
            for sign, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }
        kind = type("Loader", (yaml.SafeLoader,), {"yaml_implicit_resolvers": resolvers})
        self._loader, self._file, self._yaml = kind(text), file, yaml
        self._count = 0

    def documents(self) -> Iterator[Written]:
        while self._loader.check_node():
            yield self._written(self._loader.get_node())

    def _written(self, node: Any) -> Written:
        line = node.start_mark.line + 1
        self._add(line)
        if not isinstance(node, self._yaml.ScalarNode):
            self._check_tag(node)
        if isinstance(node, self._yaml.MappingNode):
            return Written(dict(self._members(node)), line)
        if isinstance(node, self._yaml.SequenceNode):
            return Written([self._written(each) for each in node.value], line)
        is_block = node.style == "|"  # lines of other texts are folded, or escaped
        return Written(self._scalar(node), line + is_block, is_block=is_block)

    def _check_tag(self, node: Any) -> None:
        if node.tag not in _TAGS:
            tag = node.tag.replace("tag:yaml.org,2002:", "!!")
            hint = "lists and mappings have no tags"
            raise InvalidValue(f"there is no tag '{tag}'", where=f"{self._file}:{node.start_mark.line + 1}", hint=hint)

    def _add(self, line: int) -> None:
        """Count a value."""
        self._count += 1
        if self._count > MOST_VALUES:
            raise InvalidValue(f"aliases make more than {MOST_VALUES:,} values", where=f"{self._file}:{line}")

    def _scalar(self, node: Any) -> Any:
        where = f"{self._file}:{node.start_mark.line + 1}"
        try:
            found = self._loader.construct_object(node)
        except ValueError as error:  # an integer of too many digits
            raise InvalidValue(f"broken YAML: {error}", where=where) from None
        if not isinstance(found, str) or found.isascii():
            return found
        try:  # JSON writes characters such as emoji as two escapes: a pair of surrogates is one character
            return found.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            raise InvalidValue("a text has half of a character: a surrogate alone", where=where) from None

    def _members(self, node: Any) -> Iterator[tuple[Any, Written]]:
        """Yield the members of a mapping, then those of `<<` that it lacks."""
        seen, merged = dict[Any, Any](), list[Any]()
        for key, value in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, self._yaml.ScalarNode):
                raise InvalidValue("a key is a list or a mapping", where=f"{self._file}:{line}")
            if key.tag == _MERGE:
                merged += value.value if isinstance(value, self._yaml.SequenceNode) else [value]
                continue
            name = self._scalar(key)
            if name in seen:
                raise InvalidValue(_twice(key, name, seen[name]), where=f"{self._file}:{line}")
            seen[name] = name
            yield name, replace(self._written(value), key_line=line)
        for each in merged:
            line = each.start_mark.line + 1
            self._add(line)
            if not isinstance(each, self._yaml.MappingNode):
                raise InvalidValue("'<<' merges mappings", where=f"{self._file}:{line}")
            self._check_tag(each)
            for name, written in self._members(each):
                if name not in seen:
                    seen[name] = name
                    yield name, written


def _twice(key: Any, name: Any, earlier: Any) -> str:
    """Return the message for a key that is equal to an earlier one."""
    if type(name) is not type(earlier):  # 1 and true
        return f"{earlier!r} and {name!r} are one key, as they are equal in Python: only one of them can be there"
    meant = "" if key.value == str(name) else f": YAML reads '{key.value}' as {name}, put it in quotes"
    return f"'{key.value}' is there twice{meant}"


def read_toml(text: str, file: str) -> list[Written]:
    """Return the documents of a TOML text: `passthrough`, `[[fields]]`, `[[tests]]`.

    Raises:
        InvalidValue: it is not TOML, or has other tables.
    """
    text = text.removeprefix("\ufeff")
    try:
        found = tomllib.loads(text)
        lines = toml_lines(text)
    except ValueError as error:
        line = re.search(r"line (\d+)", str(error))
        raise InvalidValue(f"broken TOML: {error}", where=f"{file}:{line[1]}" if line else file) from None
    except RecursionError:
        raise InvalidValue("broken TOML: it is nested too deeply", where=file) from None
    whole = _written(found, (), TomlLine(1), lines).value
    for name, each in whole.items():
        if name not in _TABLES:
            where = f"{file}:{each.key_line}"
            raise InvalidValue(f"there is no '{name}'{did_you_mean(name, _TABLES)}", where=where)
    fields = whole.get("fields", Written([], 1))
    if not isinstance(fields.value, list):
        hint = "each field is a table of its own: [[fields]]"
        raise InvalidValue("'fields' must be tables", where=f"{file}:{fields.key_line}", hint=hint)
    alone = {name: Written({name: whole[name]}, whole[name].line) for name in ("passthrough", "tests") if name in whole}
    return [
        *([alone["passthrough"]] if "passthrough" in alone else []),
        *fields.value,
        *([alone["tests"]] if "tests" in alone else []),
    ]


def _written(value: Any, path: TomlPath, outer: TomlLine, lines: Mapping[TomlPath, TomlLine]) -> Written:
    """Return a value of TOML with its lines.

    Without one of its own, it has the line of the value it is in, `outer`.
    """
    at = lines.get(path, outer)
    if isinstance(value, Mapping):
        value = {name: _written(each, (*path, name), at, lines) for name, each in value.items()}
    elif isinstance(value, list):
        value = [_written(each, (*path, number), at, lines) for number, each in enumerate(value)]
    is_block = isinstance(value, str) and value.count("\n") == at.breaks  # else some are escaped
    return Written(value, at.line, at.key_line, is_block)
