"""What notebooks show: escaped, of this machine alone, and drawn again while a job runs."""

from __future__ import annotations

import re
import sys
import time
from datetime import UTC, datetime
from decimal import Decimal
from html.parser import HTMLParser
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest

import watersmeet as ws
from tests.support.columns import column
from watersmeet import background_job
from watersmeet.errors import EngineError, SpecError
from watersmeet.observe.notebook import OUTPUTS, Displays, Result, running_page
from watersmeet.observe.progress import InputReport, RecentTicks, TickReport
from watersmeet.sinks.memory import MemorySink
from watersmeet.sinks.registry import make_sink
from watersmeet.spec.model import Sink

EVIL = "<img src='http://evil.example/x' onerror=alert(1)>\x1b[2J\u202e&amp;"


class Tags(HTMLParser):
    """All tags with their attributes, and all text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def harmless(page: str) -> str:
    """The text of a page that has no tags but those of tables and texts, and no attribute but a style."""
    read = Tags(page)
    assert {tag for tag, _ in read.tags} <= {
        *["div", "p", "b", "pre", "table", "thead", "tbody", "tr", "th", "td", "ul", "li"]
    }
    assert {name for _, given in read.tags for name in given} <= {"style", "class"}
    styles = {given["style"] for _, given in read.tags if "style" in given}
    assert all(re.fullmatch(r"text-align:(left|right);white-space:pre-line", str(style)) for style in styles)
    assert "\x1b" not in page
    assert "\u202e" not in page
    return read.text


def report(tick: int, **inputs: Any) -> TickReport:
    told = InputReport("o", 10, matched=4, padded=1, late=2, retained=3, total_rows_in=1_234, **inputs)
    return TickReport(tick, 0.5, (told,), {"orders": 10}, {"out": 4}, elapsed_seconds=2.0)


def test_a_running_job_tells_rates_watermarks_and_what_is_kept():
    recent = RecentTicks()
    for tick in (1, 2):
        recent.add(report(tick, watermarks={"t": 1_704_067_200_000_000, "n": 7}))
    text = harmless(running_page("running", recent, frozenset({"o.n"}), ["told"], None))
    for said in ("running", "tick 2 took 0.50 s", "in 5 rows/s (20 rows)", "out 2 rows/s (8 rows)", "told",
                 "t 2024-01-01 00:00:00", "n 7", "1,234"):  # fmt: skip
        assert said in text, said


def test_nothing_of_data_or_users_is_read_as_html():
    recent = RecentTicks()
    marks = {EVIL: 1_704_067_200_000_000}
    recent.add(TickReport(1, 0.5, (InputReport(EVIL, 1, 0, 0, 0, 0, watermarks=marks),), {}, {}))
    text = harmless(running_page(EVIL, recent, frozenset(), [EVIL], ValueError(EVIL)))
    assert text.count("<img src=") == 5
    result = Result(EVIL, pa.table({EVIL: [EVIL], "n": [None]}))
    assert harmless(result._repr_html_()).count("<img src=") == 3
    evil = ws.stream({"t": "BIGINT", EVIL: "STRING"}, time="t", name=EVIL)
    job = ws.job(evil.to_sink(ws.memory(EVIL)))
    assert "<img src=" in harmless(job._repr_html_())


def test_a_relation_shows_its_plan_or_why_it_has_none():
    a, b = (ws.stream({"t": "BIGINT", "k": "INT"}, time="t", name=name).alias(name) for name in "ab")
    joined = a.join(b, on="a.k = b.k", within=ws.between("b.t", "a.t", 0, 5)).select("a.k")
    assert joined.explain().splitlines()[0] == 'Query "console" into console'
    assert joined.explain() == ws.explain(joined.plan)
    assert "flowchart" in joined.mermaid()
    assert harmless(joined._repr_html_()).strip() == joined.explain().strip()
    forever = a.join(b, on="a.k = b.k").select(f"a.k AS `{EVIL}`")
    with pytest.raises(ws.WatersmeetError, match="unbounded-state"):
        forever.explain()
    text = harmless(forever._repr_html_())
    assert "unbounded-state" in text
    assert "<img src=" in text


def test_a_long_result_is_cut():
    page = Result("r", pa.table({"n": range(5_000), "s": ["x" * 10_000] * 5_000}))._repr_html_()
    assert len(page) < 20_000
    assert "… and 4,980 more rows" in page


def test_values_that_python_has_not_are_shown():
    bytes_ = pa.array([b"\xff"]).view(pa.string())
    table = pa.table({"s": bytes_, "t": pa.array([253_402_300_800_000_000], pa.timestamp("us"))})
    assert "+10000-01-01T00:00:00" in Result("r", table)._repr_html_()


class Handle:
    def __init__(self, shown: list[Any]) -> None:
        self.shown, self.fails = shown, False

    def update(self, data: Any, raw: bool) -> None:
        if self.fails:
            raise OSError("the kernel is gone")
        self.shown.append(data)


@pytest.fixture
def ipython(monkeypatch):
    """Its display, as far as it is asked: what was shown, and the handles."""
    shown: list[Any] = []
    handles: list[Handle] = []

    def display(data: Any, *, raw: bool, display_id: bool) -> Handle:
        assert raw
        assert display_id
        shown.append(data)
        handles.append(Handle(shown))
        return handles[-1]

    package, module = ModuleType("IPython"), ModuleType("IPython.display")
    module.display = display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", package)
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    return shown, handles


def test_outputs_are_drawn_again_and_one_that_fails_is_forgotten(ipython):
    shown, handles = ipython
    state = ["starting"]
    displays = Displays(lambda: f"<p>{state[0]}</p>", lambda: state[0])
    displays.update(at_once=True)
    assert shown == []
    displays.show()
    state[0] = "running"
    displays.update(at_once=True)
    displays.update()  # too soon
    assert [data["text/html"] for data in shown] == ["<p>starting</p>", "<p>running</p>"]
    assert shown[-1]["text/plain"] == "running"
    handles[0].fails = True
    displays.update(at_once=True)
    displays.update(at_once=True)
    assert len(shown) == 2
    for _ in range(OUTPUTS + 3):
        displays.show()
    before = len(shown)
    displays.update(at_once=True)
    assert len(shown) == before + OUTPUTS


def test_a_job_shows_how_it_ended(ipython, monkeypatch):
    shown, _ = ipython

    def fails(*_: Any, **__: Any) -> None:
        raise EngineError("no broker", code="test")

    monkeypatch.setattr(background_job, "run_planned", fails)
    clicks = ws.stream({"t": "BIGINT"}, time="t", name="clicks")
    job = ws.job(clicks.to_sink(ws.memory("m")), checkpoint="state").start()
    job._ipython_display_()
    with pytest.raises(EngineError):
        job.await_termination(60)
    job._ipython_display_()
    assert "failed" in harmless(shown[-1]["text/html"])
    assert "no broker" in shown[-1]["text/html"]


ROWS = [
    {
        "at": datetime(2024, 1, 1, 12, 30),
        "plain": datetime(2024, 1, 1, 12, 30),
        "price": Decimal("1.50"),
        "tags": {"a": [1, None]},
        "who": {"name": "Ada", "since": datetime(2024, 1, 1)},
    },
    dict.fromkeys(("at", "plain", "price", "tags", "who")),
]
TYPES = {
    "at": "TIMESTAMP",
    "plain": "TIMESTAMP_NTZ",
    "price": "DECIMAL(5,2)",
    "tags": "MAP<STRING, ARRAY<INT>>",
    "who": "STRUCT<name: STRING, since: TIMESTAMP>",
}


class Frame:
    def __init__(self, rows: list[Any]) -> None:
        self._rows = rows

    def collect(self) -> list[Any]:
        class Row(dict[str, Any]):
            def asDict(self, recursive: bool) -> dict[str, Any]:
                return dict(self)

        return [Row(row) for row in self._rows]


def filled(name: str, types: dict[str, str], rows: list[Any]) -> None:
    MemorySink.clear(name)
    sink = make_sink(Sink(name, "memory"))
    sink.prepare([column(n, kind) for n, kind in types.items()])
    sink.write(Frame(rows), "i", 1, "a")
    sink.publish("i", 1, "a", {})


@pytest.fixture
def far_from_utc(monkeypatch):
    """A process whose zone is not UTC's."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("far_from_utc")
