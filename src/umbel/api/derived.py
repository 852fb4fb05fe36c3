"""Extractors derived from a feature's reference: lookup, alias or expression."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from umbel.api.constant import default_of, error_of
from umbel.api.dataset import record_of
from umbel.api.feature import Feature
from umbel.api.field import Field
from umbel.definitions.records import (
    AliasExtractor,
    DatasetDefinition,
    ExpressionExtractor,
    ExtractorDefinition,
    LookupExtractor,
)
from umbel.errors import InvalidType, InvalidValue, UmbelError
from umbel.expr import Expr, TypedExpr, matches
from umbel.types.dtype import Refused, is_nan
from umbel.types.dtypes import DType, List, Optional


@dataclass(frozen=True)
class Deriving:
    """A feature with a reference, among the features of its featureset."""

    feature: Feature
    features: Mapping[str, Feature]
    location: str

    @property
    def title(self) -> str:
        """Name of the feature, for messages."""
        return f"feature '{self.feature.fqn()}'"

    def extractor(self) -> ExtractorDefinition:
        """Return the extractor that computes the feature.

        Raises:
            UmbelError: the reference, its type or the default does not fit the feature.
        """
        reference = self.feature.options.reference
        if isinstance(reference, Field):
            return self._lookup(reference, record_of(reference.owner))
        if isinstance(reference, Feature):
            return self._alias(reference)
        if isinstance(reference, Expr | TypedExpr):
            return self._expression(reference)
        hint = "Dataset.field, Featureset.feature, or an expression"
        raise InvalidType(f"{self.title}: cannot refer to {reference!r}", where=self.location, hint=hint)

    def _common(self, kind: str) -> dict[str, Any]:
        return {
            "name": f"_{kind}_{self.feature.name}",
            "featureset": self.feature.featureset,
            "outputs": (self.feature.fqn(),),
            "version": self.feature.options.version,
            "location": self.location,
            "env": self.feature.options.env,
        }

    def _lookup(self, field: Field, dataset: DatasetDefinition) -> LookupExtractor:
        if not dataset.schema.is_keyed:
            raise InvalidValue(
                f"{self.title}: dataset '{dataset.name}' has no key fields to look it up by",
                hint="mark its keys: field(key=True)",
            )
        if not (dataset.online or dataset.offline):
            raise InvalidValue(
                f"{self.title}: define an index on dataset '{dataset.name}' to look it up", hint="@dataset(index=True)"
            )
        keys = [self._key(name, dataset.name) for name in dataset.schema.key_names]
        # A list can itself be a key: lists of exactly the key fields' types are looked up as single keys.
        lists = isinstance(self.feature.type, List) and all(isinstance(key.type, List) for key in keys)
        is_list = lists and any(key.type != dtype for key, (_, dtype) in zip(keys, dataset.schema.keys, strict=True))
        default = self._check_lookup(field, is_list=is_list)
        return LookupExtractor(
            inputs=tuple(each.fqn() for each in keys),
            datasets=(dataset.name,),
            field=field.name,
            keys=tuple(dataset.schema.key_names),
            default=default,
            is_list=is_list,
            **self._common("lookup"),
        )

    def _key(self, name: str, dataset: str) -> Feature:
        if name not in self.features:
            raise InvalidValue(
                f"{self.title}: to look up dataset '{dataset}', featureset '{self.feature.featureset}' needs a feature "
                f"'{name}' for its key '{name}'",
                where=self.location,
                hint="add it: features that stand for keys have the names of the keys",
            )
        return self.features[name]

    def _check_lookup(self, field: Field, *, is_list: bool) -> Any:
        default = self.feature.options.default
        value = field.type.base
        requested = value if default is not None else Optional(value)
        expected = List(requested) if is_list else requested
        source = f"field '{field.fqn()}' of type {field.type}"
        if self.feature.type != expected:
            why = "with a default" if default is not None else "without a default"
            raise InvalidType(
                f"{self.title}: {why}, {source} needs the feature type {expected}, found {self.feature.type}",
                where=self.location,
                hint=f"declare the feature as {expected}",
            )
        return self._checked_default(value, source)

    def _checked_default(self, dtype: DType, source: str) -> Any:
        default = self.feature.options.default
        try:
            value = default_of(dtype, default)
            is_null = is_nan(value) and not dtype.is_optional
            reason = "NaN is null" if is_null else None if value is None else error_of(dtype, value)
        except Refused as error:
            reason = error.message
        if reason:
            raise InvalidValue(
                f"{self.title}: default {default!r} of {source}: {reason}",
                where=self.location,
                hint="give a default of the field's type",
            )
        return value

    def _alias(self, source: Feature) -> AliasExtractor:
        default = self.feature.options.default
        expected = self.feature.type if default is None else Optional(self.feature.type)
        if source.type != expected:
            raise InvalidType(
                f"{self.title} of type {self.feature.type} cannot stand for '{source.fqn()}' of type {source.type}"
                + (f" with default {default!r}" if default is not None else ""),
                where=self.location,
                hint="give both the same type",
            )
        value = self._checked_default(self.feature.type, f"feature '{source.fqn()}'")
        return AliasExtractor(inputs=(source.fqn(),), default=value, **self._common("alias"))

    def _expression(self, provided: Expr | TypedExpr) -> ExpressionExtractor:
        expression = provided.expr if isinstance(provided, TypedExpr) else provided
        expression.check_size()
        if self.feature.options.default is not None:
            hint = "use fillnull in the expression"
            raise InvalidValue(
                f"{self.title}: an expression has no default: `{expression}`", where=self.location, hint=hint
            )
        names = sorted(expression.columns())
        for name in names:
            if name not in self.features:
                raise InvalidValue(
                    f"{self.title}: `{expression}` refers to '{name}', which is not a feature of "
                    f"'{self.feature.featureset}'",
                    where=self.location,
                    hint="expressions are over features of the same featureset",
                )
        self._check_expression(provided, expression)
        inputs = tuple(self.features[name].fqn() for name in names)
        return ExpressionExtractor(inputs=inputs, expression=expression, **self._common("expression"))

    def _check_expression(self, provided: Expr | TypedExpr, expression: Expr) -> None:
        try:
            inferred = expression.dtype({name: each.type for name, each in self.features.items()})
        except UmbelError as error:
            raise error.restated(f"{self.title}: {error.message}", where=self.location, hint=error.hint) from None
        declared = provided.dtype if isinstance(provided, TypedExpr) else self.feature.type
        if not matches(inferred, declared, expression) or declared != self.feature.type:
            found = inferred if declared == self.feature.type else declared
            raise InvalidType(
                f"{self.title} has type {self.feature.type}, its expression `{expression}` has type {found}",
                where=self.location,
                hint="change the type of the feature, or the expression",
            )
