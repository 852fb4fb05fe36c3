"""Features: the columns a featureset declares."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from umbel.api.metadata import metadata
from umbel.definitions.env import Selector, selector
from umbel.definitions.records import FeatureDefinition, Metadata
from umbel.definitions.versions import check_version
from umbel.errors import InvalidType
from umbel.types.arguments import checked_call
from umbel.types.dtypes import DType

NOTHING = Metadata()


@dataclass(frozen=True, eq=False)
class FeatureOptions:
    """The arguments of `feature(...)`.

    Args:
        reference: a dataset's field, another feature, an expression, or None.
        default: the value that replaces null.
        version: of the extractor derived from the reference.
        env: the environments that select that extractor.
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
        """Set the feature's owner, description, tags and flags."""
        return replace(self, described=metadata(owner, description, tags, deprecated, deleted))

    def extract(self, field: Any = None, default: Any = None, **_: Any) -> FeatureOptions:
        """Declare the feature's reference; the older spelling."""
        _deprecated("feature().extract(field=...)")
        return replace(self, reference=field, default=default)


@checked_call
def feature(
    *ref: Any,
    default: Any = None,
    version: int | None = None,
    env: str | Sequence[str] | None = None,
    id: int | None = None,
) -> Any:
    """Declare a feature.

    Args:
        ref: the origin of its value: nothing (an input, or the output of an extractor), a dataset's field, a feature
            of another featureset, or an expression over features of the same featureset.
        default: the value that replaces null.
        version: of the definition.
        env: the environments that select it.
        id: ignored, of an older spelling.

    Raises:
        InvalidType: there are several references, or a default without a reference.
    """
    if id is not None:
        _deprecated(f"feature(id={id})", 4)
    if len(ref) > 1:
        raise InvalidType(
            f"feature: at most one reference, found {len(ref)}: {', '.join(map(str, ref))}",
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
    if version is not None:
        check_version("feature", version, "feature(version=1)")
    return FeatureOptions(ref[0] if ref else None, default, version or 0, selector(env, "feature"))


def _deprecated(old: str, level: int = 3) -> None:
    warnings.warn(
        f"{old} is an older spelling: use feature(Dataset.field, default=...)", DeprecationWarning, stacklevel=level
    )


@dataclass(frozen=True, eq=False, repr=False)
class Feature:
    """A feature of a featureset.

    `str` gives the bare name, `repr` gives `Featureset.feature`.

    Args:
        name: in its featureset.
        featureset: the featureset's name.
        type: the type of its values.
        dtype: the type as the user wrote it.
        options: the origin of its value, and metadata.
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

    def definition(self, location: str) -> FeatureDefinition:
        """Return the definition; the location is the featureset's."""
        return FeatureDefinition(
            name=self.name, featureset=self.featureset, dtype=self.type, meta=self.meta, location=location
        )

    def desc(self) -> str:
        """Description from the metadata."""
        return self.meta.description

    def with_meta(self, meta: Metadata) -> Feature:
        """Return the feature with metadata."""
        return replace(self, options=replace(self.options, described=meta))

    def description(self) -> str:
        """Description from the metadata."""
        return self.desc()

    def bare(self) -> Feature:
        """Return the feature without its reference.

        This is pickled with a function that refers to the feature.
        """
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
