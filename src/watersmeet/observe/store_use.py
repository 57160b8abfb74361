"""What a tick asked of the store of its state, where that is reached over a network."""

from __future__ import annotations

from dataclasses import dataclass

_UNITS = ("B", "KB", "MB", "GB", "TB")


@dataclass(frozen=True)
class StepUse:
    """Of a step of a tick, per task: ``ingest``, ``insert/number`` of a node, ``driver``."""

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
        """For people.

        >>> StoreUse(3 << 20, 0, 700, 12).words()
        'store: 3.0 MB read, 0 B cached, 700 B written'
        """
        return (
            f"store: {_shown(self.fetched_bytes)} read, {_shown(self.cached_bytes)} cached, "
            f"{_shown(self.written_bytes)} written"
        )


def _shown(nbytes: int) -> str:
    """
    >>> _shown(1023), _shown(1024), _shown(5 << 40)
    ('1023 B', '1.0 KB', '5.0 TB')
    """
    size, unit = float(nbytes), 0
    while size >= 1024 and unit < len(_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size:.1f} {_UNITS[unit]}" if unit else f"{nbytes} B"
