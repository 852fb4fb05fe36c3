"""Configurations as written: YAML and TOML documents whose values know their line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from umbel.errors import InvalidValue

ENDINGS = (".yaml", ".yml", ".toml")
MOST_VALUES = 1_000_000
"""Values of a configuration, those behind aliases counted each time."""


@dataclass(frozen=True, slots=True)
class Written:
    """A value of a configuration, with its line.

    Args:
        value: a mapping of names to written values, a list of them, or a plain value.
        line: where it begins, from 1.
    """

    value: Any
    line: int

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
        return ConfigurationFile(file.read_text(encoding="utf-8"), str(path))
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
        self._count += 1
        if self._count > MOST_VALUES:
            raise InvalidValue(f"aliases make more than {MOST_VALUES:,} values", where=f"{self._file}:{line}")
        if isinstance(node, self._yaml.MappingNode):
            return Written(dict(self._members(node)), line)
        if isinstance(node, self._yaml.SequenceNode):
            return Written([self._written(each) for each in node.value], line)
        return Written(self._loader.construct_object(node), line + (node.style in {"|", ">"}))

    def _members(self, node: Any) -> Iterator[tuple[Any, Written]]:
        seen = set()
        for key, value in node.value:
            where = f"{self._file}:{key.start_mark.line + 1}"
            if not isinstance(key, self._yaml.ScalarNode):
                raise InvalidValue("a key is a list or a mapping", where=where)
            name = self._loader.construct_object(key)
            if name in seen:
                raise InvalidValue(f"'{name}' is there twice", where=where)
            seen.add(name)
            yield name, self._written(value)


def read_toml(text: str, file: str) -> list[Written]:
    """Return the documents of a TOML text: `passthrough`, `[[fields]]`, `[[tests]]`.

    Raises:
        InvalidValue: it is not TOML, or has other tables.
    """
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"line (\d+)", str(error))
        raise InvalidValue(f"broken TOML: {error}", where=f"{file}:{line[1]}" if line else file) from None
    lines = _Lines(text)
    documents = []
    for name, value in found.items():
        if name == "fields" and isinstance(value, list):
            continue
        documents.append(Written({name: _written(value, lines.of_key(name))}, lines.of_key(name)))
    fields = found.get("fields", [])
    documents[len(documents) if "tests" not in found else -1 :] = [
        *(_field(each, lines) for each in (fields if isinstance(fields, list) else [])),
        *(documents[-1:] if "tests" in found else []),
    ]
    return sorted(documents, key=lambda each: "tests" in each.value)


class _Lines:
    """The lines of the tables of a TOML text, in order.

    `tomllib` does not report them.
    """

    def __init__(self, text: str) -> None:
        self._lines = text.split("\n")
        self._steps = iter(self._headers("fields.transformations"))
        self._fields = iter(self._headers("fields"))

    def _headers(self, name: str) -> list[int]:
        pattern = re.compile(rf"\s*\[\[\s*{re.escape(name)}\s*\]\]")
        return [number for number, line in enumerate(self._lines, 1) if pattern.match(line)]

    def field(self) -> int:
        return next(self._fields, 1)

    def step(self) -> int | None:
        return next(self._steps, None)

    def of_key(self, name: str) -> int:
        pattern = re.compile(rf"\s*(?:\[\[?\s*)?{re.escape(name)}\b")
        return next((number for number, line in enumerate(self._lines, 1) if pattern.match(line)), 1)


def _field(found: Any, lines: _Lines) -> Written:
    line = lines.field()
    if not isinstance(found, dict) or not isinstance(found.get("transformations"), list):
        return _written(found, line)
    steps = [_written(each, lines.step() or line) for each in found["transformations"]]
    return Written({**_written(found, line).value, "transformations": Written(steps, line)}, line)


def _written(value: Any, line: int) -> Written:
    if isinstance(value, Mapping):
        return Written({name: _written(each, line) for name, each in value.items()}, line)
    return Written([_written(each, line) for each in value] if isinstance(value, list) else value, line)
