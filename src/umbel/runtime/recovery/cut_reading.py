"""Reading of a cut's files in order, small objects before they are due."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from io import BytesIO
from itertools import islice

from umbel.runtime.recovery.cut import Cut, CutFile, CutObject, Readable

AHEAD = 32
"""Objects that are read at once."""
Opened = Callable[[], AbstractContextManager[Readable]]
"""Opens a file of a cut."""


@contextmanager
def ahead(
    found: Cut, small: int, is_read: Callable[[CutFile | CutObject], bool]
) -> Iterator[Iterator[tuple[str, CutFile | CutObject, Opened]]]:
    """Yield an iterator of all files, sorted by name.

    Small objects are read in threads before they are due.

    Args:
        found: the cut.
        small: smaller objects are read so.
        is_read: returns True if a file will be read.
    """

    def load(file: CutObject) -> bytes:
        with file.opened() as source:
            return source.read(file.size)

    def files(pool: ThreadPoolExecutor) -> Iterator[tuple[str, CutFile | CutObject, Opened]]:
        reads, due = deque[Future[bytes] | None](), deque(sorted(found.files.items()))
        left = iter(tuple(due))
        while due:
            for _, each in islice(left, AHEAD - len(reads)):
                is_small = isinstance(each, CutObject) and each.size < small and is_read(each)
                reads.append(pool.submit(load, each) if is_small and isinstance(each, CutObject) else None)
            (name, file), read = due.popleft(), reads.popleft()
            yield name, file, file.opened if read is None else partial(_as_file, read.result())

    with ThreadPoolExecutor(AHEAD, thread_name_prefix="backup-read") as pool:
        try:
            yield files(pool)
        finally:
            pool.shutdown(cancel_futures=True)


@contextmanager
def _as_file(data: bytes) -> Iterator[Readable]:
    yield BytesIO(data)
