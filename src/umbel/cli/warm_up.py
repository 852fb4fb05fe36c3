"""Build the AOT cache, so that workers start faster."""

from __future__ import annotations

import time

import typer


def command() -> None:
    """Build the JVM's AOT cache for Spark: workers then start in about half the time.

    It runs a small Spark job and writes the cache to the cache folder (about 200 MB). Run it once, and again after an
    upgrade of Spark or Java; it is optional.

    Example:
        umbel warm-up
    """
    from rich.console import Console

    from umbel.spark.aot_cache import make

    begun = time.monotonic()
    with Console(stderr=True).status("Java learns Spark, about half a minute …"):
        made = make()
    typer.echo(f"made {made} ({made.stat().st_size >> 20} MB) in {time.monotonic() - begun:.0f} s")
