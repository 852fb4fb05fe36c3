"""Modules of Go, by its own module proxy: the schemas of Kubernetes and KEDA."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

from tests.servers.missing import missing

REMEDY = "install Go, https://go.dev/dl, and let this machine reach its module proxy"


@cache
def go() -> str:
    """Return the path of Go."""
    found = shutil.which("go", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/local/go/bin"]))
    return found or missing("Go", "it is not installed", REMEDY)


@cache
def module(name: str) -> Path:
    """Return the folder of a module, downloaded: `k8s.io/client-go@v0.37.0`."""
    done = subprocess.run(
        [go(), "mod", "download", "-json", name], capture_output=True, text=True, check=False, cwd="/"
    )
    if done.returncode:
        missing(name, done.stderr[-500:] or done.stdout[-500:], REMEDY)
    return Path(json.loads(done.stdout)["Dir"])
