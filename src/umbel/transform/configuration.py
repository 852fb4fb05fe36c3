"""Configurations: checked documents, one for each target field."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from umbel.errors import ErrorCollector, InvalidType, InvalidValue, UmbelError, did_you_mean, located, misspelt
from umbel.transform.documents import Written, read_file, read_toml, read_yaml
from umbel.transform.parameters import check_names, json_value
from umbel.transform.paths import FieldPath
from umbel.transform.python_code import InvalidCode
from umbel.transform.registry import ON_ERROR, TransformStep, step_named

DOCUMENT = {"source_field": True, "target_field": False, "transformations": False}
READ, WRITE = "read", "write"
"""In place of a step, in the dead letters of records that cannot be read, or written."""
CASE = {"name": False, "input": True, "output": False, "dead_letter": False}


@dataclass(frozen=True)
class AppliedStep:
    """A step of a document.

    Args:
        step: with its parameters.
        on_error: what happens to a record that it fails for.
        line: of the step in the configuration.
        code_line: of the first line of its code, if it has some.
        is_block: whether the lines of its code are those of the file.
    """

    step: TransformStep
    on_error: str = "dead_letter"
    line: int = 0
    code_line: int = 0
    is_block: bool = False

    def line_of(self, line: int) -> int:
        """Return the line in the configuration of a line of its code.

        It is that of its start where lines are folded or escaped, and cannot be counted.
        """
        return self.code_line + (line - 1 if self.is_block else 0)


@dataclass(frozen=True)
class FieldDocument:
    """The document of one target field.

    Args:
        source: where the value comes from.
        target: where it goes; None for a document that only filters.
        steps: applied in order.
        line: of the document in the configuration.
    """

    source: FieldPath
    target: FieldPath | None
    steps: tuple[AppliedStep, ...]
    line: int = 0

    @cached_property
    def may_mutate(self) -> bool:
        """True if its code may change the record in place."""
        codes = [each.step.python() for each in self.steps]
        return any(code is not None and code.may_mutate for code in codes)

    @property
    def title(self) -> str:
        """The name for messages: of the target, else of the source."""
        return str(self.target or self.source)


@dataclass(frozen=True)
class TransformCase:
    """A case of a `tests:` document.

    Args:
        name: for the report.
        record: the input.
        output: the expected records.
        dead_letter: the name of the step that must fail; empty if none.
        line: of the case in the configuration.
    """

    name: str
    record: dict[str, Any]
    output: tuple[dict[str, Any], ...]
    dead_letter: str
    line: int


@dataclass(frozen=True)
class Configuration:
    """A checked configuration.

    Args:
        documents: in order.
        passthrough: whether the other fields of a record stay.
        cases: of its tests.
        file: its name, for messages.
        text: as written.
    """

    documents: tuple[FieldDocument, ...]
    passthrough: bool = False
    cases: tuple[TransformCase, ...] = ()
    file: str = ""
    text: str = ""

    @property
    def applied(self) -> Iterator[AppliedStep]:
        """All steps of all documents."""
        return (each for document in self.documents for each in document.steps)

    @property
    def needs_limits(self) -> bool:
        """True if a step may take any time, or any memory, for a record."""
        return any(each.step.needs_limits for each in self.applied)

    @property
    def without_fail(self) -> Configuration:
        """The same, with dead letters where a step says `on_error: fail`."""
        documents = tuple(replace(each, steps=tuple(map(_continued, each.steps))) for each in self.documents)
        return replace(self, documents=documents)

    def of_keys(self, keys: Collection[str]) -> Configuration:
        """Return the configuration for deleted rows, of which databases may report the keys alone.

        No deletion is left out, as the row may have been there.

        Args:
            keys: the fields that are made.
        """
        documents = []
        for each in self.documents:
            if each.target is not None and each.target.parts[0] in keys:
                steps = (step for step in each.steps if step.step.name != "filter")
                letters = (replace(step, on_error=ON_ERROR[0]) if step.on_error == "drop" else step for step in steps)
                documents.append(replace(each, steps=tuple(letters)))
        return replace(self, documents=tuple(documents))


def _continued(applied: AppliedStep) -> AppliedStep:
    return replace(applied, on_error=ON_ERROR[0]) if applied.on_error == "fail" else applied


def load(path: str | Path) -> Configuration:
    """Return the configuration in a file, YAML or TOML by its ending.

    Raises:
        UmbelError: it is faulty; all faults are listed with file and line.
    """
    found = read_file(path)
    return loads(found.text, found.file)


def loads(text: str, file: str = "configuration.yaml") -> Configuration:
    """Return the configuration of a text.

    Args:
        text: the documents.
        file: its name, for messages; the ending decides between YAML and TOML.

    Raises:
        UmbelError: it is faulty; all faults are listed with file and line.
    """
    read = read_toml if Path(file).suffix.lower() == ".toml" else read_yaml
    return _Checking(file).configuration(read(text, file), text)


class _Checking:
    """The checks of one configuration; errors are collected."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.errors = ErrorCollector(file, file)

    def configuration(self, documents: list[Written], text: str) -> Configuration:
        found, cases, passthrough = list[FieldDocument](), list[TransformCase](), False
        for number, document in enumerate(documents):
            with self._at(document.line):
                names = self._mapping(document, "a document")
                if "passthrough" in names:
                    passthrough = self._passthrough(names, number)
                elif "tests" in names:
                    self._check(names, {"tests": True}, "the tests")
                    cases += self._cases(names["tests"])
                else:
                    found.append(self._document(document))
        self._check_targets(found)
        self._check_cases(cases, {each.step.name for document in found for each in document.steps})
        if not found and not self.errors.found:
            self.errors.add(InvalidValue("there is no document with a source_field", where=f"{self.file}:1"))
        self.errors.check()
        return Configuration(tuple(found), passthrough, tuple(cases), self.file, text)

    def _passthrough(self, names: dict[str, Written], number: int) -> bool:
        for name in names.keys() & DOCUMENT.keys():
            hint = "passthrough is a document of its own, before the others"
            raise InvalidValue(f"'{name}' is in the document with passthrough", hint=hint)
        self._check(names, {"passthrough": True}, "the document with passthrough")
        if number:
            raise InvalidValue("passthrough is the first document")
        return bool(self._typed(names["passthrough"], bool, "passthrough", "true or false"))

    def _document(self, document: Written) -> FieldDocument:
        names = document.value
        for name in names if "source_field" not in names else ():
            if "did you mean" in (meant := did_you_mean(name, ("passthrough", "tests"))):
                where = f"{self.file}:{names[name].key_line or document.line}"
                raise InvalidValue(f"document: there is no '{name}'{meant}", where=where)
        self._check(names, DOCUMENT, "document")
        with located(f"{self.file}:{names['source_field'].line}"):
            source = FieldPath.parse(self._typed(names["source_field"], str, "source_field", "a path"))
        steps = self._steps(names.get("transformations", Written(None, document.line)))
        target = self._target(names.get("target_field"), steps)
        return FieldDocument(source, target, steps, document.line)

    def _target(self, written: Written | None, steps: tuple[AppliedStep, ...]) -> FieldPath | None:
        if written is None:
            if not steps or not all(each.step.name == "filter" for each in steps[-1:]):
                raise InvalidValue(
                    "document: 'target_field' is missing", hint="only a document that ends with filter has none"
                )
            return None
        with located(f"{self.file}:{written.line}"):
            target = FieldPath.parse(self._typed(written, str, "target_field", "a path"))
            if not target.parts or not target.is_of_names:
                raise InvalidValue(f"target_field '{target}': a target is a field, or a field of objects: a.b")
        return target

    def _steps(self, written: Written) -> tuple[AppliedStep, ...]:
        found = list[AppliedStep]()
        if not isinstance(written.value, list | None):
            where = f"{self.file}:{written.key_line or written.line}"
            raise InvalidType(f"transformations: expected a list of steps, found {written.plain!r:.60}", where=where)
        for each in written.value or ():
            with self._at(each.line):
                found.append(self._step(each))
        return tuple(found)

    def _step(self, written: Written) -> AppliedStep:
        names = dict(self._mapping(written, "a step"))
        if "name" not in names or not isinstance(names["name"].value, str):
            raise InvalidValue(
                f"a step has no name{misspelt(['name'], names.keys() - {'name'})}", hint="- {name: lower}"
            )
        name = names.pop("name").value
        kind = step_named(name)
        own = {each.name: each for each in kind.parameters}
        known = {each.name: each.is_required for each in kind.parameters}
        self._check(names, {**known, "on_error": False}, f"step '{name}'")
        on_error = names.pop("on_error", Written(ON_ERROR[0], 0)).plain
        on_error = "null" if on_error is None else on_error  # YAML's null
        if on_error not in ON_ERROR:
            raise InvalidValue(
                f"step '{name}': on_error cannot be {on_error!r:.60}{did_you_mean(str(on_error), ON_ERROR)}"
            )
        values = {}
        for key, value in names.items():
            try:
                values[key] = own[key].checked(value.plain)
            except UmbelError as error:
                inner = error.__cause__.line - 1 if value.is_block and isinstance(error.__cause__, InvalidCode) else 0
                error.where = f"{self.file}:{value.line + inner}"
                raise
        code = names.get("code", Written("", 0))
        return AppliedStep(self._made(kind, values), on_error, written.line, code.line, code.is_block)

    @staticmethod
    def _made(kind: type[TransformStep], values: dict[str, Any]) -> TransformStep:
        try:
            return kind(**values)
        except UmbelError:
            raise
        except ValueError as error:
            raise InvalidValue(f"step '{kind.name}': {error}") from None

    def _cases(self, written: Written) -> Iterator[TransformCase]:
        if not isinstance(written.value, list):
            raise InvalidType("tests: expected a list of cases", hint="- {input: {a: 1}, output: {b: 1}}")
        for number, each in enumerate(written.value, 1):
            with self._at(each.line):
                names = self._mapping(each, "a case")
                self._check(names, CASE, "case")
                yield self._case(names, number, each.line)

    def _case(self, names: dict[str, Written], number: int, line: int) -> TransformCase:
        if ("output" in names) == ("dead_letter" in names):
            raise InvalidValue("case: a case has 'output' or 'dead_letter'")
        output = names["output"].plain if "output" in names else None
        listed = output if isinstance(output, list) else [] if output is None else [output]
        for each in listed:
            if not isinstance(each, dict):
                raise InvalidType(f"case: an output is a record, a list of records or null, found {each!r:.60}")
        name = names["name"].plain if "name" in names else f"case {number}"
        letter = names["dead_letter"].plain if "dead_letter" in names else ""
        return TransformCase(str(name), self._mapping_plain(names["input"]), tuple(listed), str(letter), line)

    def _mapping_plain(self, written: Written) -> dict[str, Any]:
        self._mapping(written, "the input")
        found: dict[str, Any] = written.plain
        json_value(found)
        return found

    def _check_cases(self, cases: list[TransformCase], names: set[str]) -> None:
        for case in cases:
            if case.dead_letter and case.dead_letter not in names | {READ, WRITE}:
                meant = did_you_mean(case.dead_letter, names)
                message = f"case: there is no step '{case.dead_letter}' that could fail{meant}"
                self.errors.add(InvalidValue(message, where=f"{self.file}:{case.line}"))

    def _check_targets(self, documents: list[FieldDocument]) -> None:
        """Check that no target is another one, or inside of it."""
        seen: dict[tuple[Any, ...], FieldDocument] = {}
        inside: dict[tuple[Any, ...], FieldDocument] = {}
        for document in documents:
            parts = document.target.parts if document.target else ()
            outer = [parts[:size] for size in range(1, len(parts))]
            found = [seen.get(each) for each in (*outer, parts)] + [inside.get(parts)]
            for other in filter(None, found):
                message = f"target_field '{document.title}' and '{other.title}' of line {other.line} overlap"
                self.errors.add(InvalidValue(message, where=f"{self.file}:{document.line}"))
                break
            if parts:
                seen.setdefault(parts, document)
                inside.update((each, document) for each in outer if each not in inside)

    def _check(self, found: dict[str, Written], known: Mapping[str, bool], subject: str) -> None:
        """Check the names of a mapping.

        An error is at the line of the first unknown one.
        """
        line = next((each.key_line for name, each in found.items() if name not in known), 0)
        with located(f"{self.file}:{line}") if line else nullcontext():
            check_names(found, known, subject)

    @contextmanager
    def _at(self, line: int) -> Iterator[None]:
        """Record an error raised inside of the block, at a line."""
        with self.errors.noted(), located(f"{self.file}:{line}"):
            yield

    @staticmethod
    def _mapping(written: Written, subject: str) -> dict[str, Written]:
        if not isinstance(written.value, dict):
            raise InvalidType(f"{subject} must be a mapping, found {written.plain!r:.60}")
        found: dict[str, Written] = {str(name): each for name, each in written.value.items()}
        return found

    @staticmethod
    def _typed(written: Written, kind: type, name: str, expected: str) -> Any:
        if not isinstance(written.value, kind):
            raise InvalidType(f"{name} must be {expected}, found {written.plain!r:.60}")
        return written.value
