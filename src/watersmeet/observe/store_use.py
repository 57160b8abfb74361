"""What a tick asked of the store of its state, where that is reached over a network."""

from __future__ import annotations

from dataclasses import dataclass

from watersmeet.plan.explain.wording import size_of


@dataclass(frozen=True)
class StepUse:
    """Store use of a step of a tick, per task.

    Steps are ``ingest``, ``insert/number`` of a node and ``driver``.
    """

    step: str
    fetched_bytes: tuple[int, ...]
    cached_bytes: tuple[int, ...]
    written_bytes: tuple[int, ...]
    requests: tuple[int, ...]


@dataclass(frozen=True)
class StoreUse:
    """``fetched_bytes``: that came from the store; ``cached_bytes``: that were read from a cache instead;
    ``written_bytes``: that went to it; ``requests``: each once, however often it was repeated."""

    fetched_bytes: int
    cached_bytes: int
    written_bytes: int
    requests: int
    steps: tuple[StepUse, ...] = ()

    def words(self) -> str:
        """Format the store use for people.

        >>> StoreUse(3_000_000, 0, 700, 12).words()
        'store: 3.0 MB read, 0 bytes cached, 700 bytes written'
        """
        return (
            f"store: {size_of(self.fetched_bytes)} read, {size_of(self.cached_bytes)} cached, "
            f"{size_of(self.written_bytes)} written"
        )
