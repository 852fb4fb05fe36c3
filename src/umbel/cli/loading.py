"""Finding the datasets and featuresets of a module."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from umbel.errors import InvalidValue, UnknownName, did_you_mean

if TYPE_CHECKING:
    from umbel.api.app import App
    from umbel.plan.definitions import Definitions


def definitions(target: str, env: str | None = None) -> Definitions:
    """Return the checked definitions of `MODULE[:APP]`.

    Args:
        target: a module or a path to a file; after a colon the name of an `umbel.App` in it.
        env: the environment whose sources and pipelines are selected.

    Raises:
        InvalidValue: it defines nothing, or something that cannot be committed.
    """
    from umbel.api.commit import check_commit

    found = app(target)
    return check_commit(found.datasets, found.featuresets, env)


def app(target: str) -> App:
    """Return what `MODULE[:APP]` defines."""
    from umbel.api.app import App
    from umbel.api.dataset import Dataset
    from umbel.api.featureset import Featureset

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
    is_file = path.suffix == ".py"
    if is_file and not path.is_file():
        raise UnknownName(f"there is no file {path}", hint="name a Python file, or a module that can be imported")
    folder = str(path.parent.absolute() if is_file else Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    wanted = path.stem if is_file else name
    try:
        return import_module(wanted)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{wanted}.".startswith(f"{error.name}."):
            raise  # the module is there; what it imports is not
        raise UnknownName(f"there is no module '{name}'", hint="run umbel where the module can be imported") from None


def _once(objects: list[Any]) -> list[Any]:
    return list({id(each): each for each in objects}.values())
