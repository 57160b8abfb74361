"""What the tests of Kafka share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.kafka import KafkaBroker


@pytest.fixture
def stoppable_broker(kafka_broker: KafkaBroker) -> Iterator[KafkaBroker]:
    """The shared broker, for a test that takes it away. After the test it runs again, with its topics."""
    yield kafka_broker
    kafka_broker.start()
