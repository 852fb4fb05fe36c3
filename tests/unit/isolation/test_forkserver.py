"""The fork server, where the system refuses it another process."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from umbel.errors import Transient
from umbel.isolation.process import ForkServer, IsolatedProcess

_REFUSING = """
import os
from pathlib import Path

allowed = os.fork


def fork():
    if Path(__file__).with_name("refused").exists():
        raise BlockingIOError(11, "Resource temporarily unavailable")
    return allowed()


os.fork = fork
"""


def called(child: IsolatedProcess, function: Callable[[Any], Any], argument: Any) -> Any:
    return child.call(
        function.__qualname__, lambda: cloudpickle.dumps(function), argument, seconds=60.0, memory=1 << 28
    )


def test_a_process_that_the_system_refuses_ends_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def waits(folder: Path) -> bool:
        (folder / "waiting").touch()
        while (folder / "refused").exists() or not (folder / "done").exists():
            time.sleep(0.01)
        return True

    (tmp_path / "refusing.py").write_text(_REFUSING)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *filter(None, sys.path)]))
    server = ForkServer(("refusing",))
    one, other = IsolatedProcess(server), IsolatedProcess(server)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(called, one, waits, tmp_path)
        deadline = time.monotonic() + 60
        while not (tmp_path / "waiting").exists():
            assert time.monotonic() < deadline
        (tmp_path / "refused").touch()
        with pytest.raises(Transient, match="the system allows no further process") as caught:
            called(other, waits, tmp_path)
        assert "limit of processes" in str(caught.value.hint)
        (tmp_path / "done").touch()
        (tmp_path / "refused").unlink()
        assert waiting.result()
    assert called(other, waits, tmp_path)
    server.close()
