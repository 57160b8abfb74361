"""Count the broken records of files that tasks read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from watersmeet.runtime.messages.reports import BrokenFile, FileReport

# Which files of a tick have broken records, and which of them have others, too.

MAX_NAMED = 100
"""Files with broken records alone that a task names."""
MAX_PARSED = 2_000
"""Files with other records that it tells of: Spark gives a task 32 files, or pieces of them."""
MAX_TEXTS = 3
"""Files of which it tells a record."""


@dataclass
class FileCounter:
    """Counts the broken records of each file of one source within one task.

    Rows come file by file; a file may be cut into several tasks, and so the driver decides
    (`runtime.coordinator.results`).

    Args:
        text: shows a broken record.
    """

    text: Callable[[pa.Scalar], str]
    report: FileReport = field(default_factory=FileReport)
    _parsed: set[int] = field(default_factory=set)

    def add(self, files: pa.Array) -> None:
        """Take the numbers of the files of rows that are not broken, int64[n]."""
        self._parsed.update(files.take(_find_file_starts(files)).to_pylist())

    def add_broken(self, files: pa.Array, names: pa.Array, records: pa.Array) -> None:
        """Take broken records: the number of the file of each, its name, and its text."""
        firsts = _find_file_starts(files)
        ends = [*firsts[1:].tolist(), len(files)]
        for first, end in zip(firsts.tolist(), ends, strict=True):
            number, broken = files[first].as_py(), self.report.broken
            if number in broken:
                broken[number].rows += end - first
            elif number in self._parsed:
                continue
            elif len(broken) < MAX_NAMED or self._drop_parsed():
                text = self.text(records[first]) if len(broken) < MAX_TEXTS else ""
                broken[number] = BrokenFile(name=names[first].as_py(), rows=end - first, text=text)
            else:
                self.report.is_cut = True

    def finish(self) -> FileReport | None:
        """Return the report for the driver, or None if no file was read or broken."""
        self._drop_parsed()
        self.report.parsed = sorted(self._parsed) if len(self._parsed) <= MAX_PARSED else None
        return self.report if self._parsed or self.report.broken else None

    def _drop_parsed(self) -> bool:
        """Drop files that have other records, too; whether there were some."""
        both = self._parsed & self.report.broken.keys()
        for number in both:
            del self.report.broken[number]
        return bool(both)


def _find_file_starts(files: pa.Array) -> np.ndarray:
    """Return the places where another file begins."""
    numbers = files.to_numpy()
    return np.flatnonzero(np.concatenate([[True], numbers[1:] != numbers[:-1]]))
