"""The Spark session: starts and stops Spark, and defines all of its settings."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from umbel.errors import InvalidValue, Transient
from umbel.processes.process_tree import die_with
from umbel.processes.user_folder import SAFE
from umbel.spark import aot_cache, scratch
from umbel.spark.java import java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOPBACK = "127.0.0.1"
TRIES = 4
"""How often a task may fail before its job does; `local[N]` alone never tries again."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a Spark session.

    Args:
        directory: umbel's folder; Spark writes its scratch files and its log inside.
        slots: the number of tasks that run at once, each in a Python worker of its own; on a cluster its cores decide.
        master: the URL of a cluster, such as `spark://host:7077`; None for this process alone.
        memory: the heap of the driver's JVM, in Java's notation (`1g`, `600m`).
        java_options: more options of the JVM.
        tuning: options of the JVM's compiler and garbage collector. The JVM moves bytes and computes little: CPU time for
            optimising itself and for concurrent collection is better spent in the Python workers.
        options: more settings of Spark; they override the ones made here.
    """

    directory: Path
    slots: int = 2
    master: str | None = None
    memory: str = "1g"
    java_options: str = ""
    tuning: str = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.slots < 1:
            raise InvalidValue(f"Spark needs at least one task slot, not {self.slots}", hint="-w 1")

    @property
    def logs(self) -> Path:
        """The folder of Spark's log."""
        return self.directory.absolute() / "logs"

    @property
    def scratch(self) -> Path:
        """The folder of this process's temporary files."""
        return self.directory.absolute() / "spark" / scratch.name()


def start(settings: Settings) -> SparkSession:
    """Start Spark in this process.

    Raises:
        InvalidValue: this process has a session already, or there is no Java.
        Transient: the JVM did not start, or the cluster's master does not answer.
    """
    from pyspark import SparkContext
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    if SparkContext._active_spark_context is not None:
        raise InvalidValue("this process has a Spark session already", hint="stop it, or use it")
    _prepare(settings)
    os.environ.update(environment())
    if settings.master is not None:
        os.environ["SPARK_LOCAL_IP"] = address_towards(settings.master)
    builder = SparkSession.builder.config(map={**configuration(settings)})
    try:
        with _jvm_ends_with_this_process(), _interrupts_stay_ours():
            return builder.getOrCreate()
    except PySparkRuntimeError as error:
        raise Transient(
            f"Spark did not start: {error}", hint=f"see {settings.logs / 'spark.log'}, or run `umbel doctor`"
        ) from error
    except Exception as error:
        thrown = getattr(error, "java_exception", None)
        if thrown is None:
            raise
        reason = str(thrown.getMessage()).partition("\n")[0]
        master = settings.master
        towards = f"--master {master}: does the master run there, and can it be reached? " if master else ""
        raise Transient(f"Spark did not start: {reason}", hint=f"{towards}see {settings.logs / 'spark.log'}") from error


def stop(session: SparkSession, within: float = 20.0) -> None:
    """Stop the session's queries, Spark and its JVM; return when the JVM is gone.

    Args:
        within: seconds to wait before the JVM is killed.
    """
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    for query in session.streams.active:
        query.stop()
    session.stop()
    if gateway is not None:
        gateway.shutdown()
        _end(gateway.proc, within)
    # pyspark would otherwise go on talking to the JVM that has just ended
    SparkContext._gateway = SparkContext._jvm = None
    scratch.release()


@contextmanager
def running(settings: Settings) -> Iterator[SparkSession]:
    """Start Spark for a `with` block, and stop it at its end."""
    session = start(settings)
    try:
        yield session
    finally:
        stop(session)


def environment() -> dict[str, str]:
    """Return the environment variables that Spark's launcher, JVM and Python workers need."""
    return {
        "JAVA_HOME": str(java_home()),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": LOOPBACK,
        "PYSPARK_PIN_THREAD": "true",  # a batch that stops its own query has to do so from the query's thread
        SAFE: "1",  # a module in the current folder must not hide one of the standard library from the workers
    }


def configuration(settings: Settings) -> dict[str, str]:
    """Return every setting of the session."""
    return {
        "spark.app.name": "umbel",
        **(_on_this_machine(settings) if settings.master is None else _on_a_cluster(settings.master)),
        **_positions(settings),
        **_execution(),
        **_python(),
        **_streaming(),
        **settings.options,
    }


def _on_this_machine(settings: Settings) -> dict[str, str]:
    return {
        "spark.master": f"local[{settings.slots},{TRIES}]",
        "spark.default.parallelism": str(settings.slots),
        "spark.sql.shuffle.partitions": str(settings.slots),
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.local.dir": str(settings.scratch),
    }


def _on_a_cluster(master: str) -> dict[str, str]:
    """Return the settings for executors on other machines.

    Cores and folders for scratch files are theirs.
    """
    address = address_towards(master)
    return {
        "spark.master": master,
        "spark.task.maxFailures": str(TRIES),
        "spark.scheduler.mode": "FAIR",
        "spark.scheduler.allocation.file": Path(__file__).with_name("pools.xml").resolve().as_uri(),
        "spark.driver.host": address,
        "spark.driver.bindAddress": address,
        f"spark.executorEnv.{SAFE}": "1",
    }


