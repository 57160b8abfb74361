"""Take a broker away from a running job for a while."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from tests.support.kafka import KafkaBroker

How = Literal["hung", "stopped", "killed"]


@contextmanager
def away(broker: KafkaBroker, how: How) -> Iterator[None]:
    """Within the block the broker answers nobody. A hung one is back soonest: its process goes on."""
    if how == "hung":
        os.kill(broker.process_id, signal.SIGSTOP)
    elif how == "stopped":
        broker.stop()
    else:
        broker.kill()
    try:
        yield
    finally:
        if how == "hung":
            os.kill(broker.process_id, signal.SIGCONT)
        else:
            broker.start()
