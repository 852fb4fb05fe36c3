"""Checks of preproc, where and sample of a source against its dataset."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from umbel.api.constant import error_of, normalized
from umbel.api.incoming import Eval, Ref, Sample
from umbel.definitions.env import EVERY
from umbel.definitions.preproc import ConstantColumn, Evaluated, Made, ReferenceColumn
from umbel.definitions.records import DatasetDefinition, Sampling, SourceDefinition
from umbel.errors import InvalidType, InvalidValue, UmbelError, did_you_mean
from umbel.expr import Expr, TypedExpr
from umbel.functions.computed import ByExpression, ByFunction
from umbel.functions.user_function import UserFunction
from umbel.operators.columns import quoted
from umbel.types.annotations import from_annotation
from umbel.types.dtypes import Bool, DType


@dataclass(frozen=True)
class Incoming:
    """The arguments of `@source` on incoming rows.

    They are checked against the dataset once the source is selected.

    Args:
        preproc: column builders by name: `ref(...)`, `eval(...)`, or a constant.
        where: the row condition: a function, or `eval(...)`.
        sample: the sampling of the rows.
    """

    preproc: Mapping[str, Any]
    where: Eval | Callable[..., Any] | None
    sample: Sample | None

    def checked(self, source: SourceDefinition, dataset: DatasetDefinition) -> SourceDefinition:
        """Return the selected source with its columns.

        Raises:
            UmbelError: preproc, where or sample do not fit the dataset; the message names it and the field.
        """
        checks = _Checks(self.preproc, source, dataset)
        return replace(
            source,
            preproc=tuple((name, checks.made(name, value)) for name, value in self.preproc.items()),
            where=None if self.where is None else checks.where(self.where),
            sample=None if self.sample is None else checks.sample(self.sample),
            env=EVERY,
            declared=None,
        )


class _Checks:
    def __init__(self, preproc: Mapping[str, Any], source: SourceDefinition, dataset: DatasetDefinition) -> None:
        self.preproc, self.source, self.schema = preproc, source, dataset.schema
        self.title = f"dataset '{dataset.name}', source {source.connector.title}"

    def made(self, name: str, value: Any) -> Made:
        """Return the checked column builder of a preproc value."""
        subject = f"{self.title}: preproc of field '{name}'"
        if name not in self.schema.dtypes:
            known = did_you_mean(name, self.schema.names)
            raise InvalidValue(
                f"{subject}: there is no such field{known}",
                where=self.source.location,
                hint="preproc makes fields of the dataset",
            )
        if isinstance(value, Ref):
            return ReferenceColumn(value.path)
        if isinstance(value, Eval):
            return self._evaluated(subject, name, value)
        return self._constant(subject, self.schema.dtypes[name], value)

    def _constant(self, subject: str, dtype: DType, value: Any) -> ConstantColumn:
        if error := error_of(dtype, value):
            raise InvalidValue(
                f"{subject}: constant of type {dtype}: {error}",
                where=self.source.location,
                hint="a constant is a value of the field's type",
            )
        return ConstantColumn(normalized(value))

    def _evaluated(self, subject: str, name: str, value: Eval) -> Evaluated:
        if name == self.schema.timestamp:
            raise InvalidValue(
                f"{subject}: the timestamp cannot be computed by eval",
                where=self.source.location,
                hint='copy it with ref("column"), or let the incoming column have its name',
            )
        columns = {each: dtype for each, dtype in self.schema.dtypes.items() if each not in self.preproc}
        return self._expression(subject, value, columns, self.schema.dtypes[name])

    def where(self, value: Any) -> Evaluated:
        """Return the row condition."""
        subject = f"{self.title}: where"
        provided = value if isinstance(value, Eval) else Eval(value)
        if not isinstance(provided.value, Expr | TypedExpr) and not callable(provided.value):
            raise InvalidType(
                f"{subject}: expected a function or eval(...), found {value!r}",
                where=self.source.location,
                hint='where=lambda df: df["amount"] > 0, or where=eval(col("amount") > 0)',
            )
        return self._expression(subject, provided, self.schema.dtypes, Bool())

    def _expression(self, subject: str, provided: Eval, columns: Mapping[str, DType], expected: DType) -> Evaluated:
        extra = {
            name: from_annotation(each, subject=subject, field=name) for name, each in (provided.schema or {}).items()
        }
        if not isinstance(provided.value, Expr | TypedExpr):
            return Evaluated(ByFunction(UserFunction(provided.value)), tuple(extra.items()))
        expression = provided.value.expr if isinstance(provided.value, TypedExpr) else provided.value
        known = {**columns, **extra}
        inferred = self._inferred(subject, expression, known)
        declared = provided.value.dtype if isinstance(provided.value, TypedExpr) else inferred
        for found in (inferred, declared):
            if not _is(found, expected):
                message = f"{subject}: expected {expected}, found {found} for expression `{expression}`"
                raise InvalidType(
                    message, where=self.source.location, hint="change the type of the field, or the expression"
                )
        reads = tuple((name, known[name]) for name in sorted(expression.columns()))
        return Evaluated(ByExpression(expression), reads)

    def _inferred(self, subject: str, expression: Expr, columns: Mapping[str, DType]) -> DType:
        try:
            return expression.dtype(columns)
        except UmbelError as error:
            raise error.restated(f"{subject}: {error.message}", where=self.source.location, hint=error.hint) from error

    def sample(self, sample: Sample) -> Sampling:
        """Return the checked sampling of the rows."""
        subject = f"{self.title}: sample"
        if sample.using is None:
            return Sampling(float(sample.rate), self._default_columns(subject))
        for name in sample.using:
            role = self._unusable(name)
            if role:
                raise InvalidValue(
                    f"{subject}: cannot use '{name}', {role}",
                    where=self.source.location,
                    hint="name columns that come in as they are stored",
                )
        return Sampling(float(sample.rate), tuple(sample.using))

    def _unusable(self, name: str) -> str:
        if name in self.preproc:
            return "it is made by preproc"
        if name == self.schema.timestamp:
            return "it is the timestamp"
        return "" if name in self.schema.dtypes else f"it is not a field; fields: {quoted(self.schema.names)}"

    def _default_columns(self, subject: str) -> tuple[str, ...]:
        names = self.schema.key_names or self.schema.value_names
        using = tuple(name for name in names if name not in self.preproc)
        if not using:
            raise InvalidValue(
                f"{subject}: no columns are left to sample by", where=self.source.location, hint="Sample(using=)"
            )
        return using


def _is(found: DType, expected: DType) -> bool:
    """Return True if a type's values belong to the other type.

    Restrictions are checked row by row.
    """
    return (expected.is_optional or not found.is_optional) and found.base in (expected.base, expected.plain)
