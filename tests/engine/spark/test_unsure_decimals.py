"""What ingest tells of decimals that were rounded, and what is kept of it when their files are read again."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyspark.sql import Row

from tests.support.columns import column
from watersmeet.errors import EngineError
from watersmeet.runtime.messages.reports import IngestReport
from watersmeet.runtime.spark.rounded_decimals import rounded_sql
from watersmeet.runtime.spark.sources.views import BranchView, SourceView
from watersmeet.runtime.spark.tick.ingest import INEXACT, REPORT, SIDE_OUTPUT, SourceTask
from watersmeet.runtime.spark.tick.reading.text_validation import Rereading
from watersmeet.spec.model import Source
from watersmeet.state.store import Traffic

VIEW = SourceView("a", (BranchView("q/a", 0, ()),), rounds=True)


@pytest.mark.parametrize(
    ("values", "rows", "text", "is_unsure"),
    [
        (["=price 1.239", None, "=fee 1"], 2, "price 1.239", False),
        (["!", "=price 1.239"], 1, "price 1.239", True),
        (["!price 1.495", "=price 1.239"], 2, "price 1.495", True),
        (["!", None], 0, "", True),
        (["=!p 1.239"], 1, "!p 1.239", False),
        (["==p 1.239"], 1, "=p 1.239", False),
    ],
)
def test_rounded_rows_are_counted_and_first_value_is_reported(values, rows, text, is_unsure):
    """Names of columns are any: `!p`, too."""
    task = SourceTask(SourceView("a", ()), None, None)
    report = IngestReport(arrangement="q/a", branch=0)
    task.writers = [(VIEW.branches[0], SimpleNamespace(report=report))]
    task._count_rounded(pa.array(values))
    assert (report.rounded, report.rounded_text, task.is_unsure) == (rows, text, is_unsure)


def rereading():
    return Rereading(None, [], SimpleNamespace(sources=[(None, VIEW)]), None, lambda batch: None)


def test_of_rows_that_are_read_again_their_number_rounded_and_the_traffic_stay():
    traffic = Traffic(written=7, requests=1)
    counts = {"in": 3}
    of_a, of_b = (
        IngestReport(
            arrangement=f"q/{n}", branch=0, counts=counts, rounded=2, rounded_text="p 1", traffic=traffic
        )
        for n in "ab"
    )
    asides = [json.dumps({"source": name}) for name in "ab"]
    told = [Row(kind=REPORT, text=report.model_dump_json()) for report in (of_a, of_b)]
    told += [Row(kind=SIDE_OUTPUT, text=text) for text in asides] + [Row(kind=INEXACT, text="a")]
    kept = list(rereading()._without_rows(told, {"a"}))
    reports = [IngestReport.model_validate_json(text) for kind, text in kept if kind == REPORT]
    assert reports == [of_a.model_copy(update={"counts": {}}), of_b]
    assert [text for kind, text in kept if kind != REPORT] == asides[1:]


def test_what_is_to_be_read_again_and_is_of_no_files_is_not_passed_on():
    sure = [Row(kind=REPORT, text="{}")]
    assert rereading().add_reread_rows(sure, None) == sure
    with pytest.raises(EngineError, match="read decimals of a again"):
        rereading().add_reread_rows([*sure, Row(kind=INEXACT, text="a")], None)


@pytest.mark.parametrize(
    ("form", "spare", "options", "asked"),
    [
        ("csv", "TINYINT", {}, False),
        ("json", "STRING", {}, False),
        ("json", "ARRAY<TINYINT>", {}, True),
        ("csv", "TIMESTAMP", {"timestamp.unit": "ms"}, True),
    ],
)
def test_unused_decimals_are_checked_for_rounding_where_they_are_parsed(form, spare, options, asked):
    """Else it would depend on the other records of a tick, which may have the files read as declared."""
    columns = (column("p", "DECIMAL(10,2)"), column("q", "DECIMAL(10,2)"), column("s", spare))
    source = Source("a", columns, "file", {"path": "/in", "format": form, **options})
    assert ("rounded:q" in rounded_sql(source, ["`p`"])) == asked
    assert (rounded_sql(source, ["`s`"]) is not None) == asked
    assert "rounded:q" in rounded_sql(source, ["`p` + `q`"])
