"""Check before Java starts that brokers, registries and databases answer."""

from __future__ import annotations

import re
import socket
import struct
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Event
from typing import Any

from watersmeet.errors import EngineError, SpecError, WatersmeetError
from watersmeet.runtime.records.schema_registry import NoSchema, Registry, UnknownSchema
from watersmeet.spec.model import Sink, Source
from watersmeet.spec.options.kafka import servers_in, topics_in
from watersmeet.spec.options.kafka_delivery import DeliveryOptions, plain_name
from watersmeet.spec.options.records import SCHEMA, misfits, value_columns
from watersmeet.spec.records.avro import Misfit, fit_avro, parse_avro

# Servers that do not answer are asked again, for as long as the run itself would wait for them.

BROKERS_S = 15.0
"""Seconds to wait for Kafka brokers before a run."""
DATABASE_S = 15.0
"""Seconds to wait for a database that is read as a table."""
PAUSE_S = 0.5


def waiting_notice(server: str, limit_s: float) -> str:
    """Return the notice for a server that is contacted repeatedly."""
    return f"waiting up to {limit_s:.0f} s for {server}"


def _ignore_notice(notice: str) -> None:
    """Ignore a notice, for a check whose caller waits for its result."""


@dataclass(frozen=True)
class WaitPolicy:
    """Policy for waiting until servers answer.

    ``waits``: False means no waiting. ``given_up`` and ``stop``: each of these events ends all waiting.
    ``say`` receives a notice that names the server.
    """

    waits: bool = False
    given_up: Event = field(default_factory=Event)
    stop: Event = field(default_factory=Event)
    say: Callable[[str], None] = _ignore_notice

    def ask(self, ask: Callable[[], None], code: str, limit_s: float, server: str) -> None:
        """Call ``ask`` until it raises no error of this code, for ``limit_s`` seconds at most.

        Args:
            server: what is waited for, for people.

        Raises:
            WatersmeetError: what ``ask`` raised last.
        """
        until = time.monotonic() + (limit_s if self.waits else 0)
        is_told = False
        while True:
            try:
                ask()
                return
            except EngineError as error:
                left_s = until - time.monotonic()
                if error.code != code or left_s <= 0 or self.given_up.is_set() or self.stop.is_set():
                    raise
                if not is_told:
                    self.say(waiting_notice(server, limit_s))
                    is_told = True
                self.given_up.wait(min(PAUSE_S, left_s))


# Whether the server of a table that is read by JDBC takes connections, without Spark and its driver.

CONNECT_S = 10.0
"""Seconds for one connection, as PostgreSQL's driver has it."""
DATABASE_UNREACHABLE = "database-unreachable"

_PORTS = {"postgresql": 5432, "mysql": 3306, "mariadb": 3306}
_URL = re.compile(r"jdbc:(?P<kind>postgresql|mysql|mariadb)://(?P<hosts>[^/?;@()=]*)(/.*)?", re.IGNORECASE)
_HOST = re.compile(r"(?:\[(?P<address>[^\]]*)\]|(?P<name>[^:\[\]]*))(?::(?P<port>\d{1,5}))?")
_SOCKET_OPTIONS = ("socketfactory", "socks", "localsocket", "pipe")
"""In options of drivers that connect in another way than to host and port."""


def check_database(source: Source, patience: WaitPolicy) -> None:
    """Connect to the servers that a table's URL names, one after the other, until one takes the connection.

    URLs of other databases, and drivers that connect in another way, are left to Spark.

    Raises:
        EngineError: none does.
    """
    servers = list_database_servers(source)
    if servers:
        where = f'a database at {_format_servers(servers)} (table "{source.name}")'
        patience.ask(lambda: _connect(source.name, servers), DATABASE_UNREACHABLE, DATABASE_S, where)


def list_database_servers(source: Source) -> list[tuple[str, int]]:
    """Return hosts and ports of the table's URL; none if it cannot be known to what its driver connects."""
    said = " ".join(f"{name}={value}" for name, value in source.options.items()).lower()
    url = next((value for name, value in source.options.items() if name.lower() == "url"), "").strip()
    match = _URL.fullmatch(url)
    if match is None or any(way in said for way in _SOCKET_OPTIONS):
        return []
    hosts = [_HOST.fullmatch(host.strip()) for host in match["hosts"].split(",")]
    default = _PORTS[match["kind"].lower()]
    servers = [
        (host["address"] or host["name"] or "localhost", int(host["port"] or default))
        for host in hosts
        if host is not None
    ]
    return servers if len(servers) == len(hosts) else []


def _format_servers(servers: list[tuple[str, int]]) -> str:
    return ", ".join(f"{host}:{port}" for host, port in servers)


def _connect(table: str, servers: list[tuple[str, int]]) -> None:
    reason = ""
    for server in servers:
        try:
            socket.create_connection(server, CONNECT_S).close()
        except (OSError, OverflowError, ValueError) as error:  # ValueError: a name that cannot be one
            reason = getattr(error, "strerror", None) or str(error)
        else:
            return
    raise EngineError(
        f'table "{table}": no database answers at {_format_servers(servers)}: {reason}',
        code=DATABASE_UNREACHABLE,
        hint="check the host and port in 'url', and that the server is running and reachable",
    )


