"""Backups of a deployment, while it runs: only what no earlier backup has is written."""

from __future__ import annotations

import hashlib
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace

import umbel
from umbel.catalog.purges import Purges
from umbel.errors import Damaged, Transient
from umbel.processes.locks import alone
from umbel.runtime.deployment import Deployment
from umbel.runtime.recovery.cut import CATALOG, Cut, CutFile, CutObject, ObjectGone, Readable, cut
from umbel.runtime.recovery.cut_reading import Opened, ahead
from umbel.runtime.recovery.listing import BackupList, FileEntry, Part, id_of, number_of
from umbel.runtime.recovery.ownership import check_apart, check_own, identity_of
from umbel.runtime.recovery.pruning import damage_of, delete_unfinished, prune
from umbel.runtime.recovery.repository import Repository, writer_of
from umbel.runtime.redactions import finish_redactions
from umbel.state.failpoints import reach

CHUNK = 16 << 20
"""Bytes of an object, at the most."""
CATALOG_CHUNK = 256 << 10
"""Those of the catalog, of which most pages stay as they are."""
PACKED = 1 << 20
"""Smaller pieces are written together, as objects of about this size times eight."""
MANY_PARTS = 64
"""A file of more parts than its size explains is written anew."""
UPLOADS = 4
CUTS = 3
DRAFT_EVERY = 10.0
"""Seconds between two drafts."""

Progress = Callable[[int, int], None]
"""Called with the bytes that are done, and all bytes."""


@dataclass(slots=True)
class BackupReport:
    """The result of a backup.

    Args:
        backup: its list.
        written: bytes written to the repository.
        objects: the number of objects written.
        locked: seconds for which no batch could finish.
        removed: ids of older backups that were deleted.
        freed: bytes of the objects that were deleted with them.
        notes: what was not done, and why.
    """

    backup: BackupList
    written: int = 0
    objects: int = 0
    locked: float = 0.0
    removed: list[str] = field(default_factory=list)
    freed: int = 0
    notes: list[str] = field(default_factory=list)


def backup(
    deployment: Deployment,
    repository: Repository,
    *,
    keep: int | None = None,
    progress: Progress = lambda *_: None,
) -> BackupReport:
    """Back a deployment up; return what was done.

    Args:
        deployment: the deployment; it may be running.
        repository: of the backups.
        keep: the number of newest backups to retain; all when None.
        progress: called as bytes are done.

    Raises:
        Transient: another backup of the deployment runs, the worker erases bytes, or the storage does not answer.
        NotSupported: the deployment's state is not in files.
        InvalidValue: the repository is inside of the deployment's folder, has the backups of another one, or cannot be used.
    """
    check_apart(deployment.directory, repository)
    repository.check()
    check_own(deployment, repository)
    with _alone(deployment):  # to the end: the next one uses the objects that this one leaves
        finish_redactions(deployment.directory)  # of a worker that was killed: a backup has no notes of them
        report = _cut_and_written(deployment, repository, progress)
        delete_unfinished(deployment, repository)
        if wrong := damage_of(deployment):
            stay = "" if keep is None else "old backups stay, for "
            new = "the backup" if keep is None else "the new one"
            report.notes.append(f"{stay}{new} is of a damaged deployment: {wrong}; umbel check tells more")
        elif keep is not None:
            prune(deployment, repository, keep, report)
    return report


@contextmanager
def _alone(deployment: Deployment) -> Iterator[None]:
    """Lock out other backups, and purges, during a block.

    Raises:
        Transient: one runs.
    """
    with ExitStack() as stack:
        try:
            stack.enter_context(alone(deployment.directory, "backup"))
        except Transient as error:
            progress = Purges(deployment.catalog).progress
            if not progress.step or progress.tried:  # a purge that has to wait has noted when it was tried
                raise
            raise Transient(
                f"no backup can be made while the worker erases bytes: {progress.step}",
                hint="try again; umbel erase --now ends when it is done",
            ) from error
        yield


def _cut_and_written(deployment: Deployment, repository: Repository, progress: Progress) -> BackupReport:
    """Write a cut, or another one after an erasure has deleted objects of it."""
    for left in reversed(range(CUTS)):
        try:
            with cut(deployment) as found:
                reach("cut")
                return _written(deployment, repository, found, progress)
        except ObjectGone:
            if not left:
                raise
    raise AssertionError