def test_a_memory_sink_is_a_table_with_its_types():
    """Spark gives instants as times of this process's zone; tables have them of UTC."""
    filled("typed", TYPES, ROWS)
    table = MemorySink.table("typed")
    assert [str(kind) for kind in table.schema.types] == [
        "timestamp[us, tz=UTC]",
        "timestamp[us]",
        "decimal128(5, 2)",
        "map<string, list<item: int32>>",
        "struct<name: string, since: timestamp[us, tz=UTC]>",
    ]
    first, last = table.to_pylist()
    assert first["at"] == datetime(2024, 1, 1, 3, 30, tzinfo=UTC)
    assert first["plain"] == datetime(2024, 1, 1, 12, 30)
    assert (first["price"], first["tags"]) == (Decimal("1.50"), [("a", [1, None])])
    assert first["who"] == {"name": "Ada", "since": datetime(2023, 12, 31, 15, tzinfo=UTC)}
    assert set(last.values()) == {None}
    result = Result("typed", table)
    assert len(result) == 2
    assert result.arrow() is table
    assert list(result.pandas()["plain"].notna()) == [True, False]
    assert result.rows() == [first, last]


def test_whole_numbers_stay_what_they_are_in_pandas():
    """As floats, which NULLs beside them would make of them, large ones are others."""
    large = 2**53 + 1
    types = {"n": "BIGINT", "small": "TINYINT", "said": "BOOLEAN", "list": "ARRAY<BIGINT>"}
    row = {"n": large, "small": 1, "said": True, "list": [large, None]}
    for name, rows in (("null", [row, dict.fromkeys(types)]), ("none", [row])):
        filled(name, types, rows)
        frame = Result(name, MemorySink.table(name)).pandas()
        assert [str(kind) for kind in frame.dtypes] == ["Int64", "Int8", "boolean", "object"]
        assert [int(frame["n"][0]), list(frame["list"][0])] == [large, [large, None]]
        assert list(frame["n"].isna()) == [False, True][: len(rows)]


