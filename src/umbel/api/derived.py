"""The extractors that come of a feature's reference: a lookup, an alias, an expression."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from umbel.api.constant import fault_of, settled
from umbel.api.dataset import DatasetRecord, record_of
from umbel.api.feature import Feature
from umbel.api.field import Field
from umbel.errors import InvalidType, InvalidValue
from umbel.expr import Expr, TypedExpr, matches
from umbel.plan.definitions import AliasExtractor, ExpressionExtractor, ExtractorDefinition, LookupExtractor
from umbel.types.dtypes import DType, List, Optional


@dataclass(frozen=True)
class Deriving:
    """A feature with a reference, among the features of its featureset."""

    feature: Feature
    features: Mapping[str, Feature]
    place: str

    @property
    def title(self) -> str:
        """Which feature it is, for messages."""
        return f"feature '{self.feature.fqn()}'"

    def extractor(self) -> ExtractorDefinition:
        """Return the extractor that makes the feature.

        Raises:
            UmbelError: the reference, its type or the default does not go with the feature.
        """
        reference = self.feature.options.reference
        if isinstance(reference, Field):
            return self._lookup(reference, record_of(reference.owner))
        if isinstance(reference, Feature):
            return self._alias(reference)
        if isinstance(reference, Expr | TypedExpr):
            return self._expression(reference)
        hint = "Dataset.field, Featureset.feature, or an expression"
        raise InvalidType(f"{self.title}: cannot refer to {reference!r}", where=self.place, hint=hint)

    def _common(self, kind: str) -> dict[str, Any]:
        return {
            "name": f"_{kind}_{self.feature.name}",
            "featureset": self.feature.featureset,
            "outputs": (self.feature.fqn(),),
            "version": self.feature.options.version,
            "place": self.place,
        }

    def _lookup(self, field: Field, dataset: DatasetRecord) -> LookupExtractor:
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
        is_list = isinstance(self.feature.type, List) and all(
            key.type == List(dtype) for key, (_, dtype) in zip(keys, dataset.schema.keys, strict=True)
        )
        self._check_lookup(field, is_list=is_list)
        return LookupExtractor(
            inputs=tuple(each.fqn() for each in keys),
            datasets=(dataset.name,),
            field=field.name,
            keys=tuple(dataset.schema.key_names),
            default=settled(self.feature.options.default),
            is_list=is_list,
            **self._common("lookup"),
        )

    def _key(self, name: str, dataset: str) -> Feature:
        if name not in self.features:
            raise InvalidValue(
                f"{self.title}: to look up dataset '{dataset}', featureset '{self.feature.featureset}' needs a feature "
                f"'{name}' for its key '{name}'",
                where=self.place,
                hint="add it: features that stand for keys have the names of the keys",
            )
        return self.features[name]

    def _check_lookup(self, field: Field, *, is_list: bool) -> None:
        default = self.feature.options.default
        value = field.type.base
        wanted = value if default is not None else Optional(value)
        expected = List(wanted) if is_list else wanted
        source = f"field '{field.fqn()}' of type {field.type}"
        if self.feature.type != expected:
            why = "with a default" if default is not None else "without a default"
            raise InvalidType(
                f"{self.title}: {why}, {source} needs the feature type {expected}, found {self.feature.type}",
                where=self.place,
                hint=f"declare the feature as {expected}",
            )
        self._check_default(value, source)

    def _check_default(self, dtype: DType, source: str) -> None:
        default = self.feature.options.default
        if default is None:
            return
        if fault := fault_of(dtype, default):
            raise InvalidValue(
                f"{self.title}: default {default!r} of {source}: {fault}",
                where=self.place,
                hint="give a default of the field's type",
            )

    def _alias(self, source: Feature) -> AliasExtractor:
        default = self.feature.options.default
        expected = self.feature.type if default is None else Optional(self.feature.type)
        if source.type != expected:
            raise InvalidType(
                f"{self.title} of type {self.feature.type} cannot stand for '{source.fqn()}' of type {source.type}"
                + (f" with default {default!r}" if default is not None else ""),
                where=self.place,
                hint="give both the same type",
            )
        self._check_default(self.feature.type, f"feature '{source.fqn()}'")
        return AliasExtractor(inputs=(source.fqn(),), default=settled(default), **self._common("alias"))

    def _expression(self, given: Expr | TypedExpr) -> ExpressionExtractor:
        expression = given.expr if isinstance(given, TypedExpr) else given
        if self.feature.options.default is not None:
            hint = "use fillnull in the expression"
            raise InvalidValue(
                f"{self.title}: an expression has no default: `{expression}`", where=self.place, hint=hint
            )
        names = sorted(expression.columns())
        for name in names:
            if name not in self.features:
                raise InvalidValue(
                    f"{self.title}: `{expression}` refers to '{name}', which is not a feature of "
                    f"'{self.feature.featureset}'",
                    where=self.place,
                    hint="expressions are over features of the same featureset",
                )
        self._check_expression(given, expression)
        inputs = tuple(self.features[name].fqn() for name in names)
        return ExpressionExtractor(inputs=inputs, expression=expression, **self._common("expression"))

    def _check_expression(self, given: Expr | TypedExpr, expression: Expr) -> None:
        inferred = expression.dtype({name: each.type for name, each in self.features.items()})
        declared = given.dtype if isinstance(given, TypedExpr) else self.feature.type
        if not matches(inferred, declared, expression) or declared != self.feature.type:
            found = inferred if declared == self.feature.type else declared
            raise InvalidType(
                f"{self.title} has type {self.feature.type}, its expression `{expression}` has type {found}",
                where=self.place,
                hint="change the type of the feature, or the expression",
            )
