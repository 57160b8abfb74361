"""librdkafka for sinks, and for who reads topics again: its classes, what errors mean, words for people."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from watersmeet.errors import EngineError, SpecError
from watersmeet.spec.secrets import Secret, public

LOG = logging.getLogger("watersmeet.sinks.kafka")

_LIBRARY_LOG = LOG.getChild("librdkafka")
_LIBRARY_LOG.setLevel(logging.CRITICAL + 1)  # all that matters of what it says comes as errors, too

_QUEUE = "queue.buffering.max.kbytes"
_LARGEST = "1048576"
"""Of a record, in bytes: as Kafka's own client has it."""

_PERMANENT_ERRORS = frozenset({
    "MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE", "INVALID_RECORD", "INVALID_TIMESTAMP",
    "TOPIC_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    "GROUP_AUTHORIZATION_FAILED", "UNKNOWN_TOPIC_OR_PART", "UNKNOWN_TOPIC", "_UNKNOWN_TOPIC",
    "_UNKNOWN_PARTITION", "TOPIC_EXCEPTION", "INVALID_TRANSACTION_TIMEOUT", "POLICY_VIOLATION",
    "_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED", "UNSUPPORTED_SASL_MECHANISM",
    "ILLEGAL_SASL_STATE", "UNSUPPORTED_VERSION", "UNSUPPORTED_FOR_MESSAGE_FORMAT", "_INVALID_ARG", "_SSL",
    "_UNSUPPORTED_FEATURE", "_UNSUPPORTED_COMPRESSION", "UNSUPPORTED_COMPRESSION_TYPE", "_NOT_IMPLEMENTED",
    "INVALID_CONFIG", "INVALID_REPLICATION_FACTOR", "INVALID_PARTITIONS", "SECURITY_DISABLED",
})  # fmt: skip
"""Errors that stay when the same is tried again. All others may pass."""

_RETRYABLE_TOPIC_ERRORS = frozenset({
    "UNKNOWN_TOPIC_OR_PART", "UNKNOWN_TOPIC", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION",
})  # fmt: skip
"""Those among them that brokers give of a topic that was made a moment ago, until all of them know it."""

_QUEUE_KBYTES = 64 << 10
"""Of records that are on their way the client holds so many, unless it is said otherwise; librdkafka's own
default is a gigabyte, for each sink."""

_HINTS = {
    "MSG_SIZE_TOO_LARGE": "leave the row out, or let it through: 'max.request.size' of the sink and"
    " max.message.bytes of the topic",
    "RECORD_LIST_TOO_LARGE": "say a smaller 'batch.size', or set max.message.bytes of the topic",
    "INVALID_RECORD": "a topic that is compacted takes no records without a key: name one, 'key' = 'column'",
    "TOPIC_AUTHORIZATION_FAILED": "let the user write to the topic, and read, write and"
    " describe the control topic",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": "let the user write to the transactional id; which one it is"
    " says 'transactional.id'",
    "GROUP_AUTHORIZATION_FAILED": "let the user read the group watersmeet-control, by which the control"
    " topic is read",
    "INVALID_TRANSACTION_TIMEOUT": "'transaction.timeout.ms' is more than the brokers allow"
    " (transaction.max.timeout.ms)",
    "UNSUPPORTED_VERSION": "transactions need brokers since 2.5; or say 'delivery' = 'at-least-once'",
}


def library() -> Any:
    """Import and return the Kafka client library.

    Raises:
        EngineError: The library is not installed.
    """
    try:
        import confluent_kafka
    except ImportError:
        raise EngineError(
            "Kafka sinks need a client library that is not installed",
            code="missing-library",
            hint="run `pip install 'watersmeet[kafka]'` on the machine of the driver, or set 'delivery'"
            " = 'at-least-once', which needs no library",
        ) from None
    return confluent_kafka


