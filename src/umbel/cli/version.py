"""Show the versions of umbel and its dependencies."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

import typer

import umbel

PACKAGES = ("pyspark", "polars", "pyarrow", "pandas", "numpy", "lmdb", "deltalake", "uvicorn", "starlette")


def command() -> None:
    """Show the versions of umbel, Python and its main dependencies, for bug reports.

    Example:
        umbel version
    """
    typer.echo(f"umbel {umbel.__version__}")
    typer.echo(f"Python {platform.python_version()} on {platform.system()} {platform.machine()}")
    for name in PACKAGES:
        typer.echo(f"{name} {installed(name) or 'is not installed'}")


def installed(package: str) -> str | None:
    """Return the version of a package, None if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None
