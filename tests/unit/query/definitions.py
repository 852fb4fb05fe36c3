"""Definitions made by hand, and a naive source of lookups that counts its calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import polars as pl

from umbel.definitions.records import (
    AliasExtractor,
    DatasetDefinition,
    Definitions,
    ExpressionExtractor,
    ExtractorDefinition,
    FeatureDefinition,
    FeaturesetDefinition,
    FunctionExtractor,
    LookupExtractor,
)
from umbel.expr import Expr
from umbel.functions.user_function import UserFunction
from umbel.query.execute import QueryEngine
from umbel.query.rows import Column, Instants
from umbel.types.dtypes import DType
from umbel.types.schema import Schema

JAN = datetime(2024, 1, 1, tzinfo=UTC)


def dataset(name: str, keys: Mapping[str, DType], values: Mapping[str, DType], **options: Any) -> DatasetDefinition:
    schema = Schema(tuple(keys.items()), tuple(values.items()), "t")
    return DatasetDefinition(
        name=name, version=1, schema=schema, history=0, **{"online": True, "offline": True} | options
    )


def featureset(name: str, features: Mapping[str, DType], *extractors: ExtractorDefinition) -> FeaturesetDefinition:
    members = tuple(FeatureDefinition(name=each, featureset=name, dtype=dtype) for each, dtype in features.items())
    return FeaturesetDefinition(name=name, features=members, extractors=extractors)


def featureset_of(fqn: str) -> str:
    return fqn.split(".", maxsplit=1)[0]


def lookup(output: str, field: str, keys: Mapping[str, str], **options: Any) -> LookupExtractor:
    """`output` is "FS.feature", `field` is "Dataset.field", `keys` maps key fields to features."""
    owner, column = field.split(".")
    return LookupExtractor(
        name=f"_{output}",
        featureset=featureset_of(output),
        inputs=tuple(keys.values()),
        outputs=(output,),
        datasets=(owner,),
        field=column,
        keys=tuple(keys),
        **options,
    )


def alias(output: str, source: str, default: Any = None) -> AliasExtractor:
    featureset = featureset_of(output)
    return AliasExtractor(
        name=f"_{output}", featureset=featureset, inputs=(source,), outputs=(output,), default=default
    )


def expression(output: str, expr: Expr, inputs: Sequence[str]) -> ExpressionExtractor:
    return ExpressionExtractor(
        name=f"_{output}",
        featureset=featureset_of(output),
        inputs=tuple(inputs),
        outputs=(output,),
        expression=expr,
    )


def function(
    name: str, call: Callable[..., Any], inputs: Sequence[str], outputs: Sequence[str], deps: Sequence[str] = ()
) -> FunctionExtractor:
    return FunctionExtractor(
        name=name,
        featureset=featureset_of(outputs[0]),
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        datasets=tuple(deps),
        function=UserFunction(call),
    )


def definitions(datasets: Sequence[DatasetDefinition], featuresets: Sequence[FeaturesetDefinition]) -> Definitions:
    return Definitions({each.name: each for each in datasets}, {each.name: each for each in featuresets})


class Tables:
    """Answers lookups by searching lists of rows, `{dataset: [row, ...]}`; counts the calls."""

    def __init__(self, datasets: Sequence[DatasetDefinition], rows: Mapping[str, list[dict[str, Any]]]) -> None:
        self.datasets = {each.name: each for each in datasets}
        self.rows = rows
        self.calls: list[tuple[str, str, int]] = []

    def online(
        self, dataset: str, keys: pl.DataFrame, at: pl.Series, fields: Any = None
    ) -> tuple[pl.DataFrame, pl.Series]:
        self.calls.append(("online", dataset, keys.height))
        return self._search(dataset, keys, at)

    def offline(
        self, dataset: str, keys: pl.DataFrame, at: pl.Series, fields: Any = None
    ) -> tuple[pl.DataFrame, pl.Series]:
        self.calls.append(("offline", dataset, keys.height))
        return self._search(dataset, keys, at)

    def point_lookup(
        self, dataset: str, keys: Mapping[str, Column], at: Instants, fields: Any = None, snapshots: Any = None
    ) -> None:
        """Have no shorter way."""

    def _search(self, dataset: str, keys: pl.DataFrame, at: pl.Series) -> tuple[pl.DataFrame, pl.Series]:
        schema = self.datasets[dataset].schema
        assert keys.columns == schema.key_names
        found = []
        for key, instant in zip(keys.rows(named=True), at.to_list(), strict=True):
            same = [
                row for row in self.rows[dataset] if row["t"] <= instant and all(row[k] == v for k, v in key.items())
            ]
            found.append(max(same, key=lambda row: row["t"], default=None))
        blank = dict.fromkeys(schema.names)
        shown = [row or {**blank, **key} for row, key in zip(found, keys.rows(named=True), strict=True)]
        frame = pl.DataFrame(shown, schema=schema.polars())
        return frame, pl.Series([row is not None for row in found], dtype=pl.Boolean)


def engine(
    datasets: Sequence[DatasetDefinition],
    featuresets: Sequence[FeaturesetDefinition],
    rows: Mapping[str, list[dict[str, Any]]] | None = None,
) -> tuple[QueryEngine, Tables]:
    tables = Tables(datasets, rows or {})
    return QueryEngine(definitions(datasets, featuresets), tables), tables