def _written(deployment: Deployment, repository: Repository, found: Cut, progress: Progress) -> BackupReport:
    """Write the objects of a cut, then its list."""
    folder, writer = deployment.directory, writer_of(deployment.directory)
    last = Purges(deployment.catalog).progress
    earlier, known = _earlier(repository, (last.revision, last.at))
    number = max((number_of(each) for each in repository.ids()), default=0) + 1
    made = BackupList(
        id_of(number, found.at),
        found.at,
        socket.gethostname(),
        str(folder),
        umbel.__version__,
        found.batch,
        is_in_bucket=found.is_in_bucket,
        deployment=identity_of(deployment),
        purged=last.revision,
        purged_at=last.at,
    )
    own = repository.drafts().get(writer, made)
    repository.write_draft(writer, replace(made, files=own.files, purged=own.purged, purged_at=own.purged_at))
    report = _Writing(repository, writer, known, earlier, made, progress).run(found)
    report.locked = found.seconds
    _check_objects(report.backup, repository)
    repository.write_list(report.backup)
    reach("listed")
    repository.delete_draft(writer)
    return report


def _check_objects(made: BackupList, repository: Repository) -> None:
    """Refuse to list a backup whose objects were deleted meanwhile.

    The backup of a restored deployment, with `--keep`, may have done that, or somebody by hand.

    Raises:
        Transient: they were.
    """
    gone = made.objects - repository.objects().keys()
    if gone:
        raise Transient(
            f"{len(gone)} objects that the backup needs were deleted from {repository.title} meanwhile: {min(gone)}",
            hint="try again, with one backup at a time",
        )


def _earlier(repository: Repository, purge: tuple[int, float]) -> tuple[dict[str, FileEntry], dict[str, Part]]:
    """Return the files of earlier backups and drafts, and the existing parts by sum.

    Of backups that were not made between the last purge and the next, only whole objects are used again: others may have erased
    bytes beside the part. What was before is not told by clocks: those of two machines differ, and one may be set back; nor by
    revisions alone, which a restored deployment counts again.

    Args:
        repository: of the backups.
        purge: the last purge.
    """
    objects, ids = repository.objects(), repository.ids()
    lists = list(repository.drafts().values())
    newest, unused = None, set[str]()
    for listed in ids[-2:]:  # a damaged list is no reason not to make a new one
        try:
            lists.append(newest := repository.read_list(listed))
        except Damaged:
            continue
    if newest is not None:
        unused = _mostly_unused(newest, objects)
    parts = {
        part.sum: part
        for each in lists
        for part in each.parts
        if objects.get(part.object, -1) >= part.start + part.size
        and part.object not in unused
        and (each.purge == purge or (part.object == part.sum and objects[part.object] == part.size))
    }
    parts |= {name: Part(name, size, name) for name, size in objects.items() if name not in parts}
    files: dict[str, FileEntry] = {}
    for each in sorted(lists, key=lambda it: it.at):
        files |= each.files
    return files, parts


def _mostly_unused(newest: BackupList, objects: Mapping[str, int]) -> set[str]:
    """Return the objects of which the newest backup needs less than half.

    That is written anew, so that they can be deleted.
    """
    used = Counter[str]()
    for part in set(newest.parts):
        used[part.object] += part.size
    return {name for name, size in used.items() if 2 * size < objects.get(name, 0)}


Sums = dict[str, tuple[CutFile | CutObject, tuple[int, int], list[str]]]
"""By name a file, by what it is known again, and the sums of its parts."""


