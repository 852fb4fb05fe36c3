"""Finding the datasets and featuresets of a module."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from umbel.api.app import App
from umbel.api.commit import check_commit
from umbel.api.dataset import Dataset
from umbel.api.featureset import Featureset
from umbel.errors import InvalidValue, UnknownName, did_you_mean
from umbel.plan.definitions import Definitions


def definitions(target: str, env: str | None = None) -> Definitions:
    """Return the checked definitions of `MODULE[:APP]`.

    Args:
        target: a module or a path to a file; after a colon the name of an `umbel.App` in it.
        env: the environment whose sources and pipelines are selected.

    Raises:
        InvalidValue: it defines nothing, or something that cannot be committed.
    """
    found = app(target)
    return check_commit(found.datasets, found.featuresets, env)


def app(target: str) -> App:
    """Return what `MODULE[:APP]` defines."""
    name, _, attribute = target.partition(":")
    module = _imported(name)
    if attribute:
        found = getattr(module, attribute, None)
        if not isinstance(found, App):
            apps = [each for each, value in vars(module).items() if isinstance(value, App)]
            raise UnknownName(f"module '{name}' has no umbel.App '{attribute}'{did_you_mean(attribute, apps)}")
        return found
    values = list(vars(module).values())
    datasets = [each for each in values if isinstance(each, Dataset)]
    featuresets = [each for each in values if isinstance(each, Featureset)]
    if not datasets and not featuresets:
        raise InvalidValue(
            f"module '{name}' defines no dataset and no featureset", hint="MODULE:APP names an umbel.App"
        )
    return App(datasets=_once(datasets), featuresets=_once(featuresets))


def _imported(name: str) -> Any:
    path = Path(name)
    if path.suffix == ".py":
        sys.path.insert(0, str(path.parent.absolute()))
        name = path.stem
    elif str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name.split(".")[0] and error.name != name:
            raise
        raise UnknownName(f"there is no module '{name}'", hint="run umbel where the module can be imported") from None


def _once(objects: list[Any]) -> list[Any]:
    return list({id(each): each for each in objects}.values())
