"""Files that Spark's file source reads in their order: the oldest first, and those of one moment in any."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

FIRST_S = 1_000_000_000
"""The moment of number 0, since 1970."""


def write_rows_file(path: Path, number: int, rows: Iterable[Mapping[str, Any]]) -> None:
    """A file of JSON, a row in each line. ``number``: its place among the files that a source reads."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    os.utime(path, (FIRST_S + number, FIRST_S + number))