class Client:
    """Makes clients of one cluster, and remembers what they said last.

    Args:
        settings: of librdkafka; secrets among them are never shown.
        sink: its name, for messages; ``kind``: what it is, if it is none.
    """

    def __init__(self, settings: Mapping[str, str], sink: str, kind: str = "sink") -> None:
        self._settings, self.sink, self._kind = dict(settings), sink, kind
        self._said: Any = None
        self._admin: Any = None

    def producer(self, **more: Any) -> Any:
        largest = self._settings.get("message.max.bytes", _LARGEST)
        more = {**more, "message.max.bytes": largest}
        if _QUEUE not in self._settings:  # there is room for two records at least
            needed = 2 * int(largest) // 1024 if str(largest).isdigit() else 0
            more[_QUEUE] = str(max(_QUEUE_KBYTES, needed))
        return self._create_client(library().Producer, more)

    def consumer(self, **more: Any) -> Any:
        of_producers = (
            "acks", "batch.size", "compression.type", "delivery.timeout.ms", "linger.ms", _QUEUE,
            "queue.buffering.max.messages",
        )  # fmt: skip
        return self._create_client(library().Consumer, more, without=of_producers)

    def reader(self, **more: Any) -> Any:
        """Create a consumer of committed records that starts at assigned offsets.

        The consumer also reports the ends of partitions.
        """
        return self.consumer(**{
            "group.id": "watersmeet-control",  # what users let in; nothing is committed to it
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 20,
            "auto.offset.reset": "error",
            **more,
        })  # fmt: skip

    def admin(self) -> Any:
        """Return the admin client that all requests share."""
        if self._admin is None:
            from confluent_kafka.admin import AdminClient

            self._admin = self._create_client(AdminClient, {})
        return self._admin

    def close(self) -> None:
        """Close what stays open."""
        self._admin = None

    def _create_client(
        self, kind: Callable[..., Any], more: Mapping[str, Any], without: Sequence[str] = ()
    ) -> Any:
        left_out = {*without, *(() if "transactional.id" in more else _OF_TRANSACTIONS)}
        given = {name: str(value) for name, value in self._settings.items() if name not in left_out}
        given.setdefault("client.id", "watersmeet")
        try:
            return kind({**given, **more, "error_cb": self._on_client_error}, logger=_LIBRARY_LOG)
        except (library().KafkaException, ValueError, TypeError) as error:
            raise SpecError(
                f'Kafka {self._kind} "{self.sink}": the Kafka client rejects its options:'
                f" {self.words(error)}",
                code="wrong-option",
                hint="use options of librdkafka for exactly-once delivery, or 'delivery' ="
                " 'at-least-once' with the Java client",
            ) from None

    def forget(self) -> None:
        """Drop the client's last recorded error."""
        self._said = None

    @property
    def is_refused(self) -> bool:
        """True if brokers reported a permanent error, such as an unknown user."""
        return self._said is not None and self._said.name() in _PERMANENT_ERRORS

    def listen(self) -> None:
        """Poll the client for errors that it reports outside of results."""
        if self._admin is not None:
            self._admin.poll(0)

    def _on_client_error(self, error: Any) -> None:
        """Record an error that the client reports outside of results, such as a failed login."""
        if self._said is None or error.name() in _PERMANENT_ERRORS:
            self._said = error

    def refusal(
        self, error: BaseException, failed: Sequence[Any] = (), *, soon: bool = False
    ) -> EngineError | None:
        """Return the EngineError for a permanent error; None if a retry may succeed.

        Args:
            error: The exception.
            failed: Errors of records that were not delivered.
            soon: True if the topic may be so new that some brokers do not know it yet.
        """
        for one in (*failed, _error_in(error), self._said):
            if (
                one is not None
                and one.name() in _PERMANENT_ERRORS
                and not (soon and one.name() in _RETRYABLE_TOPIC_ERRORS)
            ):
                return EngineError(
                    f'rows could not be sent (sink "{self.sink}"): {self.words(one)}',
                    code="sink-refused",
                    hint=_HINTS.get(one.name(), "put right what the brokers say")
                    + "; then run again: nothing of the tick is visible, and it is repeated",
                )
        return None

    def words(self, error: Any) -> str:
        """Format an error in one line, without secrets."""
        one = _error_in(error)
        text = " ".join(str(error if one is None else one.str()).split())
        for name, value in self._settings.items():
            is_secret = isinstance(value, Secret) or public(name, value) != value
            if is_secret and len(value) > 2:
                text = text.replace(str(value), "***")
        return text

    def last_words(self, error: BaseException) -> str:
        """Format an error in one line, without secrets, and add the client's recorded error.

        Clears the recorded error.
        """
        said, text = self._said, self.words(error)
        self._said = None
        return text if said is None or self.words(said) in text else f"{text} ({self.words(said)})"


_OF_TRANSACTIONS = (
    "transactional.id", "transaction.timeout.ms", "enable.idempotence", "message.max.bytes",
    "max.in.flight.requests.per.connection",
)  # fmt: skip


def _error_in(error: Any) -> Any:
    """Return the library's error inside an exception; None if there is none."""
    if isinstance(error, library().KafkaError):
        return error
    if isinstance(error, library().KafkaException) and error.args:
        return error.args[0]
    return None
