"""Features: what a featureset declares."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from umbel.api.env import Selector, selector
from umbel.api.metadata import metadata
from umbel.errors import InvalidType
from umbel.plan.definitions import Metadata
from umbel.types.dtypes import DType

NOTHING = Metadata()


@dataclass(frozen=True, eq=False)
class FeatureOptions:
    """What `feature(...)` was given.

    Args:
        reference: a dataset's field, another feature, an expression, or None.
        default: instead of null.
        version: of the extractor that comes of the reference.
        env: the environments that extractor is for.
    """

    reference: Any = None
    default: Any = None
    version: int = 0
    env: Selector = field(default_factory=Selector)
    described: Metadata = NOTHING

    def meta(
        self,
        owner: str = "",
        description: str = "",
        tags: Sequence[str] = (),
        deprecated: bool = False,
        deleted: bool = False,
    ) -> FeatureOptions:
        """Give the feature an owner, a description, tags and flags."""
        return replace(self, described=metadata(owner, description, tags, deprecated, deleted))

    def extract(self, field: Any = None, default: Any = None, **_: Any) -> FeatureOptions:
        """Say where the value comes from: the older spelling."""
        _deprecated("feature().extract(field=...)")
        return replace(self, reference=field, default=default)


def feature(
    *ref: Any,
    default: Any = None,
    version: int | None = None,
    env: str | Sequence[str] | None = None,
    id: int | None = None,
) -> Any:
    """Declare a feature.

    Args:
        ref: where its value comes from: nothing (an input, or the output of an extractor), a dataset's field, a feature
            of another featureset, or an expression over features of the same featureset.
        default: instead of null.
        version: of the definition.
        env: the environments it is for.
        id: ignored, of an older spelling.

    Raises:
        InvalidType: several references, or a default without a reference.
    """
    if id is not None:
        _deprecated(f"feature(id={id})")
    if len(ref) > 1:
        raise InvalidType(
            f"feature: at most one reference, found {len(ref)}: {', '.join(map(repr, ref))}",
            hint='feature(User.name), feature(Other.feature) or feature(col("a") + 1)',
        )
    if ref and ref[0] is None:
        raise InvalidType(
            "feature: the reference is None", hint="leave it out, or give a field, a feature, an expression"
        )
    if default is not None and not ref:
        raise InvalidType(
            f"feature: default {default!r} without a reference",
            hint='a default is for a reference: feature(User.name, default="?")',
        )
    _check_version(version)
    return FeatureOptions(ref[0] if ref else None, default, version or 0, selector(env, "feature"))


def _check_version(version: Any) -> None:
    if version is not None and (not isinstance(version, int) or isinstance(version, bool)):
        raise InvalidType(f"feature: version must be an int, found {version!r}", hint="feature(version=1)")


def _deprecated(old: str) -> None:
    warnings.warn(
        f"{old} is an older spelling: use feature(Dataset.field, default=...)", DeprecationWarning, stacklevel=3
    )


@dataclass(frozen=True, eq=False, repr=False)
class Feature:
    """A feature of a featureset. Its text is the bare name, its representation `Featureset.feature`.

    Args:
        name: in its featureset.
        featureset: the featureset's name.
        type: the type of its values.
        dtype: the type as the user wrote it.
        options: where its value comes from, and metadata.
    """

    name: str
    featureset: str
    type: DType
    dtype: Any
    options: FeatureOptions = field(default_factory=FeatureOptions)

    @property
    def featureset_name(self) -> str:
        """The featureset's name."""
        return self.featureset

    @property
    def meta(self) -> Metadata:
        """Its owner, description, tags and flags."""
        return self.options.described

    def fqn(self) -> str:
        """`Featureset.feature`."""
        return f"{self.featureset}.{self.name}"

    fqn_ = fqn

    def desc(self) -> str:
        """What it is for."""
        return self.meta.description

    def with_meta(self, meta: Metadata) -> Feature:
        """Return it with metadata."""
        return replace(self, options=replace(self.options, described=meta))

    def description(self) -> str:
        """What it is for."""
        return self.desc()

    def bare(self) -> Feature:
        """Return it without its reference: what travels with a function that refers to it."""
        return replace(self, options=FeatureOptions(described=self.meta))

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return self.fqn()

    def __eq__(self, other: object) -> bool:
        return (other.fqn() if isinstance(other, Feature) else other) == self.fqn()

    def __hash__(self) -> int:
        return hash(self.fqn())

    def __reduce__(self) -> tuple[object, ...]:
        bare = self.bare()
        return (Feature, (bare.name, bare.featureset, bare.type, bare.dtype, bare.options))