@dataclass(slots=True)
class _Writing:
    """The writing of one backup's objects."""

    repository: Repository
    writer: str
    known: dict[str, Part]
    earlier: dict[str, FileEntry]
    made: BackupList
    progress: Progress
    copies: bool = False
    files: dict[str, FileEntry] = field(default_factory=dict)
    report: BackupReport = field(init=False)
    pack: bytearray = field(default_factory=bytearray)
    packed: dict[str, tuple[int, int]] = field(default_factory=dict)
    pending: set[Future[str]] = field(default_factory=set)
    drafted_at: float = field(default_factory=time.monotonic)

    def run(self, found: Cut) -> BackupReport:
        """Write what the repository does not have; return the whole list."""
        self.report = BackupReport(self.made)
        sums, done, total = Sums(), 0, found.size
        self.copies = bool(found.mark[0]) and self.repository.reads(*found.mark)
        with _pool() as pool, ahead(found, PACKED, lambda file: self._known(file) is None) as files:
            for name, file, opened in files:
                sums[name] = (file, file.stat, self._sums(file, opened, pool))
                done += file.size
                self.progress(done, total)
                if time.monotonic() - self.drafted_at > DRAFT_EVERY:
                    self._draft(sums, pool)
            self._settle(pool)
        self._list(sums)
        self.report.backup = replace(self.made, files=self.files)
        return self.report

    def _sums(self, file: CutFile | CutObject, opened: Opened, pool: ThreadPoolExecutor) -> list[str]:
        """Return the sums of a file's parts, having written those that are not known."""
        if (known := self._known(file)) is not None:
            return known
        with opened() as source:
            if isinstance(file, CutObject) and file.size >= PACKED and self.copies:
                return self._copied(file, _pieces(source, file, None))
            return [self._have(data, pool) for data in _pieces(source, file, self.earlier.get(file.name))]

    def _copied(self, file: CutObject, pieces: Iterator[bytes]) -> list[str]:
        """Copy an object into the repository within the storage; return its parts' sums."""
        whole, parts, at = hashlib.sha256(), list[tuple[str, int, int]](), 0
        for data in pieces:
            whole.update(data)
            parts.append((hashlib.sha256(data).hexdigest(), len(data), at))
            at += len(data)
        if not all(self._has(each, size) for each, size, _ in parts):
            name = whole.hexdigest()
            self.repository.copy_object(file.key, name, file.size)
            self.known |= {each: Part(each, size, name, start) for each, size, start in parts}
            self.report.written += file.size
            self.report.objects += 1
            reach("object")
        return [each for each, _, _ in parts]

    def _known(self, file: CutFile | CutObject) -> list[str] | None:
        """Return the sums of a file's parts if an earlier backup has it, else None."""
        before = self.earlier.get(file.name)
        return [part.sum for part in before.parts] if before is not None and self._is_same(file, before) else None

    def _is_same(self, file: CutFile | CutObject, before: FileEntry) -> bool:
        return (
            before.stat == file.stat
            and before.size == file.size
            and before.head == file.head
            and all(self._has(part.sum, part.size) for part in before.parts)
        )

    def _has(self, found: str, size: int) -> bool:
        """Return whether the repository has bytes by their sum; shortened objects do not count."""
        return found in self.known and self.known[found].size == size

    def _have(self, data: bytes, pool: ThreadPoolExecutor) -> str:
        """Have bytes in the repository; return their sum."""
        found = hashlib.sha256(data).hexdigest()
        if self._has(found, len(data)) or found in self.packed:
            return found
        if len(data) < PACKED:
            self.packed[found] = (len(self.pack), len(data))
            self.pack += data
            if len(self.pack) >= 8 * PACKED:
                self._write_pack(pool)
        else:
            self._write(data, pool)
            self.known[found] = Part(found, len(data), found)
        return found

    def _write_pack(self, pool: ThreadPoolExecutor) -> None:
        data = bytes(self.pack)
        name = hashlib.sha256(data).hexdigest()
        if data and not self._has(name, len(data)):
            self._write(data, pool)
        self.known |= {each: Part(each, size, name, start) for each, (start, size) in self.packed.items()}
        self.pack.clear()
        self.packed.clear()

    def _write(self, data: bytes, pool: ThreadPoolExecutor) -> None:
        while len(self.pending) >= 2 * UPLOADS:
            self._collect(FIRST_COMPLETED)
        self.pending.add(pool.submit(self.repository.write_object, data))
        self.report.written += len(data)
        self.report.objects += 1
        reach("object")

    def _collect(self, until: str) -> None:
        done, self.pending = wait(self.pending, return_when=until)
        for each in done:
            each.result()

    def _settle(self, pool: ThreadPoolExecutor) -> None:
        self._write_pack(pool)
        self._collect("ALL_COMPLETED")

    def _draft(self, sums: Sums, pool: ThreadPoolExecutor) -> None:
        self._settle(pool)
        self._list(sums)
        self.repository.write_draft(self.writer, replace(self.made, files=self.files))
        self.drafted_at = time.monotonic()
        reach("drafted")

    def _list(self, sums: Sums) -> None:
        for name, (file, stat, parts) in sums.items():
            if name not in self.files:
                self.files[name] = FileEntry(file.size, tuple(self.known[each] for each in parts), file.head, stat)


@contextmanager
def _pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(UPLOADS, thread_name_prefix="backup") as pool:
        try:
            yield pool
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _pieces(opened: Readable, file: CutFile | CutObject, before: FileEntry | None) -> Iterator[bytes]:
    """Yield the bytes of a file in pieces, the same as in the earlier backup.

    They are cut anew if there are too many.
    """
    left, chunk = file.size - len(file.head), CATALOG_CHUNK if file.name == CATALOG else CHUNK
    sizes = [part.size for part in before.parts] if before is not None else []
    if len(sizes) > MANY_PARTS + 2 * left // chunk:
        sizes = []
    for size in (*sizes, *([chunk] * (left // chunk + 1))):
        if not left:
            return
        data = opened.read(min(size, left))
        if len(data) < min(size, left):
            raise Damaged(f"{file.name} is shorter than it was: {left - len(data)} bytes are missing")
        left -= len(data)
        yield data