def address_towards(master: str) -> str:
    """Return the address of this machine by which the machine of a master reaches it.

    Raises:
        InvalidValue: the host of the URL is not known.
    """
    first = urlsplit(master.partition(",")[0].removeprefix("k8s://"))
    if not first.hostname:  # such as `yarn`: the cluster's own configuration says where it is
        return socket.gethostname()
    try:
        kind, _, _, _, place = socket.getaddrinfo(first.hostname, first.port or 7077, type=socket.SOCK_DGRAM)[0]
        with socket.socket(kind, socket.SOCK_DGRAM) as towards:
            towards.connect(place)  # sends nothing
            return str(towards.getsockname()[0])
    except (OSError, ValueError) as error:
        raise InvalidValue(
            f"the master {master} cannot be reached: {error}",
            hint="--master spark://host:7077, as the master prints it",
        ) from error


def _positions(settings: Settings) -> dict[str, str]:
    return {
        "spark.driver.memory": settings.memory,
        "spark.driver.extraJavaOptions": _java_options(settings),
        "spark.hadoop.fs.permissions.umask-mode": "077",  # Hadoop sets rights itself, whatever the process has
        "spark.sql.warehouse.dir": str(settings.scratch / "warehouse"),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }


def _execution() -> dict[str, str]:
    return {
        "spark.shuffle.compress": "false",
        "spark.shuffle.checksum.enabled": "false",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # a packet is one row of up to some megabytes: batches are bounded by bytes, not by rows
        "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
        "spark.sql.execution.arrow.maxBytesPerBatch": str(64 << 20),
    }


def _python() -> dict[str, str]:
    return {
        "spark.python.daemon.module": "umbel.spark.daemon",
        "spark.python.worker.reuse": "true",
        "spark.python.worker.faulthandler.enabled": "true",
        # Spark supplies the parallelism; a pool of threads in each worker would only get in its way
        "spark.executorEnv.POLARS_MAX_THREADS": "1",
        "spark.executorEnv.OMP_NUM_THREADS": "1",
    }


CHECKPOINT_FILES = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
"""Spark's default renames by `FileContext`, which runs the program `stat`: 35 ms for each of the two files of a batch."""


def _streaming() -> dict[str, str]:
    return {
        "spark.sql.streaming.minBatchesToRetain": "20",
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        "spark.sql.streaming.checkpointFileManagerClass": CHECKPOINT_FILES,
        # half of the small files of a checkpoint would be checksums of the other half
        "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    }


def _java_options(settings: Settings) -> str:
    log4j = Path(__file__).with_name("log4j2.properties").resolve().as_uri()
    own = {
        "log4j2.configurationFile": log4j,
        "umbel.spark.logs": settings.logs,
        "java.io.tmpdir": settings.scratch,
        "user.timezone": "UTC",
    }
    # Spark matches long error messages with recursive regular expressions: the default stack overflows on a Python traceback
    stack = "-Xss8m"
    learned = "" if "AOTCache" in settings.java_options else aot_cache.java_options()
    own_options = (f'"-D{name}={value}"' for name, value in own.items())
    return " ".join(filter(None, [stack, *own_options, settings.tuning, learned, settings.java_options]))


@contextmanager
def _jvm_ends_with_this_process() -> Iterator[None]:
    """Make a JVM started in the block live exactly as long as this process.

    It ignores SIGTERM, which comes to it too when it comes to a process group or is sent by systemd: this process stops in order
    and needs the JVM until then. A JVM ends by itself when its standard input does, but not while it starts: it may then live on
    for ever, so the kernel kills it. pyspark has no option for either: it overwrites a `preexec_fn` passed to it.
    """
    from pyspark import java_gateway

    gateway: Any = java_gateway
    # To the kernel the parent is the thread that starts the JVM: another one may end before the process
    is_main = threading.current_thread() is threading.main_thread()
    popen, bind = gateway.Popen, die_with(os.getpid(), signal.SIGKILL) if is_main else lambda: None

    def start(command: Any, *, preexec_fn: Any = None, **options: Any) -> subprocess.Popen[bytes]:
        def prepare() -> None:
            if preexec_fn is not None:
                preexec_fn()
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            bind()

        return subprocess.Popen(command, preexec_fn=prepare, **options)  # noqa: PLW1509  pyspark itself passes one

    gateway.Popen = start
    try:
        yield
    finally:
        gateway.Popen = popen


@contextmanager
def _interrupts_stay_ours() -> Iterator[None]:
    """Restore the handler of SIGINT after the block.

    pyspark's cancels all jobs from the handler, over the connection on which the main thread may be waiting, and raises
    KeyboardInterrupt: the program's own handler would never be called.
    """
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


def _prepare(settings: Settings) -> None:
    settings.logs.mkdir(parents=True, exist_ok=True)
    scratch.claim(settings.scratch)


def _end(jvm: subprocess.Popen[bytes], within: float) -> None:
    if jvm.stdin is not None:
        jvm.stdin.close()
    try:
        jvm.wait(within)
    except subprocess.TimeoutExpired:
        jvm.kill()
        jvm.wait()
