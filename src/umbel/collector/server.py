"""The processes of a collector: they accept requests, and forward events."""

from __future__ import annotations

import asyncio
import gc
import logging
import multiprocessing
import os
import signal
import socket
import ssl
import sys
import tempfile
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING

from umbel.collector.settings import CollectorSettings
from umbel.errors import Transient
from umbel.log.collected import log_of, streams_in
from umbel.processes.locks import alone
from umbel.processes.open_files import raise_limit
from umbel.processes.process_tree import end_with_parent
from umbel.processes.stopping import StopRequest, stop_signals
from umbel.runtime.limits import Limits

if TYPE_CHECKING:
    from umbel.collector.service import CollectorService

EVERY = 1.0
"""Seconds between two looks at backlog, keys and slow connections."""
FINISH = 10.0
"""Seconds in which open requests may be answered when the process stops."""
FORWARD = 30.0
"""Seconds in which what is left may be forwarded after that."""
END_FORWARDING = signal.SIGUSR1
"""Ends the process that forwards: a signal for the whole group, as of Ctrl-C or systemd, is for the supervisor alone."""
PAUSE = 0.5
"""Seconds before a process that ended is started again."""
SHARED = "PROMETHEUS_MULTIPROC_DIR"

log = logging.getLogger("umbel.collect")


def collect(settings: CollectorSettings, checked: Callable[[], None] = lambda: None) -> None:
    """Accept events until stopped.

    Args:
        settings: of the collector.
        checked: called once the port and the folder are its own.

    Raises:
        Transient: the port or the folder is taken.
    """
    from umbel.collector.service import check_files

    limits = Limits.from_environment()
    settings.check()
    with alone(settings.directory, "collector"):
        _check_port(settings)
        check_files(settings)
        checked()
        if settings.processes == 1 and settings.to is None:
            serve(settings, limits)
        else:
            with tempfile.TemporaryDirectory(prefix="umbel-metrics-") as folder:
                os.environ[SHARED] = folder
                _Supervisor(settings, limits).run()


def _check_port(settings: CollectorSettings) -> None:
    # Two collectors that share a port by SO_REUSEPORT would take each other's requests.
    try:
        with _socket(settings) as found:
            found.bind((settings.host, settings.port))
    except OSError as error:
        report = f"nothing can listen on {settings.host}:{settings.port}: {error.strerror}"
        raise Transient(report, hint="another port: --port") from None


def _socket(settings: CollectorSettings) -> socket.socket:
    found = socket.socket(socket.AF_INET6 if ":" in settings.host else socket.AF_INET)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return found


def serve(settings: CollectorSettings, limits: Limits, number: int = 0, parent: int | None = None) -> None:
    """Accept events in this process until it gets a stop signal.

    Args:
        settings: of the collector.
        limits: of backlog and disk.
        number: of the process; the first one deletes old events.
        parent: process id of the supervisor, None without.
    """
    from umbel.collector.service import CollectorService

    if parent is not None:
        end_with_parent(parent)
        os.umask(0o077)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s: %(message)s")
    raise_limit()
    sys.setswitchinterval(0.001)  # the thread that syncs gets the interpreter sooner: requests wait for it
    collector = CollectorService(settings, limits, deletes=number == 0)
    try:
        collector.look()
        gc.freeze()
        gc.set_threshold(50_000, 20, 100)
        asyncio.run(_serve(settings, collector))
        is_broken = bool(collector.broken)
    finally:
        collector.close()
    if is_broken:
        sys.exit(1)


async def _serve(settings: CollectorSettings, collector: CollectorService) -> None:
    from umbel.collector.connection import CollectorConnection

    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    loop.set_exception_handler(collector.limit.handle)
    for each in stop_signals():
        loop.add_signal_handler(each, stop.set)
    listening = _socket(settings)
    if settings.processes > 1:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listening.bind((settings.host, settings.port))
    server = await loop.create_server(
        lambda: CollectorConnection(collector), sock=listening, backlog=2048, ssl=_tls(settings), start_serving=True
    )
    watching = asyncio.create_task(_watch(collector, stop))
    await stop.wait()
    collector.is_draining = True
    server.close()
    await _drain(collector)
    watching.cancel()


