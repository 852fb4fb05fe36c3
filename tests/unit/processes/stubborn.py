"""A supervisor over fake children, to be killed by tests: `python stubborn.py FOLDER KIND…`.

Each kind is a child: `good` stops on request, `deaf` does not, `dying` ends at once, `tidy` needs some time to stop and sends its
supervisor a signal meanwhile, `wordy` writes to its log all the time. Each has a grandchild in a session of its
own, deaf too. All of them write their process ids to FOLDER.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from itertools import count
from pathlib import Path

from umbel.processes.supervision import FINAL


def child(folder: Path, kind: str, depth: int) -> None:
    """Be a child, or a grandchild."""
    if kind != "good" or depth:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    if kind == "tidy" and not depth:
        signal.signal(signal.SIGTERM, lambda *_: tidy(folder))
    if not depth:
        command = [sys.executable, __file__, str(folder), "--child", kind, "1"]
        subprocess.Popen(command, start_new_session=True)
        while not list(folder.glob(f"{kind}-1-*")):
            time.sleep(0.01)
    (folder / f"{kind}-{depth}-{os.getpid()}").touch()
    if kind == "damaged" and not depth:
        print("plan 7 is missing", flush=True)
        sys.exit(FINAL)
    if kind == "dying" and not depth:
        print("the last words of the dying", flush=True)
        sys.exit(3)
    if not depth:
        from umbel.processes.process_tree import die_with_parent

        die_with_parent()
    for line in count() if kind == "wordy" and not depth else ():
        print(line, flush=True)
        time.sleep(0.0001)
    time.sleep(600)


def tidy(folder: Path) -> None:
    """Stop in order, while the signal that stops the supervisor comes to it again."""
    for _ in range(10):
        os.kill(os.getppid(), signal.SIGHUP)
        time.sleep(0.01)
    (folder / "tidied").touch()
    sys.exit()


def supervise(folder: Path, kinds: list[str]) -> None:
    """Run the children until stopped; their logs have some lines each."""
    from umbel.processes import supervision
    from umbel.processes.supervision import SupervisedProcess, Supervisor

    supervision.LARGEST_LOG = 1000

    def fake(kind: str) -> SupervisedProcess:
        command = [sys.executable, __file__, str(folder), "--child", kind, "0"]
        return SupervisedProcess(kind, command, log=folder / f"{kind}.log", first_wait=0.05)

    def tell(text: str) -> None:
        print(text, flush=True)

    Supervisor([fake(kind) for kind in kinds], tell, patience=30 if "tidy" in kinds else 0.5).run(lambda: None)
    print("ended", flush=True)


if __name__ == "__main__":
    if sys.argv[2] == "--child":
        child(Path(sys.argv[1]), sys.argv[3], int(sys.argv[4]))
    else:
        supervise(Path(sys.argv[1]), sys.argv[2:])
