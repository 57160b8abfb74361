"""Files without a record that parses, over batches and tasks."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.support.ticks import QUERY, plan_of
from watersmeet.runtime.coordinator.results import rows_read
from watersmeet.runtime.messages.reports import IngestReport
from watersmeet.runtime.tasks import file_counter
from watersmeet.runtime.tasks.file_counter import FileCounter

JOIN = "SELECT l.i AS a, r.i AS b FROM l JOIN r ON l.k = r.k AND r.t BETWEEN l.t - 5 AND l.t + 5"


def counter_of(*batches: str) -> FileCounter:
    """Of rows of files that are letters, the small ones broken; text is the letter."""
    counter = FileCounter(lambda record: record.as_py())
    for batch in batches:
        good = [ord(row) for row in batch if row.isupper()]
        if good:
            counter.add(pa.array(good))
        if broken := [row for row in batch if row.islower()]:
            files = pa.array([ord(row.upper()) for row in broken])
            counter.add_broken(files, pa.array(broken), pa.array(broken))
    return counter


def in_all(*tasks: tuple[str, ...]) -> tuple[list[tuple[str, int]], bool]:
    plan = plan_of(JOIN)
    reports = [
        IngestReport(
            arrangement=f"{QUERY}/l", branch=0, counts={"in": 9, "broken": 1}, files=counter_of(*t).finish()
        )
        for t in tasks
    ]
    sent = [IngestReport.model_validate_json(report.model_dump_json()) for report in reports]
    broken = rows_read(plan, sent).broken["l"]
    return [(file.name, file.rows) for file in broken.files], broken.is_cut


@pytest.mark.parametrize(
    ("tasks", "files"),
    [
        ([("AAbbbCC",)], [("b", 3)]),
        ([("aA",), ("bb",)], [("b", 2)]),
        ([("AAa", "abbb"), ("bb", "cC")], [("b", 5)]),
        ([("bb",), ("B",)], []),  # a file that several tasks read
        ([("a", "a", "A")], []),
        ([("A", "a", "a")], []),
        ([("AB",), ("CA",)], []),
        ([("c", "b", "a", "B")], [("a", 1), ("c", 1)]),
    ],
)
def test_files_of_which_no_task_has_read_a_record_that_parses(tasks, files):
    assert in_all(*tasks) == (files, False)


def test_only_some_files_are_named(monkeypatch):
    monkeypatch.setattr(file_counter, "MAX_NAMED", 2)
    assert in_all(("abc",)) == ([("a", 1), ("b", 1)], True)
    assert in_all(("aAbBcd",)) == ([("c", 1), ("d", 1)], False)
    assert in_all(("ab", "A", "cd")) == ([("b", 1), ("c", 1)], True)
    monkeypatch.setattr(file_counter, "MAX_PARSED", 2)
    assert in_all(("ABC", "d")) == ([], True)