# Whether a schema registry answers whoever reads, and what it says of a topic, without Spark.
#
# What is asked is the newest schema of the topic's values, by the name that producers of Confluent's
# libraries give it unless they are told otherwise (``TOPIC-value``). That there is none by that name is
# no error: records name their schemas by numbers.

PATIENCE_S = 5.0
"""How long it is asked again before a job starts."""


def registry_problems(source: Source, registry: Registry, *, thorough: bool) -> Iterator[WatersmeetError]:
    """Yield the problems of a schema registry.

    If ``thorough``, also yield problems of the newest schemas of the source's topics: records with such
    a
    schema would be broken. Existing records may have other schemas.
    """
    asked = replace(registry, patience_s=PATIENCE_S, unknown_is_broken=True)
    for topic in topics_in(source.options) if thorough else topics_in(source.options)[:1]:
        try:
            answer = _load_newest_schema(asked, topic)
            if thorough and answer is not None:
                yield from _misfits(source, asked, topic, answer)
        except EngineError as error:
            message = f'Kafka source "{source.name}": {error.message}'
            yield EngineError(
                message,
                code=error.code,
                hint="check 'schema.registry', 'schema.registry.user' and 'schema.registry.password'",
            )
            return


def list_registry_notes(source: Source, registry: Registry) -> Iterator[str]:
    """Yield a note for each topic whose name the registry has no schema for."""
    asked = replace(registry, patience_s=PATIENCE_S, unknown_is_broken=True)
    for topic in topics_in(source.options):
        if _load_newest_schema(asked, topic) is None:
            yield (
                f'the registry has no schema "{topic}-value", so the job checks records against the'
                " columns only when it runs"
            )


def _load_newest_schema(registry: Registry, topic: str) -> dict[str, Any] | None:
    try:
        subject = urllib.parse.quote(f"{topic}-value", safe="")
        return registry.asked(f"/subjects/{subject}/versions/latest")
    except UnknownSchema:
        return None


def _misfits(
    source: Source, registry: Registry, topic: str, answer: dict[str, Any]
) -> Iterator[WatersmeetError]:
    what = f'Kafka source "{source.name}": the schema of topic "{topic}" is now {answer.get("id")}'
    try:
        written = registry.schema(int(answer["id"]))
        fit_avro(written, value_columns(source), parse_avro(source.options[SCHEMA]))
    except Misfit as misfit:
        yield from misfits(what, misfit.problems)
    except (NoSchema, KeyError, TypeError, ValueError):
        yield SpecError(
            f"{what}, which is not an Avro schema",
            code="wrong-types",
            hint="check which producer writes to the topic and in which format",
        )


# Whether Kafka brokers answer, and have the topics that a source reads, without Spark and its Java
# client.
#
# One request of Kafka's protocol (Metadata, version 4, which every broker since 0.11 knows) over a plain
# connection; it creates no topic. Brokers that want more than a plain connection are only connected to.

ANSWER_S = 3.0
"""How long one broker may take, connecting and answering."""

KAFKA_PORT = 9092

KAFKA_UNREACHABLE = "kafka-unreachable"

_METADATA, _VERSION = 3, 4
_LARGEST = 64 << 20
_UNKNOWN_TOPIC, _NOT_ALLOWED = 3, 29


_ADDRESS = re.compile(r"(?:[a-zA-Z][\w+.-]*://)?\[?(?P<host>[^\[\]]*?)\]?(?::(?P<port>\d{1,5}))?")
"""Of a broker, as Kafka's clients take it."""


def is_plain(options: Mapping[str, str]) -> bool:
    """Return True if the brokers accept plain connections, so this process can contact them."""
    protocols = (value for name, value in options.items() if plain_name(name) == "security.protocol")
    return next(protocols, "PLAINTEXT").strip().upper() == "PLAINTEXT"


def check_topics(source: Source, patience: WaitPolicy | None = None) -> None:
    """Check the topics of ``source`` with its brokers, one after the other, until one answers.

    Args:
        patience: None: contact each broker once, and treat one that answers too slowly as unreachable.
            Otherwise that is left to the run.

    Raises:
        EngineError: no broker answers, or a topic does not exist or may not be read.
    """
    what = f'Kafka source "{source.name}"'
    _check(what, source.options, topics_in(source.options), patience, BROKERS_S, KAFKA_UNREACHABLE)


def check_brokers(sink: Sink, patience: WaitPolicy, limit_s: float) -> None:
    """Ask the brokers of ``sink``, whose topic may be made by its first record.

    Args:
        limit_s: maximum seconds to wait for them, if the sink's option says no less.

    Raises:
        EngineError: none answers.
    """
    limit_s = min(limit_s, DeliveryOptions.of(sink.options).max_wait)
    _check(f'Kafka sink "{sink.name}"', sink.options, [], patience, limit_s, "sink-unreachable")


