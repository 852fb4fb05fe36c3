"""A Kafka broker (KRaft, one node) in a process of its own over a temporary folder.

Its encrypted listeners require SCRAM, and differ by their certificates: a right one, one of another host, and an expired one.
"""

from __future__ import annotations

import base64
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

from tests.jars import fetched, java, made_once
from tests.scenarios.server import HOST, free_port
from tests.servers.certificates import Authority
from tests.servers.missing import missing
from umbel.processes.process_tree import die_with

PATIENCE = 300.0
TAKEN = 30.0
"""Seconds in which a port that is taken may become free."""
USER, PASSWORD = "reader", "only-for-tests"
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
LOGGING = """<Configuration status="WARN"><Appenders><Console name="C" target="SYSTEM_OUT"/></Appenders>
<Loggers><Root level="WARN"><AppenderRef ref="C"/></Root></Loggers></Configuration>"""
SETTINGS = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{controller}
listeners=PLAINTEXT://{host}:{port},SASL_PLAINTEXT://{host}:{sasl},CONTROLLER://{host}:{controller},{encrypted}
advertised.listeners=PLAINTEXT://{host}:{port},SASL_PLAINTEXT://{host}:{sasl},{encrypted}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,{protocols}
inter.broker.listener.name=PLAINTEXT
sasl.enabled.mechanisms=PLAIN
listener.name.sasl_plaintext.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\
  user_{user}="{password}";
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
log.dirs={folder}/data
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
log.retention.hours=-1
log.retention.check.interval.ms=500
log.cleaner.backoff.ms=200
log.segment.delete.delay.ms=100
file.delete.delay.ms=100
controlled.shutdown.enable=false
broker.session.timeout.ms=1500
broker.heartbeat.interval.ms=300
controller.quorum.election.timeout.ms=200
controller.quorum.fetch.timeout.ms=500
controller.quorum.election.backoff.max.ms=200
transaction.abort.timed.out.transaction.cleanup.interval.ms=500
num.network.threads=2
num.io.threads=2
"""
ENCRYPTED = """
listener.name.{name}.sasl.enabled.mechanisms=SCRAM-SHA-256,SCRAM-SHA-512
listener.name.{name}.scram-sha-256.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.{name}.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.{name}.ssl.keystore.type=PEM
listener.name.{name}.ssl.keystore.location={certificate}
"""
RIGHT, OTHER_HOST, EXPIRED = "right", "other_host", "expired"
"""Encrypted listeners, by their certificates."""

Record = tuple[bytes | None, bytes | None]
"""A key and a value."""


@dataclass
class Broker:
    """A broker that can be killed and started again; its data stay.

    Args:
        folder: of its data and logs.
        jars: its program.
        port: of the listener without authentication.
        sasl_port: of the listener with SASL/PLAIN.
        encrypted_ports: of the encrypted listeners.
    """

    folder: Path
    jars: Path
    port: int = field(default_factory=free_port)
    sasl_port: int = field(default_factory=free_port)
    encrypted_ports: Mapping[str, int] = field(
        default_factory=lambda: {name: free_port() for name in (RIGHT, OTHER_HOST, EXPIRED)}
    )
    _controller: int = field(default_factory=free_port)
    _process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def sasl_address(self) -> str:
        return f"{HOST}:{self.sasl_port}"

    def encrypted_address(self, name: str) -> str:
        """Return the address of an encrypted listener."""
        return f"{HOST}:{self.encrypted_ports[name]}"

    @property
    def authority(self) -> Path:
        """The certificate of the authority that signed those of the listeners."""
        return self.folder / "authority.pem"

    @property
    def log(self) -> Path:
        return self.folder / "broker.log"

    def begin(self) -> None:
        """Start the process, without waiting for it."""
        self._format()
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._java(), "kafka.Kafka", str(self._settings)],
                stdout=log,
                stderr=log,
                preexec_fn=die_with(os.getpid()),  # it does not outlive tests that are killed
            )

    def start(self) -> None:
        """Start the process and wait until it answers.

        Where a port of a broker that was killed is taken meanwhile, it is tried again for some time.
        """
        deadline = time.monotonic() + TAKEN
        while True:
            begin = self.log.stat().st_size if self.log.exists() else 0
            self.begin()
            try:
                return self.wait()
            except OSError:
                if b"Address already in use" not in self.log.read_bytes()[begin:] or time.monotonic() > deadline:
                    raise

    def wait(self) -> None:
        """Wait until the broker answers."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and self._process is not None and self._process.poll() is None:
            if self._answers():
                return
            time.sleep(0.1)
        raise OSError(f"the broker does not answer:\n{self.log.read_text(errors='replace')[-3000:]}")

    @property
    def is_alive(self) -> bool:
        """True while the process runs."""
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """Kill the process with SIGKILL."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """Stop the process."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()  # the data are thrown away
            self._process.wait()

    def create(self, topic: str, partitions: int = 1, **config: str) -> None:
        """Make a topic. Options are written with underscores: `cleanup_policy="compact"`."""
        from confluent_kafka.admin import NewTopic

        options = {name.replace("_", "."): value for name, value in config.items()}
        _done(self.admin.create_topics([NewTopic(topic, partitions, 1, config=options)]))

    def delete(self, topic: str) -> None:
        """Delete a topic, and wait until it is gone."""
        _done(self.admin.delete_topics([topic]))
        deadline = time.monotonic() + PATIENCE
        while topic in self.admin.list_topics(timeout=10).topics:
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def add_partitions(self, topic: str, total: int) -> None:
        """Increase the number of partitions."""
        from confluent_kafka.admin import NewPartitions

        _done(self.admin.create_partitions([NewPartitions(topic, total)]))

    def delete_records(self, topic: str, before: Mapping[int, int]) -> None:
        """Delete the records before an offset of each partition, as retention does."""
        from confluent_kafka import TopicPartition

        _done(self.admin.delete_records([TopicPartition(topic, part, at) for part, at in before.items()]))

    def grant(self, kind: str, name: str, *operations: str, is_prefix: bool = False) -> None:
        """Permit the user of the SASL listener operations on a topic, group or transactional id, and no others."""
        from confluent_kafka.admin import (
            AclBinding,
            AclBindingFilter,
            AclOperation,
            AclPermissionType,
            ResourcePatternType,
            ResourceType,
        )

        pattern = ResourcePatternType.PREFIXED if is_prefix else ResourcePatternType.LITERAL
        who = (f"User:{USER}", "*")
        each = [
            AclBinding(ResourceType[kind], name, pattern, *who, AclOperation[operation], AclPermissionType.ALLOW)
            for operation in operations
        ]
        _done(self.admin.create_acls(each))
        found = AclBindingFilter(ResourceType[kind], name, pattern, *who, AclOperation.ANY, AclPermissionType.ALLOW)
        deadline = time.monotonic() + PATIENCE
        while not {*each} <= {
            *self.admin.describe_acls(found).result(PATIENCE)
        }:  # the broker gets them from its controller
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def produce(self, topic: str, values: Iterable[bytes | Record | None], partition: int = 0) -> None:
        """Append records; a record is a value, or a key and a value."""
        producer = self.producer()
        for number, each in enumerate(values):
            key, value = each if isinstance(each, tuple) else (None, each)
            producer.produce(topic, value, key, partition=partition)
            if number % 10_000 == 9_999:
                producer.flush()
        assert producer.flush(60) == 0

    def transact(self, topic: str, values: Sequence[bytes], *, commit: bool, partition: int = 0) -> None:
        """Append records in one transaction, and commit or abort it."""
        producer = self.producer(**{"transactional.id": f"tests-{topic}"})
        producer.init_transactions(30)
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value, partition=partition)
        producer.flush(30)
        producer.commit_transaction(30) if commit else producer.abort_transaction(30)
        self.wait_for_ends(topic)

    def wait_for_ends(self, topic: str) -> None:
        """Wait until no transaction is open in a topic: the broker notes an end after it has answered its producer."""
        from confluent_kafka import IsolationLevel, TopicPartition
        from confluent_kafka.admin import OffsetSpec

        known = self.admin.list_topics(topic, timeout=10).topics[topic].partitions
        parts = [TopicPartition(topic, part) for part in known]

        def ends(level: IsolationLevel) -> list[int]:
            requested = self.admin.list_offsets(dict.fromkeys(parts, OffsetSpec.latest()), isolation_level=level)
            return [requested[part].result(10).offset for part in parts]

        deadline = time.monotonic() + PATIENCE
        while ends(IsolationLevel.READ_COMMITTED) != ends(IsolationLevel.READ_UNCOMMITTED):
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def consume(self, topic: str) -> list[Any]:
        """Return the committed messages of a topic, in order of partition and offset."""
        from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

        options = {"bootstrap.servers": self.address, "group.id": "tests", "enable.partition.eof": True}
        consumer = Consumer({**options, "isolation.level": "read_committed", "enable.auto.commit": False})
        parts = list(self.admin.list_topics(topic, timeout=10).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, part, OFFSET_BEGINNING) for part in parts])
        found, ended = list[Any](), set[int]()
        deadline = time.monotonic() + PATIENCE
        while len(ended) < len(parts):
            assert time.monotonic() < deadline
            for message in consumer.consume(10_000, 0.5):
                if message.error() is None:
                    found.append(message)
                elif message.error().name() == "_PARTITION_EOF":
                    ended.add(message.partition())
        consumer.close()
        return sorted(found, key=lambda message: (message.partition(), message.offset()))

    def producer(self, **options: Any) -> Any:
        """Return a producer."""
        from confluent_kafka import Producer

        in_order = {"enable.idempotence": True}  # without it, a batch that is sent again comes after later ones
        return Producer({"bootstrap.servers": self.address, "linger.ms": 5, "log_level": 0, **in_order, **options})

    @cached_property
    def admin(self) -> Any:
        """A client for administration."""
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.address, "log_level": 0})

    @property
    def _settings(self) -> Path:
        return self.folder / "server.properties"

    def _java(self) -> list[str]:
        options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true"]
        logging = f"-Dlog4j2.configurationFile={self.folder / 'log4j2.xml'}"
        return [java(), *options, logging, "-cp", f"{self.jars}/*"]

    def _format(self) -> None:
        if (self.folder / "data" / "meta.properties").exists():
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        ports = {"port": self.port, "sasl": self.sasl_port, "controller": self._controller}
        names = {"host": HOST, "user": USER, "password": PASSWORD, "folder": self.folder}
        encrypted = {
            "encrypted": ",".join(f"{name.upper()}://{HOST}:{port}" for name, port in self.encrypted_ports.items()),
            "protocols": ",".join(f"{name.upper()}:SASL_SSL" for name in self.encrypted_ports),
        }
        self._settings.write_text(SETTINGS.format(**ports, **names, **encrypted) + self._certificates())
        (self.folder / "log4j2.xml").write_text(LOGGING)
        facts = "\n".join([self.jars.name, SETTINGS, USER, PASSWORD, *SCRAM])
        formatted = made_once(f"kafka-data-{sha256(facts.encode()).hexdigest()[:12]}", self._make_data)
        shutil.copytree(formatted, self.folder / "data", ignore=shutil.ignore_patterns(".complete"))
        properties = self.folder / "data" / "meta.properties"  # each broker is a cluster of its own
        properties.write_text(re.sub("(?m)^cluster.id=.*$", f"cluster.id={_new_cluster()}", properties.read_text()))

    def _make_data(self, into: Path) -> None:
        """Make the data of a new broker; they are alike for all, and take as long as its start."""
        shutil.rmtree(into, ignore_errors=True)
        options = ["format", "-t", _new_cluster(), "-c", str(self._settings)]
        for mechanism in SCRAM:
            options += ["--add-scram", f"{mechanism}=[name={USER},password={PASSWORD}]"]
        done = subprocess.run(
            [*self._java(), "kafka.tools.StorageTool", *options], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise OSError(f"the broker's folder cannot be made:\n{(done.stdout + done.stderr)[-3000:]}")
        shutil.move(self.folder / "data", into)

    def _certificates(self) -> str:
        """Write the certificates of the encrypted listeners; return their settings."""
        authority, found = Authority("tests"), list[str]()
        authority.write(self.authority)
        for name in self.encrypted_ports:
            host = "other.example" if name == OTHER_HOST else HOST
            expired = timedelta(hours=1 if name == EXPIRED else -24)
            certificate = authority.write_server(self.folder / f"{name}.pem", host, expired=expired)
            found.append(ENCRYPTED.format(name=name, certificate=certificate))
        return "".join(found)

    def _answers(self) -> bool:
        from confluent_kafka import KafkaException

        try:
            return bool(self.admin.list_topics(timeout=2).brokers)
        except KafkaException:
            return False


def _new_cluster() -> str:
    """Return the identity of a new cluster."""
    return base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("=").replace("-", "x")


def _done(futures: Mapping[Any, Any]) -> None:
    for future in futures.values():
        future.result(30)


@contextmanager
def running(folder: Path) -> Iterator[Broker]:
    """Run a broker for the length of a block."""
    broker = Broker(folder, fetched(Path(__file__).with_name("kafka.xml")))
    try:
        broker.start()
        yield broker
    finally:
        broker.stop()


def started_or_missing(folder: Path) -> Iterator[Broker]:
    """Yield a running broker; where there can be none, fail in CI, and elsewhere skip."""
    server = running(folder)
    try:
        broker = server.__enter__()
    except (OSError, ImportError, subprocess.SubprocessError) as error:
        missing("Kafka", f"the broker cannot be started: {error}", "let this machine reach a Maven server")
    try:
        yield broker
    finally:
        server.__exit__(None, None, None)
