"""The cache of a machine in a world: two runs may share it, and between runs somebody spoils files of it."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from pathlib import Path

from watersmeet.objects import cache
from watersmeet.objects.cache import Cache

PLACE = "simulated"


class SpoiltCache:
    """In a directory. ``draw``: by which files are spoilt."""

    def __init__(self, folder: Path, draw: random.Random, counts: Counter[str]) -> None:
        self.folder, self._draw, self._counts = folder, draw, counts

    def begin(self) -> Cache:
        """For a process that begins: it has compared no file yet."""
        cache.verified_files.clear()
        files = sorted(self.folder.glob("*.object"))
        for file in files:
            if self._draw.random() < 0.3:
                self._spoil(file, self._draw.choice(files))
        return Cache(PLACE, root=str(self.folder))

    def _spoil(self, file: Path, other: Path) -> None:
        """It is truncated, or another's, or has other bytes: in a new file, for whoever has mapped the old
        one goes on with that."""
        content, how = (
            file.read_bytes(),
            self._draw.choice(("truncated", "another's", "other bytes", "empty")),
        )
        spoilt = {
            "truncated": content[: self._draw.randrange(max(1, len(content)))],
            "another's": other.read_bytes(),
            "other bytes": content[:40] + bytes(8) + content[48:],
            "empty": b"",
        }[how]
        staged = file.with_suffix(".spoilt")
        staged.write_bytes(spoilt)
        staged.rename(file)
        self._counts[f"cache: {how}"] += 1

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
