"""A mypy plugin for the members of datasets and featuresets.

mypy ignores the type returned by a class decorator; the plugin adds the members itself. Enable it with:

[mypy]
plugins = umbel.typecheck
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from mypy.nodes import MDEF, SymbolTableNode, TypeInfo, Var
from mypy.plugin import AnalyzeTypeContext, ClassDefContext, Plugin
from mypy.types import AnyType, Type, TypeOfAny

DECORATORS: Mapping[str, str] = {
    "umbel.api.dataset.dataset": "umbel.api.dataset.Dataset",
    "umbel.api.featureset.featureset": "umbel.api.featureset.Featureset",
}
"""The umbel class returned by each decorator."""
VALUES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "umbel.types.annotations.Decimal": ("decimal.Decimal", ()),
    "umbel.types.annotations.Embedding": ("builtins.list", ("builtins.float",)),
}
"""The type of values of a parametrised annotation: the type and its arguments."""


class UmbelPlugin(Plugin):
    """Reports decorated classes' members and parametrised types to mypy."""

    def get_class_decorator_hook_2(self, fullname: str) -> Callable[[ClassDefContext], bool] | None:
        """Return the hook adding members to a decorated class, None for other decorators."""
        kind = DECORATORS.get(fullname)
        return None if kind is None else partial(_add_members, kind)

    def get_type_analyze_hook(self, fullname: str) -> Callable[[AnalyzeTypeContext], Type] | None:
        """Return the hook for `Decimal[2]` and `Embedding[128]`, None for other names."""
        kind = VALUES.get(fullname)
        return None if kind is None else partial(_value, *kind)


def _add_members(kind: str, context: ClassDefContext) -> bool:
    found = context.api.lookup_fully_qualified_or_none(kind)
    if found is None or not isinstance(found.node, TypeInfo):
        return False
    info = context.cls.info
    for name in found.node.names:
        if not name.startswith("_") and name not in info.names:
            member = Var(name, AnyType(TypeOfAny.explicit))
            member.info, member.is_classvar = info, True
            member._fullname = f"{info.fullname}.{name}"
            info.names[name] = SymbolTableNode(MDEF, member, plugin_generated=True)
    return True


def _value(name: str, arguments: tuple[str, ...], context: AnalyzeTypeContext) -> Type:
    return context.api.named_type(name, [context.api.named_type(each, []) for each in arguments])


def plugin(version: str) -> type[Plugin]:
    """Return the plugin class; the entry point called by mypy."""
    return UmbelPlugin
