"""A real Kafka broker for tests: one JVM, KRaft mode, on loopback, in a directory that goes when it goes.

It runs from the plain jars that ``scripts/jars`` fetches. ``stop`` (or ``kill``) and ``start`` again keep the
port and the data, so a test can take the broker away from a running job and bring it back.

Not for production, and no mock: clients meet the same protocol, offsets and errors as anywhere.
"""

from __future__ import annotations

import atexit
import base64
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from watersmeet.errors import WatersmeetError

JARS_VARIABLE = "WATERSMEET_KAFKA_BROKER_JARS"

ADMIN_TIMEOUT_S = 60
"""A broker answers in a second, and later on a machine whose cores are all busy."""

Payload = bytes | str | None
"""A key or a value to send: text goes as UTF-8, None is Kafka's null."""

Record = tuple[int, bytes | None, bytes | None]
"""A record that was read: partition, key, value."""


def broker_jars() -> Path:
    """The directory of the broker's jars.

    Raises:
        WatersmeetError: there is none (``no-kafka-broker``).
    """
    named = os.environ.get(JARS_VARIABLE)
    repository = Path(__file__).resolve().parents[2]
    folder = Path(named) if named else repository / ".jars" / "kafka-broker"
    if not any(folder.glob("kafka_2.13-*.jar")):
        raise WatersmeetError(
            f"there is no Kafka broker in {folder}",
            code="no-kafka-broker",
            hint=f"run `make jars` (scripts/jars), or let {JARS_VARIABLE} name a directory with its jars",
        )
    return folder


