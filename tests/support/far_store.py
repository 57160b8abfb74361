"""A store in this process that goes for a remote one, so that runs are written in sections, and that tells
what it was asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pyarrow as pa
import pytest

from watersmeet.state.runs import writer
from watersmeet.state.store import MemoryStore


class FarStore(MemoryStore):
    """``sections``: how many of an object were written. ``given``: bytes of each run that were read."""

    is_remote = True

    def __init__(self) -> None:
        super().__init__()
        self.sections: Counter[int] = Counter()
        self.given: Counter[str] = Counter()

    def write(
        self, name: str, data: pa.Buffer | bytes, *, lasting: bool = True, sections: Sequence[str] = ()
    ) -> None:
        super().write(name, data, lasting=lasting)
        if name.startswith("runs/"):
            self.sections[len(sections)] += 1

    def read(self, name: str) -> pa.Buffer:
        content = super().read(name)
        if name.startswith("runs/"):
            self.given[name] += content.size
        return content

    def names(self, folder: str) -> list[str]:
        return sorted(name for name in list(self.contents) if name.rpartition("/")[0] == folder)


def cut_small(monkeypatch: pytest.MonkeyPatch, most: int = 16) -> None:
    """The smallest runs have sections, where there are several tasks."""
    monkeypatch.setattr(writer, "SECTION_BYTES", 1)
    monkeypatch.setattr(writer, "MAX_SECTIONS", most)
