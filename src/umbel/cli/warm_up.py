"""Make workers start faster."""

from __future__ import annotations

import time

import typer


def command() -> None:
    """Let Java learn Spark once, so that workers start in about half the time.

    It runs a small job and keeps what Java learned in the cache folder (about 200 MB). To be done once, and again after an
    upgrade of Spark or Java; nothing depends on it.

    Example:
        umbel warm-up
    """
    from rich.console import Console

    from umbel.spark.aotcache import make

    begun = time.monotonic()
    with Console(stderr=True).status("Java learns Spark, about half a minute …"):
        made = make()
    typer.echo(f"made {made} ({made.stat().st_size >> 20} MB) in {time.monotonic() - begun:.0f} s")
