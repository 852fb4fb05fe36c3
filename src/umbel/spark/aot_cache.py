"""The AOT cache of Spark's JVM: classes loaded and linked ahead of time.

It saves seconds of every start. Java 25 writes such a cache when it ends, from the classes and profiles of that run (JEP 483,
514 and 515); later starts map it. A cache fits one Java and one Spark as they were installed: Java compares the times of jars,
and prints errors about a cache that does not fit.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from umbel.errors import NotSupported, Transient
from umbel.spark.java import cache_home, find_java

OLDEST = 25
"""The first Java that makes a cache of a single run."""

WITHIN = 300.0
"""Seconds that making one may take."""

QUIET = "-Xlog:disable -Xlog:all=error:stderr"
"""Suppresses Java's messages about classes it could not cache."""


def location(environment: Mapping[str, str] = os.environ) -> Path | None:
    """Return the cache's path for this Java and Spark; None for older Javas.

    The file need not exist.
    """
    import pyspark

    from umbel.functions.fingerprint import fingerprint

    java = find_java(environment)
    if java.version < OLDEST:
        return None
    home = (java.home / "lib").resolve().parent  # the same for a mirror of it
    release = (home / "release").read_text(encoding="utf-8", errors="replace")
    place = Path(pyspark.__file__).parent
    jars = sorted((place / "jars").glob("*.jar"))
    found = [(each.name, status.st_size, status.st_mtime_ns) for each in jars for status in [each.stat()]]
    installed = fingerprint(release, pyspark.__version__, found)
    return cache_home(environment) / f"spark-{fingerprint(str(home), str(place))}-{installed}.aot"


def java_options(environment: Mapping[str, str] = os.environ) -> str:
    """Return the JVM options that use the cache; none without a cache."""
    found = location(environment)
    return f'"-XX:AOTCache={found}" {QUIET}' if found is not None and found.exists() else ""


def make(environment: Mapping[str, str] = os.environ) -> Path:
    """Make the cache: run a small Spark job while Java records it.

    Raises:
        NotSupported: this Java cannot make one.
        Transient: it could not be made.
    """
    target = location(environment)
    if target is None:
        raise NotSupported(
            f"Java {find_java(environment).version} keeps no classes from one run to the next",
            hint=f"unset JAVA_HOME, or set it to a Java {OLDEST}: that one starts workers in about half the time",
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="aot-", dir=target.parent) as folder:
        draft = Path(folder) / "draft.aot"
        command = [sys.executable, "-P", "-m", "umbel.spark.aot_training", json.dumps([folder, str(draft)])]
        done = subprocess.run(
            command, env=dict(environment), capture_output=True, text=True, timeout=WITHIN, check=False
        )
        if done.returncode or not draft.exists():
            raise Transient(f"Java kept nothing of its run: {done.stderr[-2000:]}", hint="umbel doctor")
        draft.rename(target)
    for other in target.parent.glob(f"{target.stem.rpartition('-')[0]}-*.aot"):
        if other != target:  # of what was installed there before
            other.unlink(missing_ok=True)
    return target