def _tls(settings: CollectorSettings) -> ssl.SSLContext | None:
    if settings.tls_cert is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(settings.tls_cert, settings.tls_key)
    return context


async def _watch(collector: CollectorService, stop: asyncio.Event) -> None:
    """Measure the backlog, and close slow connections, until cancelled.

    A process that cannot append any more ends, since a new one can.
    """
    while True:
        await asyncio.sleep(EVERY)
        try:
            await asyncio.to_thread(collector.look)
        except Exception as error:  # noqa: BLE001  the last measurement stays in force
            log.error("cannot tell how many events wait: %s", error)
        collector.totals.add_up()
        if collector.broken:
            log.error("the disk failed to sync %s; the process ends", ", ".join(collector.broken))
            stop.set()
        now = time.monotonic()
        for each in list(collector.connections):
            each.check(now)


async def _drain(collector: CollectorService) -> None:
    """Answer the open requests, for ten seconds at most."""
    deadline = time.monotonic() + FINISH
    while collector.connections and time.monotonic() < deadline:
        for each in list(collector.connections):
            each.end_if_idle()
        await asyncio.sleep(0.02)


class _Supervisor:
    """Starts the processes, and those that end again.

    Args:
        settings: of the collector.
        limits: of backlog and disk.
    """

    def __init__(self, settings: CollectorSettings, limits: Limits) -> None:
        self._settings, self._limits = settings, limits
        self._stop = StopRequest()
        self._spawn = multiprocessing.get_context("spawn")  # a fork would share locks of threads

    def run(self) -> None:
        """Run until a stop signal."""
        for each in stop_signals():
            signal.signal(each, lambda *_: self._stop.set())
        numbers = range(self._settings.processes + (self._settings.to is not None))
        processes = {number: self._start(number) for number in numbers}
        while not self._stop.wait(0.1):
            for number, process in processes.items():
                if not process.is_alive():
                    log.error("process %s ended with exit code %s", process.pid, process.exitcode)
                    if self._stop.wait(PAUSE):
                        break
                    processes[number] = self._start(number)
        forwarding = processes.pop(self._settings.processes, None)
        _end(processes.values())
        if forwarding is not None:
            self._wait_for(forwarding)
            _end([forwarding], END_FORWARDING)

    def _wait_for(self, forwarding: BaseProcess) -> None:
        """Wait half a minute at most until nothing is left to forward, while Kafka answers."""
        from umbel.collector.forwarding import answers, is_forwarded

        directory, target, reason = self._settings.directory, self._settings.to, ""
        assert target is not None
        deadline = time.monotonic() + FORWARD
        while left := [each for each in streams_in(directory) if not is_forwarded(log_of(directory, each))]:
            if not forwarding.is_alive() or time.monotonic() > deadline:
                break
            if not answers(target, target.topic_of(left[0])):
                reason = f": Kafka at {target.servers} does not answer"
                break
            time.sleep(0.1)
        if left:
            log.error("not all events were forwarded%s; the rest is when the collector runs again", reason)

    def _start(self, number: int) -> BaseProcess:
        forwards = number == self._settings.processes
        arguments = (self._settings, self._limits, number, os.getpid())
        process = self._spawn.Process(target=forward if forwards else serve, args=arguments, name=f"collect {number}")
        process.start()
        return process


def _end(processes: Collection[BaseProcess], number: signal.Signals = signal.SIGTERM) -> None:
    for each in processes:
        with suppress(ProcessLookupError):
            if each.pid is not None and each.is_alive():
                os.kill(each.pid, number)
    for each in processes:
        each.join(FINISH + 5)
        each.kill()


def forward(settings: CollectorSettings, limits: Limits, number: int, parent: int) -> None:
    """Forward events to Kafka in this process until it gets `END_FORWARDING`.

    Args:
        settings: of the collector.
        limits: unused, as for `serve`.
        number: of the process.
        parent: process id of the supervisor.
    """
    from umbel.collector.forwarding import Forwarder

    del limits, number
    end_with_parent(parent)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s: %(message)s")
    stop = StopRequest()
    for each in stop_signals():
        signal.signal(each, signal.SIG_IGN)
    signal.signal(END_FORWARDING, lambda *_: stop.set())
    Forwarder(settings).run(stop)
