"""The phases of a tick, to be replaced by name: a run is killed before one of them, say."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from watersmeet.runtime.coordinator.tick_phases import ConcludedTick, RunningTick, StartedTick

PHASES: dict[str, type] = {
    "advance": StartedTick,
    "node_task": RunningTick,
    "settle": RunningTick,
    "conclude": RunningTick,
    "commit": ConcludedTick,
}
"""Of each the class whose method it is."""


@contextmanager
def replace_phase(phase: str, method: Callable[..., Any]) -> Iterator[None]:
    """Within, ``method`` runs in the place of the phase's."""
    with patch.object(PHASES[phase], phase, method):
        yield
