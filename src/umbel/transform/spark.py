"""The transformation of a Spark DataFrame, in Spark's Python workers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from umbel.errors import InvalidType
from umbel.transform.configuration import Configuration, load

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from umbel.transform.parts import Done, Lines

VALUE = "value"
"""The column of records as texts."""
LETTERS = "input string, line long, field string, step string, at string, error string, message string, record string"


def transform(frame: DataFrame, config: str | Path | Configuration, *, schema: str | None = None) -> DataFrame:
    """Return the output records of a DataFrame.

    Its rows are records; a DataFrame with the only column `value`, a text, as of `spark.read.text`, has a record as JSON in each.
    A null, such as a tombstone of Kafka, is a dead letter there. Dead letters are left out; `dead_letters` returns them.

    Args:
        frame: the records.
        config: the configuration, or its file.
        schema: the columns of the result, as of Spark's `from_json`: `"ts long, user struct<id: long>"`; without one, the result
            has the column `value`: each record as JSON, byte for byte what `umbel transform` writes.

    Raises:
        UmbelError: the configuration is faulty.
    """
    lines = _mapped(frame, _Transforming(_configuration(config), frame), f"{VALUE} string")
    if schema is None:
        return lines
    quoted = schema.replace("\\", "\\\\").replace("'", "\\'")
    return lines.selectExpr(f"from_json({VALUE}, '{quoted}') as record").select("record.*")


def dead_letters(frame: DataFrame, config: str | Path | Configuration) -> DataFrame:
    """Return the dead letters of a DataFrame, with the columns of `--dead-letters`.

    The line is the number of the record in its partition.
    """
    return _mapped(frame, _Transforming(_configuration(config), frame, letters=True), LETTERS)


def _mapped(frame: DataFrame, transforming: _Transforming, schema: str) -> DataFrame:
    """Return the rows that a function makes of columns of any names.

    Spark takes a name with a dot for a path.
    """
    return frame.toDF(*(f"c{number}" for number in range(len(frame.columns)))).mapInArrow(transforming, schema)


class _Transforming:
    """The function of `mapInArrow`.

    Args:
        configuration: the configuration.
        frame: the records.
        letters: return dead letters.
    """

    def __init__(self, configuration: Configuration, frame: DataFrame, *, letters: bool = False) -> None:
        self._text, self._file = configuration.text, configuration.file
        self._columns, self._is_text, self._letters = frame.columns, _is_text(frame), letters

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        from umbel.transform.parts import split
        from umbel.transform.work import runner

        os.environ.setdefault("POLARS_MAX_THREADS", "1")  # Spark runs a task per core
        run, first = runner(self._text, self._file), 0
        for batch in batches:
            named = batch.rename_columns(self._columns)
            for done in map(run, _lines(named, is_text=self._is_text)):
                if self._letters:
                    yield _letters(done, first)
                else:
                    texts = pa.array(split(done.data), pa.binary()).cast(pa.string())
                    yield pa.RecordBatch.from_arrays([texts], [VALUE])
                first += done.lines


def _lines(batch: pa.RecordBatch, *, is_text: bool) -> Iterator[Lines]:
    """Yield the rows of a batch as lines of JSON."""
    import pyarrow as pa

    from umbel.transform.parts import Lines
    from umbel.transform.rows import check_columns, parts_of

    if is_text:
        texts = batch.column(VALUE).cast(pa.binary()).fill_null(b"null")  # Spark's texts may be no UTF-8
        yield Lines("", b"".join(each.replace(b"\n", b"\r") + b"\n" for each in texts.to_pylist()))
        return
    check_columns(batch.schema)
    yield from parts_of("", batch)


def _letters(done: Done, first: int) -> pa.RecordBatch:
    import orjson
    import pyarrow as pa

    from umbel.transform.outputs import letter_line

    rows = [orjson.loads(letter_line(each, done.name, first + each.row + 1)) for each in done.letters]
    names = [each.split(" ")[0] for each in LETTERS.split(", ")]
    types = [pa.int64() if name == "line" else pa.string() for name in names]
    arrays = [pa.array([row[name] for row in rows], kind) for name, kind in zip(names, types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names)


def _is_text(frame: DataFrame) -> bool:
    if frame.columns != [VALUE]:
        return False
    return frame.schema[VALUE].dataType.typeName() == "string"  # of any collation


def _configuration(config: str | Path | Configuration) -> Configuration:
    if isinstance(config, Configuration):
        return config
    if not isinstance(config, str | Path):
        raise InvalidType(f"transform: expected a configuration or its file, found {config!r:.60}")
    return load(config)
