"""Whether a Kafka broker answers and has the topics that a source reads, without Spark and its Java client.

One request of Kafka's protocol (Metadata, version 4, which every broker since 0.11 knows) over a plain
connection; it creates no topic. Brokers that want more than a plain connection are only connected to.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass

from watersmeet.errors import EngineError
from watersmeet.spec.model import Source
from watersmeet.spec.options.kafka import servers_in, topics_in

ANSWER_S = 3.0
"""How long one broker may take, connecting and answering."""

KAFKA_PORT = 9092

_METADATA, _VERSION = 3, 4
_LARGEST = 64 << 20
_UNKNOWN_TOPIC, _NOT_ALLOWED = 3, 29


def is_plain(source: Source) -> bool:
    """Whether its brokers take plain connections, so that they can be asked."""
    protocol = next(
        (
            v
            for k, v in source.options.items()
            if k.lower() in ("kafka.security.protocol", "security.protocol")
        ),
        "PLAINTEXT",
    )
    return protocol.strip().upper() == "PLAINTEXT"


def check_topics(source: Source) -> None:
    """Ask the brokers of ``source``, one after the other, until one answers.

    Raises:
        EngineError: none answers, or a topic is not there, or may not be read.
    """
    servers = servers_in(source.options)
    why = "none is named"
    for server in servers:
        host, _, port = server.rpartition(":")
        try:
            with socket.create_connection((host or port, int(port) if host else KAFKA_PORT), ANSWER_S) as to:
                codes = _asked(to, topics_in(source.options)) if is_plain(source) else {}
        except (OSError, ValueError, struct.error, OverflowError) as error:
            why = str(error) or "it does not answer as Kafka does"
            continue
        _judge(source, codes, server)
        return
    raise EngineError(
        f'Kafka source "{source.name}": no broker answers at {", ".join(servers)}: {why}',
        code="broker-away",
        hint="check 'bootstrap.servers', whether the broker runs, and 'kafka.security.protocol'",
    )


def _judge(source: Source, codes: dict[str, int], server: str) -> None:
    for topic in topics_in(source.options):
        code = codes.get(topic, 0)
        if code == _NOT_ALLOWED:
            raise EngineError(
                f'Kafka source "{source.name}": the topic "{topic}" may not be read',
                code="topic-not-allowed",
                hint="ask for the right to describe and read it",
            )
        if code == _UNKNOWN_TOPIC:
            raise EngineError(
                f'Kafka source "{source.name}": there is no topic "{topic}" at {server}',
                code="topic-missing",
                hint="create it, or check its name and 'bootstrap.servers'",
            )


def _asked(to: socket.socket, topics: list[str]) -> dict[str, int]:
    """Per topic the broker's error code; 0: it is there."""
    body = struct.pack(">hhi", _METADATA, _VERSION, 1) + _text("watersmeet")
    body += struct.pack(">i", len(topics)) + b"".join(map(_text, topics)) + b"\x00"
    until = time.monotonic() + ANSWER_S
    to.sendall(struct.pack(">i", len(body)) + body)
    (size,) = struct.unpack(">i", _received(to, 4, until))
    if not 0 <= size <= _LARGEST:
        raise ValueError("it does not answer as Kafka does")
    topics_told = dict(_topics_in(_Answer(_received(to, size, until))))
    if not set(topics) <= set(topics_told):
        raise ValueError("it does not answer as Kafka does")
    return topics_told


def _received(to: socket.socket, count: int, until: float) -> bytes:
    received = b""
    while len(received) < count:
        left = until - time.monotonic()
        if left <= 0:
            raise TimeoutError("it does not answer as Kafka does")
        to.settimeout(left)
        piece = to.recv(count - len(received))
        if not piece:
            raise ValueError("it ends the connection: does it want another 'kafka.security.protocol'?")
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
            raise ValueError("it does not answer as Kafka does")
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