def consume_all(servers: str, topic: str) -> list[Record]:
    """All committed records that the topic holds at the time of the call, by partition and offset."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": f"watersmeet-{uuid.uuid4()}",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 50,
        }
    )
    try:
        described = consumer.list_topics(topic, timeout=30).topics[topic]
        if described.error is not None:
            raise KafkaException(described.error)
        open_partitions = set(described.partitions)
        consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in sorted(open_partitions)])
        found: dict[int, list[Record]] = {partition: [] for partition in sorted(open_partitions)}
        last_heard = time.monotonic()
        while open_partitions:
            messages = consumer.consume(10_000, timeout=0.2)
            if messages:
                last_heard = time.monotonic()
            elif time.monotonic() - last_heard > 30:
                raise WatersmeetError(f"reading topic {topic} came to a halt", code="kafka-broker")
            for message in messages:
                partition = message.partition()
                error = message.error()
                if error is None:
                    # nothing behind the end that was seen first: the topic may be growing
                    if partition is not None and partition in open_partitions:
                        found[partition].append((partition, message.key(), message.value()))
                elif error.code() == KafkaError._PARTITION_EOF:
                    open_partitions.discard(partition)
                else:
                    raise KafkaException(error)
    finally:
        consumer.close()
    return [record for records in found.values() for record in records]


class KafkaBroker:
    """One broker, which is also its own controller.

    Used as a context manager it starts on entry; on exit it is stopped and its data are deleted. Topics are
    never made by accident (``auto.create.topics.enable=false``), and records of any timestamp are kept.

    Example::

        with KafkaBroker() as broker:
            broker.create_topic("orders", partitions=4)
            broker.produce("orders", [(0, "k", '{"t": 1}'), (3, None, '{"t": 2}', 1_356_998_400_000)])
            assert len(broker.consume_all("orders")) == 2
    """

    def __init__(self, *, heap: str = "512m", start_timeout_s: float = 60.0) -> None:
        self._heap = heap
        self._start_timeout_s = start_timeout_s
        self._folder: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._port, self._controller_port = _free_ports(2)

    @property
    def bootstrap_servers(self) -> str:
        """What clients connect to; the same before and after a restart."""
        return f"127.0.0.1:{self._port}"

    @property
    def running(self) -> bool:
        """Whether the broker's process lives."""
        return self._process is not None and self._process.poll() is None

    @property
    def process_id(self) -> int:
        """Of the broker that runs."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it and return when it answers. With data of an earlier start it takes up those.

        Raises:
            WatersmeetError: no jars, no Java, or the broker went away or did not answer; with its last words.
        """
        if self.running:
            return
        jars = broker_jars()
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="watersmeet-kafka-"))
            atexit.register(self.close)
            self._write_properties(self._folder)
            # An id may begin with a dash: joined to its option, it is not read as one.
            cluster = "--cluster-id=" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
            formatted = self._launch(
                jars, "kafka.tools.StorageTool", "format", cluster, "-c", str(self._properties)
            )
            if formatted.wait(timeout=self._start_timeout_s) != 0:
                raise self._failure("could not format its directory")
        self._process = self._launch(jars, "kafka.Kafka", str(self._properties))
        self._await_answer()

    def stop(self, timeout_s: float = 30.0) -> None:
        """Stop it in good order; its data stay for the next ``start``."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(timeout=timeout_s)
            except subprocess.TimeoutExpired:
                self.kill()
        self._process = None

    def kill(self) -> None:
        """End it at once (SIGKILL); what the operating system has of its data stays."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            self._process.wait()
        self._process = None

    def restart(self) -> None:
        """``stop`` and ``start``: same port, same data."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stop it and delete its data."""
        self.kill()
        if self._folder is not None:
            atexit.unregister(self.close)
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def create_topic(self, name: str, partitions: int = 1) -> None:
        """Create a topic and return when it can be written to."""
        from confluent_kafka.admin import NewTopic

        admin = self._admin()
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1)
        admin.create_topics([topic])[name].result(ADMIN_TIMEOUT_S)
        self._await(lambda: self._leaders(admin, name) == partitions, f"topic {name} did not come up")

    def add_partitions(self, name: str, total: int) -> None:
        """Give a topic more partitions, ``total`` in all, and return when they can be written to."""
        from confluent_kafka.admin import NewPartitions

        admin = self._admin()
        admin.create_partitions([NewPartitions(name, total)])[name].result(ADMIN_TIMEOUT_S)
        self._await(lambda: self._leaders(admin, name) == total, f"partitions of {name} did not come up")

    def config_of(self, name: str) -> dict[str, str]:
        """What a topic is set to."""
        from confluent_kafka.admin import ConfigResource

        resource = ConfigResource(ConfigResource.Type.TOPIC, name)
        admin = self._admin()
        described = admin.describe_configs([resource])[resource].result(ADMIN_TIMEOUT_S)
        return {name: str(entry.value) for name, entry in described.items()}

    def delete_records(self, name: str, partition: int, before: int) -> None:
        """Delete the oldest records of a partition, up to an offset."""
        from confluent_kafka import TopicPartition

        admin = self._admin()
        for deleted in admin.delete_records([TopicPartition(name, partition, before)]).values():
            deleted.result(ADMIN_TIMEOUT_S)

    def delete_topic(self, name: str) -> None:
        """Delete a topic and return when it is gone."""
        admin = self._admin()
        admin.delete_topics([name])[name].result(ADMIN_TIMEOUT_S)
        self._await(lambda: name not in admin.list_topics(timeout=5).topics, f"topic {name} did not go")

    def produce(
        self,
        topic: str,
        records: Iterable[tuple[int, Payload, Payload] | tuple[int, Payload, Payload, int]],
    ) -> None:
        """Send records ``(partition, key, value[, timestamp in ms])`` and return when all are acknowledged.

        Per partition they keep their order.
        """
        from confluent_kafka import Producer

        failures: list[str] = []

        def on_delivery(error: Any, _: Any) -> None:
            if error is not None:
                failures.append(str(error))

        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "enable.idempotence": True,
                "linger.ms": 5,
                "delivery.timeout.ms": 60_000,
                "log_level": 2,  # a coordinator that is still loading is no news: the client asks again
            }
        )
        for partition, key, value, *timestamp in records:
            while True:
                try:
                    producer.produce(
                        topic,
                        value,
                        key,
                        partition=partition,
                        on_delivery=on_delivery,
                        timestamp=timestamp[0] if timestamp else 0,  # 0: now
                    )
                    break
                except BufferError:  # the queue is full: let it drain
                    producer.poll(0.1)
            producer.poll(0)
        unsent = producer.flush(60)
        if failures or unsent:
            raise WatersmeetError(
                f"{len(failures) + unsent} records did not reach topic {topic}: {failures[:3]}",
                code="kafka-broker",
            )

    def consume_all(self, topic: str) -> list[Record]:
        """See `consume_all`."""
        return consume_all(self.bootstrap_servers, topic)

    @property
    def _properties(self) -> Path:
        assert self._folder is not None
        return self._folder / "server.properties"

    @property
    def _log(self) -> Path:
        assert self._folder is not None
        return self._folder / "broker.log"

    def _write_properties(self, folder: Path) -> None:
        settings = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@127.0.0.1:{self._controller_port}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://127.0.0.1:{self._port},CONTROLLER://127.0.0.1:{self._controller_port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self._port}",
            "log.dirs": folder / "data",
            "auto.create.topics.enable": "false",
            # event times of any year: retention goes by the records' timestamps
            "log.retention.ms": -1,
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "transaction.state.log.num.partitions": 1,
            "group.initial.rebalance.delay.ms": 0,
            # transactions of clients that are gone end when their time is over, and not a while later
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
            # after a kill the controller takes the broker back only once its old session has ended
            "broker.session.timeout.ms": 3000,
            "broker.heartbeat.interval.ms": 1000,
            # a broker that nothing is asked of does little
            "metadata.max.idle.interval.ms": 0,
        }
        self._properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))

    def _launch(self, jars: Path, main: str, *arguments: str) -> subprocess.Popen[bytes]:
        home = os.environ.get("JAVA_HOME")
        command = [
            str(Path(home, "bin", "java")) if home else "java",
            f"-Xmx{self._heap}",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",  # up sooner, and fast enough
            "-Djava.net.preferIPv4Stack=true",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-cp",
            f"{jars}/*",
            main,
            *arguments,
        ]
        with self._log.open("ab") as log:
            try:
                # a session of its own: Ctrl-C on a job under test is not meant for the broker
                return subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd=self._folder,
                    start_new_session=True,
                )
            except FileNotFoundError as error:
                raise WatersmeetError(
                    "the Kafka broker needs Java, and there is none on the PATH",
                    code="kafka-broker",
                    hint="install Java 17 or newer, or set JAVA_HOME",
                ) from error

    def _await_answer(self) -> None:
        def listening() -> bool:
            if not self.running:
                raise self._failure("went away")
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._port), 1):
                return True
            return False

        self._await(listening, "did not open its port")
        admin = self._admin()

        def answering() -> bool:
            if not self.running:
                raise self._failure("went away")
            return len(admin.list_topics(timeout=2).brokers) == 1

        self._await(answering, "did not answer")

    def _admin(self) -> Any:
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})

    @staticmethod
    def _leaders(admin: Any, topic: str) -> int:
        described = admin.list_topics(timeout=5).topics.get(topic)
        return sum(p.leader >= 0 for p in described.partitions.values()) if described else 0

    def _await(self, condition: Callable[[], bool], complaint: str) -> None:
        """Ask until the condition holds; a question that the broker leaves unanswered is asked again."""
        from confluent_kafka import KafkaException

        deadline = time.monotonic() + self._start_timeout_s
        while True:
            with contextlib.suppress(KafkaException):
                if condition():
                    return
            if time.monotonic() > deadline:
                raise self._failure(complaint)
            time.sleep(0.05)

    def _failure(self, complaint: str) -> WatersmeetError:
        log = self._log.read_text(errors="replace") if self._log.exists() else ""
        words = "\n".join(log.splitlines()[-20:])
        return WatersmeetError(f"the Kafka broker {complaint}; its log ends:\n{words}", code="kafka-broker")


def _free_ports(count: int) -> list[int]:
    """Ports of the loopback interface that nothing listens on now, all different."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
