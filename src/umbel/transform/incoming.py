"""The transformation as a stage of a source, before preproc and validation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import polars as pl

from umbel.definitions.preproc import IncomingRows
from umbel.errors import InvalidType, InvalidValue
from umbel.formats.json_lines import JsonLines
from umbel.transform.configuration import Configuration, load
from umbel.transform.parts import Letter, Lines
from umbel.transform.records import EXPLODE
from umbel.transform.values import dump, parse
from umbel.transform.work import runner
from umbel.types.dtype import DType
from umbel.types.raw import Raw


@dataclass(frozen=True)
class TransformedRows(IncomingRows):
    """Rows made by a configuration of `umbel transform`.

    Args:
        text: the configuration as written.
        file: its name, for messages.
    """

    text: str
    file: str = field(default="", compare=False)

    @classmethod
    def of(cls, config: Any, subject: str) -> Self:
        """Return the rows of a configuration or its file.

        Raises:
            UmbelError: it is faulty, or makes several rows of one.
        """
        if not isinstance(config, Configuration | str | Path):
            raise InvalidType(f"{subject}: expected a configuration or its file, found {config!r:.60}")
        found = config if isinstance(config, Configuration) else load(config)
        for each in found.applied:
            if each.step.name == EXPLODE:
                where = f"{found.file}:{each.line}"
                hint = "explode in a pipeline of the dataset"
                raise InvalidValue(f"{subject}: explode makes several rows of one", where=where, hint=hint)
        return cls(found.text, found.file)

    def made(self, raw: Raw, columns: Mapping[str, DType], keys: Sequence[str] = ()) -> tuple[Raw, pl.Series]:
        rejected = dict(raw.rejects.select("row", "reason").iter_rows())
        rows, errors = list[dict[str, Any]](), dict[int, str]()
        outputs = self.outputs(raw, rejected, keys)
        raw = self._without_left(raw, outputs, keys)
        numbers = list[int]()
        for number, output in enumerate(outputs):
            if output is None:
                continue
            if isinstance(output, str):
                errors[len(rows)] = output
            rows.append({} if isinstance(output, str) else parse(output))
            numbers.append(number)
        origins = pl.Series(numbers, dtype=pl.UInt32)
        return _changes(JsonLines(columns, exact=False).values(rows, errors), raw, origins), origins

    def _without_left(self, raw: Raw, outputs: list[bytes | str | None], keys: Sequence[str]) -> Raw:
        """Return updates that are left out as deletions, and add their outputs.

        The row before such an update must not stay.
        """
        updates = raw.updates() if keys else {}
        left = {row: at for row, at in updates.items() if outputs[row] is None}
        if left:
            objects = None if raw.objects is None else [raw.objects[row] for row in left]
            ends = dict.fromkeys(range(len(left)))
            part = Raw(raw.frame[[*left]], raw.rejects.clear(), deletions=ends, objects=objects)
            for row, output in zip(left, self.outputs(part, {}, keys), strict=True):
                outputs[row] = output
        return replace(raw, deletions={**raw.deletions, **left}) if left else raw

    def outputs(self, raw: Raw, rejected: Mapping[int, str], keys: Sequence[str] = ()) -> list[bytes | str | None]:
        """Return for each row JSON, the reason of its rejection, or None.

        Args:
            raw: the incoming rows.
            rejected: the reasons of those that are none.
            keys: the columns that a deletion must have; none where it has those of the whole row.
        """
        found: list[bytes | str | None] = [rejected.get(row) for row in range(raw.frame.height)]
        good, lines = {True: list[int](), False: list[int]()}, {True: list[bytes](), False: list[bytes]()}
        for row, values in enumerate(
            _with_texts(raw.frame).iter_rows(named=True) if raw.objects is None else raw.objects
        ):
            if row in raw.truncations:
                found[row] = b"{}"
            elif row not in rejected:
                is_end = bool(keys) and row in raw.deletions
                try:
                    lines[is_end].append(dump(values))
                    good[is_end].append(row)
                except (TypeError, ValueError, RecursionError) as error:
                    found[row] = f"transform: {error}"
        for is_end, rows in good.items():
            if rows:
                named = tuple(keys) if is_end else ()
                part = Lines("source", b"\n".join([*lines[is_end], b""]), is_each=True, keys=named)
                done = runner(self.text, self.file)(part)
                for row, output in zip(rows, done.each, strict=True):
                    found[row] = output
                for letter in done.letters:
                    found[rows[letter.row]] = _reason(letter)
        return found


def _changes(made: Raw, raw: Raw, numbers: pl.Series) -> Raw:
    """Return rows with what a change capture tells of the incoming ones.

    Args:
        made: the new rows.
        raw: the incoming ones.
        numbers: the incoming row of each new one.
    """
    places = {number: row for row, number in enumerate(numbers.to_list())}
    return replace(
        made,
        deletions={places[row]: at for row, at in raw.deletions.items() if row in places},
        truncations={places[row]: at for row, at in raw.truncations.items() if row in places},
        starts=None if raw.starts is None else raw.starts.gather(numbers),
        replaces=None if raw.replaces is None else raw.replaces.gather(numbers),
    )


def _with_texts(frame: pl.DataFrame) -> pl.DataFrame:
    """Return rows with bytes as base64, which fields of bytes are read from."""
    text = pl.element().bin.encode("base64")
    lists = [name for name, dtype in frame.schema.items() if dtype == pl.List(pl.Binary)]
    return frame.with_columns(pl.col(pl.Binary).bin.encode("base64"), pl.col(lists).list.eval(text))


def _reason(letter: Letter) -> str:
    at = f" ({letter.at})" if letter.at else ""
    field = f" of '{letter.field}'" if letter.field else ""  # which one ended its process is not known
    return f"transform: step {letter.step}{field}{at}: {letter.error}: {letter.message}"
