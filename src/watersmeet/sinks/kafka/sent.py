"""A Kafka topic: at least once. Rows leave with ``write``, by Spark's tasks and client; a repeated tick sends
them again.

With ``id.header`` each record has an id in a header: INSERT, tick, a digest of key and value, and
which of equal ones it is. It is the same when the tick is repeated.
"""

from __future__ import annotations

from watersmeet.sinks.base import Frame, KeyedRecords, Schema, Topic, WithoutParts
from watersmeet.sinks.kafka.records import Records
from watersmeet.sinks.part_mark import Identity
from watersmeet.spec.model import Sink as SinkSpec
from watersmeet.spec.options.kafka import SINK_OURS
from watersmeet.spec.options.kafka_delivery import DeliveryOptions


class SentSink(WithoutParts):
    """See the module."""

    idempotent = False
    tells_rows = False

    def __init__(self, spec: SinkSpec) -> None:
        self._records = Records(spec)
        self._header = DeliveryOptions.of(spec.options).id_header
        self._settings = {
            name if name.startswith("kafka.") else f"kafka.{name}": value
            for name, value in spec.options.items()
            if name not in SINK_OURS
        }

    @property
    def appends_to(self) -> Topic:
        plain = {name.removeprefix("kafka."): value for name, value in self._settings.items()}
        return Topic(self._records.topic, tuple(sorted(plain.items())))

    @property
    def keyed(self) -> KeyedRecords | None:
        return self._records.keyed

    def prepare(self, schema: Schema, owner: str | None = None) -> None:
        self._records.check(schema)

    def write(self, frame: Frame, insert: str, tick: int, attempt: str) -> None:
        records = self._records.of(frame)
        if self._header is not None:
            records = records.selectExpr("*", self._headers(records.columns, insert, tick))
        writer = records.write.format("kafka").options(**self._settings)
        writer.option("topic", self._records.topic).save()

    def _headers(self, columns: list[str], insert: str, tick: int) -> str:
        """The column of headers, as Spark SQL."""
        parts = [f"coalesce(md5(CAST({name} AS BINARY)), '')" for name in columns]
        digest = f"md5(CAST(concat_ws(' ', {', '.join(parts)}) AS BINARY))"
        names = ", ".join(columns)
        # By a key there is one record of each; else equal ones are told apart by a number.
        nth = "1" if self.keyed else f"row_number() OVER (PARTITION BY {names} ORDER BY {names})"
        row_id = f"concat_ws(' ', {_text(insert)}, '{tick}', {digest}, {nth})"
        assert self._header is not None
        return f"array(struct({_text(self._header)} AS key, CAST({row_id} AS BINARY) AS value)) AS headers"

    def staged_rows(self, insert: str, tick: int, attempt: str) -> int:
        raise NotImplementedError("rows are sent, not staged")

    def publish(self, insert: str, tick: int, attempt: str, identity: Identity) -> bool:
        """Nothing: the records are out, and there is no part to look at."""
        return False

    def discard(self, attempt: str) -> None:
        """Nothing: records that are out stay out."""


def _text(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