def _check(
    what: str,
    options: Mapping[str, str],
    topics: Sequence[str],
    patience: WaitPolicy | None,
    limit_s: float,
    code: str,
) -> None:
    def ask() -> None:
        _ask(what, options, topics, code, is_certain=patience is None)

    servers = ", ".join(servers_in(options))
    (patience or WaitPolicy()).ask(ask, code, limit_s, f"a broker at {servers} ({what})")


def _ask(
    what: str, options: Mapping[str, str], topics: Sequence[str], code: str, *, is_certain: bool
) -> None:
    servers = servers_in(options)
    reason = "'bootstrap.servers' is empty"
    for server in servers:
        is_connected = False
        try:
            with socket.create_connection(_address(server), ANSWER_S) as to:
                is_connected = True
                codes = _request_topic_codes(to, topics) if is_plain(options) else {}
        except TimeoutError as error:
            if is_connected and not is_certain:
                return  # it may be slow
            reason = str(error)
        except (OSError, ValueError, struct.error, OverflowError) as error:
            reason = (
                getattr(error, "strerror", None) or str(error) or ("the server there is not a Kafka broker")
            )
        else:
            _check_codes(what, topics, codes, server)
            return
    raise EngineError(
        f"{what}: no broker answers at {', '.join(servers)}: {reason}",
        code=code,
        hint="check 'bootstrap.servers' and 'kafka.security.protocol', and that the broker is running",
    )


def _address(server: str) -> tuple[str, int]:
    """Parse a server's host and port.

    >>> _address("PLAINTEXT://[::1]:9093"), _address("kafka")
    (('::1', 9093), ('kafka', 9092))
    """
    match = _ADDRESS.fullmatch(server)
    if match is None:
        raise ValueError(f"{server} does not have the form host:port")
    return match["host"], int(match["port"] or KAFKA_PORT)


def _check_codes(what: str, topics: Sequence[str], codes: Mapping[str, int], server: str) -> None:
    for topic in topics:
        code = codes.get(topic, 0)
        if code == _NOT_ALLOWED:
            raise EngineError(
                f'{what}: the job\'s Kafka user may not read the topic "{topic}"',
                code="topic-not-allowed",
                hint="grant the user the rights to describe and read the topic",
            )
        if code == _UNKNOWN_TOPIC:
            raise EngineError(
                f'{what}: the topic "{topic}" does not exist at {server}',
                code="topic-missing",
                hint="create it, or check its name and 'bootstrap.servers'",
            )


def _request_topic_codes(to: socket.socket, topics: Sequence[str]) -> dict[str, int]:
    """Request the broker's error code for each topic; 0 if the topic exists."""
    body = struct.pack(">hhi", _METADATA, _VERSION, 1) + _encode_text("watersmeet")
    body += struct.pack(">i", len(topics)) + b"".join(map(_encode_text, topics)) + b"\x00"
    until = time.monotonic() + ANSWER_S
    to.sendall(struct.pack(">i", len(body)) + body)
    (size,) = struct.unpack(">i", _receive_bytes(to, 4, until))
    if not 0 <= size <= _LARGEST:
        raise ValueError("the server there is not a Kafka broker")
    topics_told = dict(_read_topic_codes(_Answer(_receive_bytes(to, size, until))))
    if not set(topics) <= set(topics_told):
        raise ValueError("the server there is not a Kafka broker")
    return topics_told


def _receive_bytes(to: socket.socket, count: int, until: float) -> bytes:
    received = b""
    while len(received) < count:
        left = until - time.monotonic()
        if left <= 0:
            raise TimeoutError("the server there is not a Kafka broker")
        to.settimeout(left)
        piece = to.recv(count - len(received))
        if not piece:
            raise ValueError("it closes the connection; check 'kafka.security.protocol'")
        received += piece
    return received


def _encode_text(written: str) -> bytes:
    encoded = written.encode()
    return struct.pack(">h", len(encoded)) + encoded


@dataclass
class _Answer:
    """A reader of Kafka's fields."""

    data: bytes
    at: int = 0

    def number(self, kind: str) -> int:
        (number,) = struct.unpack_from(f">{kind}", self.data, self.at)
        self.at += struct.calcsize(kind)
        return int(number)

    def skip(self, size: int) -> None:
        if not 0 <= size <= len(self.data) - self.at:
            raise ValueError("the server there is not a Kafka broker")
        self.at += size

    def text(self) -> str:
        """Read a text; NULL is read as ""."""
        size = max(0, self.number("h"))
        self.skip(size)
        return self.data[self.at - size : self.at].decode("utf-8", "replace")


def _read_topic_codes(answer: _Answer) -> Iterator[tuple[str, int]]:
    answer.number("i")  # correlation
    answer.number("i")  # throttled, ms
    for _ in range(answer.number("i")):  # brokers: id, host, port, rack
        answer.number("i"), answer.text(), answer.number("i"), answer.text()
    answer.text(), answer.number("i")  # cluster, controller
    for _ in range(answer.number("i")):
        code, name = answer.number("h"), answer.text()
        answer.number("b")  # internal
        for _ in range(answer.number("i")):  # partitions: code, number, leader, replicas, those in sync
            answer.number("h"), answer.number("i"), answer.number("i")
            for _ in range(2):
                answer.skip(4 * answer.number("i"))
        yield name, code
