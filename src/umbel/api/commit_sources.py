"""From a source as declared to its definition: preproc, where and sample are checked against the dataset."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from umbel.api.constant import fault_of, settled
from umbel.api.dataset import DatasetRecord
from umbel.api.incoming import Eval, Ref, Sample
from umbel.api.source import SourceRecord
from umbel.errors import InvalidType, InvalidValue, UmbelError, did_you_mean
from umbel.expr import Expr, TypedExpr
from umbel.operators.columns import quoted
from umbel.operators.computed import ByExpression, ByFunction
from umbel.operators.userfunction import UserFunction
from umbel.plan.definitions import Constant, Evaluated, Reference, Sampling, SourceDefinition
from umbel.types.annotations import from_annotation
from umbel.types.dtypes import Bool, DType

Made = Reference | Constant | Evaluated


def source_definition(source: SourceRecord, dataset: DatasetRecord) -> SourceDefinition:
    """Return the definition of a source of a dataset.

    Raises:
        UmbelError: preproc, where or sample do not go with the dataset; the message names it and the field.
    """
    checks = _Checks(source, dataset)
    return SourceDefinition(
        connector=source.connector,
        disorder=source.disorder,
        cdc=source.cdc,
        every=source.every,
        since=source.since,
        until=source.until,
        preproc=tuple((name, checks.made(name, value)) for name, value in source.preproc.items()),
        where=None if source.where is None else checks.where(source.where),
        idleness=source.idleness,
        sample=None if source.sample is None else checks.sample(source.sample),
        place=source.place,
    )


class _Checks:
    def __init__(self, source: SourceRecord, dataset: DatasetRecord) -> None:
        self.source, self.dataset, self.schema = source, dataset, dataset.schema
        self.title = f"dataset '{dataset.name}', source {source.connector.title}"

    def made(self, name: str, value: Any) -> Made:
        """Return how a column is made."""
        owner = f"{self.title}: preproc of field '{name}'"
        if name not in self.schema.dtypes:
            known = did_you_mean(name, self.schema.names)
            raise InvalidValue(
                f"{owner}: there is no such field{known}",
                where=self.source.place,
                hint="preproc makes fields of the dataset",
            )
        if isinstance(value, Ref):
            return self._reference(owner, value)
        if isinstance(value, Eval):
            return self._evaluated(owner, name, value)
        return self._constant(owner, self.schema.dtypes[name], value)

    def _reference(self, owner: str, value: Ref) -> Reference:
        if len(value.path) > 1 and not self.source.connector.nests:
            raise InvalidValue(
                f"{owner}: ref('{value.name}') leads into nested data, which {self.source.connector.title} has none of",
                where=self.source.place,
                hint="S3, Kinesis and PubSub with json, Kafka with json, Avro or Protobuf have",
            )
        return Reference(value.path)

    def _constant(self, owner: str, dtype: DType, value: Any) -> Constant:
        if fault := fault_of(dtype, value):
            raise InvalidValue(
                f"{owner}: constant of type {dtype}: {fault}",
                where=self.source.place,
                hint="a constant is a value of the field's type",
            )
        return Constant(settled(value))

    def _evaluated(self, owner: str, name: str, value: Eval) -> Evaluated:
        if name == self.schema.timestamp:
            raise InvalidValue(
                f"{owner}: the timestamp cannot be computed by eval",
                where=self.source.place,
                hint='copy it with ref("column"), or let the incoming column have its name',
            )
        made = self.source.preproc
        columns = {each: dtype for each, dtype in self.schema.dtypes.items() if each not in made}
        return self._expression(owner, value, columns, self.schema.dtypes[name])

    def where(self, value: Any) -> Evaluated:
        """Return the condition on rows."""
        owner = f"{self.title}: where"
        given = value if isinstance(value, Eval) else Eval(value)
        if not isinstance(given.value, Expr | TypedExpr) and not callable(given.value):
            raise InvalidType(
                f"{owner}: expected a function or eval(...), found {value!r}",
                where=self.source.place,
                hint='where=lambda df: df["amount"] > 0, or where=eval(col("amount") > 0)',
            )
        return self._expression(owner, given, self.schema.dtypes, Bool())

    def _expression(self, owner: str, given: Eval, columns: Mapping[str, DType], expected: DType) -> Evaluated:
        extra = {name: from_annotation(each, owner=owner, field=name) for name, each in (given.schema or {}).items()}
        if not isinstance(given.value, Expr | TypedExpr):
            return Evaluated(ByFunction(UserFunction(given.value)), tuple(extra.items()))
        expression = given.value.expr if isinstance(given.value, TypedExpr) else given.value
        known = {**columns, **extra}
        inferred = self._inferred(owner, expression, known)
        declared = given.value.dtype if isinstance(given.value, TypedExpr) else inferred
        for found in (inferred, declared):
            if not _is(found, expected):
                message = f"{owner}: expected {expected}, found {found} for expression `{expression}`"
                raise InvalidType(
                    message, where=self.source.place, hint="change the type of the field, or the expression"
                )
        reads = tuple((name, known[name]) for name in sorted(expression.columns()))
        return Evaluated(ByExpression(expression), reads)

    def _inferred(self, owner: str, expression: Expr, columns: Mapping[str, DType]) -> DType:
        try:
            return expression.dtype(columns)
        except UmbelError as error:
            raise type(error)(f"{owner}: {error.message}", where=self.source.place, hint=error.hint) from error

    def sample(self, sample: Sample) -> Sampling:
        """Return which share of the rows is taken."""
        owner = f"{self.title}: sample"
        if sample.using is None:
            return Sampling(float(sample.rate), self._default_columns(owner))
        for name in sample.using:
            role = self._unusable(name)
            if role:
                raise InvalidValue(
                    f"{owner}: cannot use '{name}', {role}",
                    where=self.source.place,
                    hint="name columns that come in as they are stored",
                )
        return Sampling(float(sample.rate), tuple(sample.using))

    def _unusable(self, name: str) -> str:
        if name in self.source.preproc:
            return "it is made by preproc"
        if name == self.schema.timestamp:
            return "it is the timestamp"
        return "" if name in self.schema.dtypes else f"it is not a field; fields: {quoted(self.schema.names)}"

    def _default_columns(self, owner: str) -> tuple[str, ...]:
        names = self.schema.key_names or self.schema.value_names
        using = tuple(name for name in names if name not in self.source.preproc)
        if not using:
            raise InvalidValue(
                f"{owner}: no columns are left to sample by", where=self.source.place, hint="Sample(using=)"
            )
        return using


def _is(found: DType, expected: DType) -> bool:
    """Whether values of one type are values of the other; restrictions are checked row by row."""
    return (expected.is_optional or not found.is_optional) and found.base in (expected.base, expected.plain)