def test_results_that_are_no_tables_are_refused(monkeypatch):
    filled("odd", {"span": "INTERVAL DAY"}, [])
    with pytest.raises(EngineError, match="which Arrow does not support"):
        MemorySink.table("odd")
    with pytest.raises(EngineError, match="unknown before its first tick"):
        MemorySink.table("never")
    make = make_sink(Sink("two", "memory"))
    for kind in ("INT", "INT", "STRING"):
        make.prepare([column("a", kind)])
    with pytest.raises(EngineError, match="rows of 2 INSERTs"):
        MemorySink.table("two")
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(SpecError, match="polars is not installed"):
        Result("r", pa.table({"n": [1]})).polars()


def test_which_result_is_asked_for_is_said(monkeypatch):
    monkeypatch.setattr(background_job, "run_planned", lambda *_, **__: None)
    clicks = ws.stream({"t": "BIGINT"}, time="t", name="clicks")
    filled("one", {"t": "BIGINT"}, [{"t": 3}])
    alone = ws.job(clicks.to_sink(ws.memory("one")), checkpoint="state").start()
    assert alone.result().rows() == alone.result("one").rows() == [{"t": 3}]
    with pytest.raises(SpecError, match='none is named "on"') as refused:
        alone.result("on")
    assert "one" in str(refused.value.hint)
    outputs = [clicks.to_sink(ws.memory(name)) for name in ("one", "two")]
    with pytest.raises(SpecError, match="it has several"):
        ws.job(*outputs, checkpoint="state").start().result()
