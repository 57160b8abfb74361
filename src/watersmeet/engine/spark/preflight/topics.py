"""Whether Kafka brokers answer, and have the topics that a source reads, without Spark and its Java client.

One request of Kafka's protocol (Metadata, version 4, which every broker since 0.11 knows) over a plain
connection; it creates no topic. Brokers that want more than a plain connection are only connected to.
"""

from __future__ import annotations

import re
import socket
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from watersmeet.engine.spark.preflight.patience import BROKERS_S, Patience
from watersmeet.errors import EngineError
from watersmeet.spec.model import Sink, Source
from watersmeet.spec.options.kafka import servers_in, topics_in
from watersmeet.spec.options.kafka_delivery import DeliveryOptions, plain_name

ANSWER_S = 3.0
"""How long one broker may take, connecting and answering."""

KAFKA_PORT = 9092

UNREACHABLE = "kafka-unreachable"

_METADATA, _VERSION = 3, 4
_LARGEST = 64 << 20
_UNKNOWN_TOPIC, _NOT_ALLOWED = 3, 29


_ADDRESS = re.compile(r"(?:[a-zA-Z][\w+.-]*://)?\[?(?P<host>[^\[\]]*?)\]?(?::(?P<port>\d{1,5}))?")
"""Of a broker, as Kafka's clients take it."""


def is_plain(options: Mapping[str, str]) -> bool:
    """Whether the brokers take plain connections, so that they can be asked."""
    protocols = (value for name, value in options.items() if plain_name(name) == "security.protocol")
    return next(protocols, "PLAINTEXT").strip().upper() == "PLAINTEXT"


def check_topics(source: Source, patience: Patience | None = None) -> None:
    """Ask the brokers of ``source``, one after the other, until one answers.

    Args:
        patience: None: they are asked once, and one that takes too long to answer is away. Else that is left
            to the run.

    Raises:
        EngineError: none answers, or a topic is not there, or may not be read.
    """
    what = f'Kafka source "{source.name}"'
    _check(what, source.options, topics_in(source.options), patience, BROKERS_S, UNREACHABLE)


def check_brokers(sink: Sink, patience: Patience, limit_s: float) -> None:
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
    patience: Patience | None,
    limit_s: float,
    code: str,
) -> None:
    def ask() -> None:
        _ask(what, options, topics, code, is_certain=patience is None)

    servers = ", ".join(servers_in(options))
    (patience or Patience()).ask(ask, code, limit_s, f"a broker at {servers} ({what})")


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
                codes = _asked(to, topics) if is_plain(options) else {}
        except TimeoutError as error:
            if is_connected and not is_certain:
                return  # it may be slow
            reason = str(error)
        except (OSError, ValueError, struct.error, OverflowError) as error:
            reason = (
                getattr(error, "strerror", None) or str(error) or ("the server there is not a Kafka broker")
            )
        else:
            _judge(what, topics, codes, server)
            return
    raise EngineError(
        f"{what}: no broker answers at {', '.join(servers)}: {reason}",
        code=code,
        hint="check 'bootstrap.servers' and 'kafka.security.protocol', and that the broker is running",
    )


def _address(server: str) -> tuple[str, int]:
    """Host and port.

    >>> _address("PLAINTEXT://[::1]:9093"), _address("kafka")
    (('::1', 9093), ('kafka', 9092))
    """
    match = _ADDRESS.fullmatch(server)
    if match is None:
        raise ValueError(f"{server} does not have the form host:port")
    return match["host"], int(match["port"] or KAFKA_PORT)


def _judge(what: str, topics: Sequence[str], codes: Mapping[str, int], server: str) -> None:
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


def _asked(to: socket.socket, topics: Sequence[str]) -> dict[str, int]:
    """Per topic the broker's error code; 0: it is there."""
    body = struct.pack(">hhi", _METADATA, _VERSION, 1) + _text("watersmeet")
    body += struct.pack(">i", len(topics)) + b"".join(map(_text, topics)) + b"\x00"
    until = time.monotonic() + ANSWER_S
    to.sendall(struct.pack(">i", len(body)) + body)
    (size,) = struct.unpack(">i", _received(to, 4, until))
    if not 0 <= size <= _LARGEST:
        raise ValueError("the server there is not a Kafka broker")
    topics_told = dict(_topics_in(_Answer(_received(to, size, until))))
    if not set(topics) <= set(topics_told):
        raise ValueError("the server there is not a Kafka broker")
    return topics_told


def _received(to: socket.socket, count: int, until: float) -> bytes:
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


def _text(written: str) -> bytes:
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
        """NULL is empty."""
        size = max(0, self.number("h"))
        self.skip(size)
        return self.data[self.at - size : self.at].decode("utf-8", "replace")


def _topics_in(answer: _Answer) -> Iterator[tuple[str, int]]:
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
