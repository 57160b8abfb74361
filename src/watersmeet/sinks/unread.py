"""What is said where what a sink has written cannot be read again."""

from __future__ import annotations

from watersmeet.errors import EngineError
from watersmeet.spec.model import Sink


def unread(sink: Sink, said: str, what: str = "table") -> EngineError:
    """What is said where what a sink has written cannot be read."""
    first = next(iter(said.splitlines()), "no reason was given")
    return EngineError(
        f'"{sink.name}": its {what} cannot be read: {first}',
        code="not-compared",
        hint="check that it exists and is reachable from this machine",
    )
