"""Loading the datasets and featuresets of a module."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any

from umbel.errors import InvalidValue, UmbelError, UnknownName, did_you_mean, line_of, text_of
from umbel.processes.user_folder import importable

if TYPE_CHECKING:
    from types import ModuleType

    from umbel.api.app import App
    from umbel.definitions.records import Definitions


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
    """Return the datasets and featuresets of `MODULE[:APP]` as an app."""
    from umbel.api.app import App
    from umbel.api.dataset import Dataset
    from umbel.api.featureset import Featureset

    name, colon, attribute = target.partition(":")
    module = _imported(name)
    if colon:
        found = getattr(module, attribute, None)
        if not isinstance(found, App):
            raise _no_app(module, name, attribute)
        return found
    values = list(vars(module).values())
    datasets = [each for each in values if isinstance(each, Dataset)]
    featuresets = [each for each in values if isinstance(each, Featureset)]
    if not datasets and not featuresets:
        file = getattr(module, "__file__", None) or "built in"
        raise InvalidValue(
            f"module '{name}' ({file}) defines no dataset and no featureset",
            hint="MODULE:APP names an umbel.App; a file whose name another module has is given by its path, as in ./queue.py",
        )
    return App(datasets=_once(datasets), featuresets=_once(featuresets))


def _no_app(module: ModuleType, name: str, attribute: str) -> UnknownName:
    """Return the error for an attribute of a module that is not an app."""
    from umbel.api.app import App

    apps = [each for each, value in vars(module).items() if isinstance(value, App)]
    reason = f"module '{name}' has no umbel.App '{attribute}'{did_you_mean(attribute, apps)}"
    if hasattr(module, attribute):
        reason += f"; it is of type {type(getattr(module, attribute)).__name__}"
    return UnknownName(
        reason,
        hint=f"for all its datasets and featuresets, leave ':{attribute}' out; or assign an App in the module: "
        "app = umbel.App(datasets=[…], featuresets=[…])",
    )


def _imported(name: str) -> Any:
    path = Path(name)
    is_file = path.suffix == ".py"
    if is_file and not path.is_file():
        raise UnknownName(f"there is no file {path}", hint="name a Python file, or a module that can be imported")
    if not is_file and (not name or os.sep in name or name.startswith(".")):
        reason = "a folder, not a module" if path.is_dir() and name else "not the name of a module"
        raise UnknownName(f"'{name}' is {reason}", hint="name a Python file, or a module that can be imported")
    importable(path.parent if is_file else Path.cwd())
    try:
        return _loaded(path.absolute()) if is_file else import_module(name)
    except (UmbelError, KeyboardInterrupt, MemoryError):
        raise
    except ModuleNotFoundError as error:
        if not is_file and error.name is not None and f"{name}.".startswith(f"{error.name}."):
            hint = "run umbel where the module can be imported"
            raise UnknownName(f"there is no module '{name}'", hint=hint) from None
        raise _failed(name, error, f"install it for {sys.executable}") from error
    except BaseException as error:  # it is code of the user, and may even exit
        hint = f"mend it; python {path if is_file else f'-m {name}'} shows the whole traceback"
        if is_file and isinstance(error, ImportError) and "relative import" in text_of(error):
            hint = _by_name(path.absolute())
        raise _failed(name, error, hint) from error


def _by_name(path: Path) -> str:
    """Return the hint to name a module of a package, not its path."""
    names, folder = [path.parent.name, path.stem], path.parent.parent
    while (folder / "__init__.py").exists():
        names, folder = [folder.name, *names], folder.parent
    return f"it is a module of a package: name it {'.'.join(names)}, and run umbel in {folder}"


def _failed(name: str, error: BaseException, hint: str) -> InvalidValue:
    """Return the error for a module that raises when it is imported."""
    text, where = text_of(error), line_of(error)
    if isinstance(error, SyntaxError) and error.filename:
        text, where = error.msg, f"{error.filename}:{error.lineno}"
    return InvalidValue(f"module '{name}' cannot be imported: {type(error).__name__}: {text}", where=where, hint=hint)


def _loaded(path: Path) -> Any:
    """Load the module in a file, even if another module has its name.

    `features.v2.py` is a file that no import statement reaches: to `find_spec` its name is a module in a package `features`.
    """
    found = None if "." in path.stem else find_spec(path.stem)
    if found is not None and found.origin == str(path):
        return import_module(path.stem)
    spec = spec_from_file_location("_file_" + path.stem.replace(".", "_"), path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _once(objects: list[Any]) -> list[Any]:
    return list({id(each): each for each in objects}.values())
