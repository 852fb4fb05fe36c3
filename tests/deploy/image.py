"""The image, built from the Dockerfile without Docker and a registry, and containers of the chart that run it."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from tests.deployed import wait_until
from tests.servers.missing import missing

ROOT = Path(__file__).parents[2]
RELEASE, PYTHON = "bookworm", "3.11"
"""The Debian that stands for the base image, and its Python."""

BASE = f"docker.io/library/python:{PYTHON}-slim"
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
ACCOUNT = 10001


class Builder:
    """buildah with a storage of its own.

    Args:
        folder: of the storage.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for tool in ("buildah", "debootstrap"):
            if shutil.which(tool) is None or os.geteuid():
                missing(tool, "it is not installed, or this is not root", "tests/servers/install images, as root")

    def __call__(self, *arguments: str) -> str:
        """Run a command of buildah; return what it prints."""
        storage = ["--root", f"{self._folder}/store", "--runroot", f"{self._folder}/run", "--storage-driver", "overlay"]
        environment = {**os.environ, "BUILDAH_ISOLATION": "chroot"}
        done = subprocess.run(
            ["buildah", *storage, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{done.stdout[-2000:]}{done.stderr[-2000:]}"
        return done.stdout.strip()

    def make_base(self) -> None:
        """Make what stands for the base image: a small Debian with Python, and this machine's way to packages."""
        base = self._folder / "base"
        packages = "--include=ca-certificates,python3,python3-venv"
        subprocess.run(
            ["debootstrap", "--variant=minbase", packages, RELEASE, str(base)], capture_output=True, check=True
        )
        (base / "usr/local/bin/python").symlink_to("/usr/bin/python3")
        for path in ("etc/pip.conf", "etc/ssl/certs/ca-certificates.crt"):
            if Path("/", path).exists():
                shutil.copy(Path("/", path), base / path)
        self("from", "--name", "base", "scratch")
        self("add", "--quiet", "base", str(base), "/")
        self("config", "--env", "PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "base")
        self("commit", "--quiet", "base", BASE)
        shutil.rmtree(base)


class Image:
    """A built image.

    Args:
        root: where its files are.
        config: its configuration.
    """

    def __init__(self, root: Path, config: Mapping[str, Any]) -> None:
        self.root, self.config = root, config

    def start(
        self, pod: Mapping[str, Any], name: str, volumes: Mapping[str, Path], command: Sequence[str] | None = None
    ) -> Container:
        """Start a container of a pod, or another command in it."""
        (found,) = (each for each in (*pod.get("initContainers", ()), *pod["containers"]) if each["name"] == name)
        assert found["securityContext"]["readOnlyRootFilesystem"]
        assert pod["securityContext"]["runAsUser"] == ACCOUNT
        environment = dict(each.split("=", 1) for each in self.config["Env"])
        environment |= {each["name"]: each.get("value", "127.0.0.1") for each in found["env"]}
        first = found.get("command", self.config["Entrypoint"])
        arguments = [str(each).replace("$(POD_IP)", environment.get("POD_IP", "")) for each in found["args"]]
        folder = found.get("workingDir", self.config["WorkingDir"])
        run = f"cd {shlex.quote(folder)} && exec {shlex.join(command or [*first, *arguments])}"
        rights = (
            f"--reuid {ACCOUNT} --regid {ACCOUNT} --groups {ACCOUNT} --no-new-privs --bounding-set=-all --inh-caps=-all"
        )
        assignments = shlex.join(f"{key}={value}" for key, value in environment.items())
        script = [*self._mounts(found, volumes), f"hostname {name}-0"]
        assert pod["shareProcessNamespace"]  # the first process is not the container's, but Kubernetes'
        script += [f"env -i {assignments} chroot /mnt setpriv {rights} sh -c {shlex.quote(run)} &\nwait $!"]
        return Container("\n".join(script), pod.get("terminationGracePeriodSeconds", 30))

    def _mounts(self, container: Mapping[str, Any], volumes: Mapping[str, Path]) -> Iterator[str]:
        yield f"set -e\nmount --rbind {self.root} /mnt\nmount -t proc proc /mnt/proc\nmount -t tmpfs -o mode=755 dev /mnt/dev"
        for each in DEVICES:
            yield f"touch /mnt/dev/{each}\nmount --bind /dev/{each} /mnt/dev/{each}"
        yield "ln -s /proc/self/fd /mnt/dev/fd\nmkdir /mnt/dev/shm\nmount -t tmpfs -o mode=1777,size=64m shm /mnt/dev/shm"
        for each in container["volumeMounts"]:
            yield f"mount --bind {volumes[each['name']]} /mnt{each['mountPath']}"
        yield "mount --bind /etc/hosts /mnt/etc/hosts\nmount -o remount,bind,ro /mnt"


class Container:
    """A process with namespaces, rights and a read-only file system as Kubernetes gives them.

    Args:
        script: mounts its file system and starts it.
        patience: seconds that it has to end.
    """

    def __init__(self, script: str, patience: float) -> None:
        self._patience = patience
        command = ["unshare", "--mount", "--pid", "--ipc", "--uts", "--fork", "--kill-child", "sh", "-c", script]
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115  as long as the container
        self.process = subprocess.Popen(command, stdout=self._log, stderr=self._log)

    @property
    def said(self) -> str:
        """What it has printed."""
        self._log.seek(0)
        return self._log.read()

    def report(self, within: float = 300) -> str:
        """Wait until it ends by itself without an error; return what it printed."""
        self.process.wait(within)
        assert self.process.returncode == 0, self.said
        return self.said

    def stop(self) -> None:
        """End it as Kubernetes does, within its time."""
        self.first().send_signal(signal.SIGTERM)
        self.report(self._patience)

    def first(self) -> psutil.Process:
        """Return the container's first process, once it has dropped root's rights."""
        found: list[psutil.Process] = []

        def is_there() -> bool:
            with suppress(psutil.NoSuchProcess):
                family = psutil.Process(self.process.pid).children(recursive=True)
                found[:] = sorted(
                    (each for each in family if each.uids().real == ACCOUNT), key=psutil.Process.create_time
                )
            return bool(found)

        wait_until(is_there, lambda: self.said)
        return found[0]

    def kill(self) -> None:
        """Kill it, if it runs."""
        self.process.kill()
        self.process.wait()


@contextmanager
def built_image(folder: Path) -> Iterator[Image]:
    """Build the image of the Dockerfile in a folder, which is removed afterwards."""
    build = Builder(folder)
    try:
        build.make_base()
        options = ["--pull-never", "--format", "docker", "--build-arg", f"PYTHON={PYTHON}"]
        build("bud", *options, "--file", "deploy/Dockerfile", "--tag", "umbel", str(ROOT))
        root = build("mount", build("from", "--pull-never", "umbel"))
        config = json.loads(build("inspect", "--type", "image", "umbel"))["Docker"]["config"]
        yield Image(Path(root), config)
    finally:
        build("umount", "--all")
        build("rm", "--all")
        build("rmi", "--all", "--force")
        shutil.rmtree(folder)
