"""Topics and transactional ids that a job must keep apart: control topics are for marks alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations

from watersmeet.errors import SpecError
from watersmeet.spec.model import Sink, Source
from watersmeet.spec.options.kafka import SINK_OURS, servers_in, topics_in
from watersmeet.spec.options.kafka_delivery import DeliveryOptions, client_settings, is_exactly_once


def mixed_topics(sinks: Sequence[Sink], sources: Iterable[Source]) -> Iterator[SpecError]:
    """A problem for each control topic that is written to or read from otherwise, and for every two sinks of
    one transactional id, as far as servers are named alike. ``sinks``: whose options are right."""
    sinks = [sink for sink in sinks if sink.traits.log]
    marking = [sink for sink in sinks if is_exactly_once(sink.options)]
    endpoints: list[Sink | Source] = [*sinks, *(source for source in sources if source.traits.log)]
    for sink in marking:
        control = DeliveryOptions.of(sink.options).control_topic
        for other in endpoints:
            if control in topics_in(other.options) and _meet(sink, other):
                does = "writes to" if isinstance(other, Sink) else "reads"
                yield SpecError(
                    f'"{other.name}" {does} the topic "{control}", which is the control topic of'
                    f' "{sink.name}"',
                    code="control-topic",
                    hint="use another topic, or set 'control.topic' = '…': the control topic is only for"
                    " records about ticks",
                )
    for one, other in combinations(marking, 2):
        named = _transactional_id(one)
        if named and named == _transactional_id(other) and _meet(one, other):
            yield SpecError(
                f'"{one.name}" and "{other.name}" have the same transactional.id, "{named}", so each'
                " would fence the other",
                code="shared-transactional-id",
                hint="remove 'transactional.id', or give each sink its own",
            )


def _meet(one: Sink, other: Sink | Source) -> bool:
    return not set(servers_in(one.options)).isdisjoint(servers_in(other.options))


def _transactional_id(sink: Sink) -> str:
    return client_settings(sink.options, SINK_OURS).get("transactional.id", "").strip()
