"""A line per tick, of words and as JSON, from the same reports."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest

from watersmeet.event_time import ENDED, MAX_TIME, NEVER, shown_time
from watersmeet.observe.live.lines import LINE, JsonLines, PlainLines
from watersmeet.observe.progress import (
    Backlog,
    HeavyKeyProgress,
    InputReport,
    SplitKeyProgress,
    TickReport,
)
from watersmeet.observe.watermark_holders import (
    PausedSource,
    SilentPartition,
    StepUse,
    StoreUse,
    WaitingInput,
)

REPORT = TickReport(
    tick=3,
    seconds=0.5,
    inputs=(
        InputReport("f", 1000, 900, 20, 3, 77, {"sched_dep": 1_357_034_400_000_000}),
        InputReport("w", 0, 5, 0, 0, 12, {"n": 42}),
    ),
    rows_in={"flights": 600, "weather": 1400},
    rows_out={"delivered": 250},
)


def test_rows_of_deletes_of_nothing_are_told():
    missed = replace(REPORT.inputs[1], missing_delete_examples=('{"k": "[b]"}', json.dumps({"k": "x" * 200})))
    report = replace(REPORT, inputs=(REPORT.inputs[0], missed))
    wanted = 'w: delete of an absent row: {"k": "[b]"}'
    plain, told = io.StringIO(), io.StringIO()
    PlainLines(plain).tick(report, None)
    lines = plain.getvalue().splitlines()
    assert (len(lines), lines[1], max(map(len, lines))) == (3, wanted, 120)
    JsonLines(told).tick(report, None)
    assert json.loads(told.getvalue())["inputs"][1]["missing_delete_examples"][0] == '{"k": "[b]"}'


def test_what_a_tick_asked_of_a_remote_store_is_told_beside_what_a_line_has():
    step = StepUse("delivered/0", (1 << 20, 2 << 20), (0, 5), (10, 20), (3, 4))
    report = replace(REPORT, store=StoreUse(3_000_000, 5, 30, 7, (step,)))
    words = ", store: 3.0 MB read, 5 bytes cached, 30 bytes written"
    plain, told, without = io.StringIO(), io.StringIO(), io.StringIO()
    PlainLines(plain).tick(report, None)
    PlainLines(without).tick(REPORT, None)
    assert plain.getvalue().replace(words, "") == without.getvalue()
    assert words in plain.getvalue()
    JsonLines(told).tick(report, None)
    assert json.loads(told.getvalue())["store"] == {
        "fetched_bytes": 3_000_000,
        "cached_bytes": 5,
        "written_bytes": 30,
        "requests": 7,
        "steps": [
            {
                "step": "delivered/0",
                "fetched_bytes": [1 << 20, 2 << 20],
                "cached_bytes": [0, 5],
                "written_bytes": [10, 20],
                "requests": [3, 4],
            }
        ],
    }


def test_sources_that_wait_for_others_are_told():
    report = replace(REPORT, paused_sources={"flights": PausedSource("weather", 82_800_000_001)})
    plain, told = io.StringIO(), io.StringIO()
    PlainLines(plain).tick(report, None)
    assert ", paused flights (23 h 1 min ahead of weather)" in plain.getvalue()
    JsonLines(told).tick(report, None)
    assert json.loads(told.getvalue())["paused_sources"] == {
        "flights": {"ahead_of": "weather", "ahead_by": 82_800_000_001}
    }


@pytest.mark.parametrize(
    ("tasks", "words"),
    [({"a": 1, "b": 4}, ", 4 tasks"), ({"a": 1}, ", 1 task"), ({"a": 0}, ""), ({}, "")],
)
def test_in_how_many_tasks_a_tick_was_run_is_told(tasks, words):
    """Of several inserts the most; what the driver did alone had none."""
    report = replace(REPORT, tasks=tasks)
    plain, told = io.StringIO(), io.StringIO()
    PlainLines(plain).tick(report, None)
    assert plain.getvalue().startswith(f"tick 3: 0.50 s{words}, in 2,000 ")
    JsonLines(told).tick(report, None)
    assert json.loads(told.getvalue())["tasks"] == tasks


def test_plain_is_one_line_per_tick_of_one_unit_each():
    """Rows are those of the tick, the rate is one of the clock, and the least watermark has its distance."""
    out = io.StringIO()
    report = replace(
        REPORT,
        elapsed_seconds=2.0,
        clock_us=1_357_034_400_000_000 + 3_000_000,
        inputs=(replace(REPORT.inputs[0], late=300, late_in_tick=2), REPORT.inputs[1]),
    )
    PlainLines(out, frozenset({"w.n"})).tick(report, None)
    assert out.getvalue() == (
        "tick 3: 0.50 s, in 2,000 (1,000/s), out 250, late 2, retained 89;"
        " W[f.sched_dep] 2013-01-01 10:00:00, 3 s ago\n"
    )


def test_rows_of_the_tick_that_are_in_no_result_are_told_by_their_reasons():
    aside = ({"broken": 3, "ahead": 1_000}, {"broken": 2, "null_time": 1})
    inputs = [replace(row, dropped=of) for row, of in zip(REPORT.inputs, aside, strict=True)]
    report = replace(REPORT, inputs=tuple(inputs), rounded={"flights": 3, "weather": 4})
    plain, told = io.StringIO(), io.StringIO()
    PlainLines(plain).tick(report, None)
    assert ", late 0, broken 5, ahead 1,000, without time 1, rounded 7, retained 89;" in plain.getvalue()
    JsonLines(told).tick(report, None)
    assert [row["dropped"] for row in json.loads(told.getvalue())["inputs"]] == list(aside)


def test_a_plain_line_is_never_longer_than_120_characters():
    one = InputReport(
        "a_rather_long_view.of.o", 10**7, 10**9, 10**9, 10**8, 10**9,
        {"order_time_at_the_till": 1_357_034_400_123_456},
        watermark_holders=(SilentPartition("orders", "2"),),
    )  # fmt: skip
    out = io.StringIO()
    PlainLines(out).tick(
        TickReport(123_456, 1234.5, (one,) * 22, {"s": 10**9}, {"o": 10**9}, 1300.0, 1_400_000_000_000_000),
        None,
    )
    (line,) = out.getvalue().splitlines()
    assert len(line) <= 120
    assert line.startswith(
        "tick 123456: 1234.50 s, in 1,000,000,000 (769,231/s), out 1,000,000,000, late 0, retained"
    )
    out = io.StringIO()
    PlainLines(out, frozenset({"a.n"})).tick(
        TickReport(1, 0.0, (InputReport("a", 0, 0, 0, 0, 0, {"n": 7}),), {}, {}, 0.0, 5), None
    )
    assert out.getvalue() == "tick 1: 0.00 s, in 0 (0/s), out 0, late 0, retained 0; W[a.n] 7\n"


@pytest.mark.parametrize(
    ("out", "files", "begins", "ends"),
    [
        (250, 0, "s, 4 tasks, in", "retained 89; W[f.sched_dep] 2013-01-01 10:00:00, 3 s ago"),
        (25_000_000, 0, "s, in", "retained 89; W[f.sched_dep] 2013-01-01 10:00:00, 3 s ago"),
        (250, 1, "s, in", "backlog 1 file; W[f.sched_dep] 2013-01-01 10:00:00"),
    ],
)
def test_what_matters_less_goes_before_a_line_is_cut(out, files, begins, ends):
    """The tasks go, then the distance, too; a watermark is there with its time of day."""
    told = io.StringIO()
    report = replace(
        REPORT,
        tasks={"a": 4},
        clock_us=1_357_034_403_000_000,
        rows_out={"delivered": out},
        backlog={"a": Backlog(files, "files")},
    )
    PlainLines(told, frozenset({"w.n"})).tick(report, None)
    line = told.getvalue().rstrip()
    assert len(line) <= LINE
    assert line.startswith(f"tick 3: 0.50 {begins}")
    assert line.endswith(ends)


def test_json_is_one_object_per_tick():
    out = io.StringIO()
    JsonLines(out).tick(
        TickReport(0, 0.1, (InputReport("l", 1, 0, 0, 0, 1, {"t": NEVER}),), {"s": 2}, {"out": 7}), None
    )
    (line,) = out.getvalue().splitlines()
    assert json.loads(line)["inputs"][0]["watermarks"] == {"t": None}
    assert (json.loads(line)["rows_in"], json.loads(line)["rows_out"]) == ({"s": 2}, {"out": 7})


@pytest.mark.parametrize(
    ("mark", "integer", "text"),
    [
        (ENDED, False, "end"),
        (MAX_TIME, False, f"{MAX_TIME} µs"),
        (-5, True, "-5"),
        (0, False, "1970-01-01 00:00:00"),
    ],
)
def test_shown_time(mark, integer, text):
    assert shown_time(mark, integer) == text


HELD = TickReport(
    tick=1,
    seconds=0.1,
    inputs=(
        InputReport("o", 1, 0, 0, 0, 1, {"t": NEVER}, watermark_holders=(SilentPartition("orders", "2"),)),
        InputReport(
            "d",
            1,
            0,
            0,
            0,
            1,
            {"t": 5},
            watermark_holders=(SilentPartition("d", "0", 60_000_000, 30_000_000),),
        ),
        InputReport("x", 0, 0, 0, 0, 1, {"t": 5}, idle=True),
    ),
    rows_in={},
    rows_out={},
)


def test_who_holds_a_watermark_back_is_named():
    out = io.StringIO()
    PlainLines(out).tick(HELD, None)
    assert out.getvalue().endswith("; W[o.t] −; o not started: no row yet in orders/2 (and 2 more)\n")
    out = io.StringIO()
    JsonLines(out).started([], None)
    JsonLines(out).started([WaitingInput("o", (SilentPartition("orders", "2"),))], None)
    JsonLines(out).tick(HELD, None)
    waiting, tick = (json.loads(line) for line in out.getvalue().splitlines())
    assert waiting["waiting"][0]["watermark_holders"][0]["partition"] == "2"
    assert tick["inputs"][1]["watermark_holders"] == [
        {"source": "d", "partition": "0", "since_us": 60_000_000, "idle_timeout_us": 30_000_000}
    ]
    assert tick["inputs"][2]["idle"] is True


def test_what_is_not_read_yet_is_said_where_it_is_known():
    out = io.StringIO()
    backlog = {"a": Backlog(1_200, "files"), "b": Backlog(0, "rows"), "c": Backlog(3, "files")}
    report = TickReport(1, 0.5, (), {"a": 5}, {}, 0.5, backlog=backlog)
    PlainLines(out).tick(report, None)
    JsonLines(out).tick(report, None)
    plain, line = out.getvalue().splitlines()
    assert plain == "tick 1: 0.50 s, in 5 (10/s), out 0, late 0, retained 0, backlog 1,203 files"
    assert json.loads(line)["backlog"]["a"] == {"count": 1_200, "unit": "files"}
    assert TickReport(1, 0.5, (), {}, {}, backlog={"a": Backlog(1, "files")}).behind == "1 file"
    assert TickReport(1, 0.5, (), {}, {}, backlog={"b": Backlog(7, "rows"), **backlog}).behind == (
        "1,203 files"
    )
    assert TickReport(1, 0.5, (), {}, {}, backlog=backlog | {"b": Backlog(7, "rows")}).behind == (
        "1,203 files + 7 rows"
    )


def test_a_key_that_tasks_share_is_told_of_once():
    split = (SplitKeyProgress("k = 7", 0.31),)
    report = TickReport(1, 0.0, (InputReport("o", 0, 0, 0, 0, 100_000, split_keys=split),), {}, {})
    out = io.StringIO()
    plain = PlainLines(out)
    plain.tick(report, None)
    plain.tick(report, None)
    said = "o: key split over all tasks, 31% of the work: k = 7"
    assert [line for line in out.getvalue().splitlines() if "split" in line] == [said]


def test_a_hot_key_is_told_of_once_when_it_has_become_hot():
    def tick(share: float, rows: int) -> TickReport:
        heavy = (HeavyKeyProgress("k = 7", rows, share),)
        return TickReport(1, 0.0, (InputReport("o", 0, 0, 0, 0, 100_000, hot_keys=heavy),), {}, {})

    out = io.StringIO()
    plain = PlainLines(out)
    for report in (tick(0.09, 90_000), tick(0.5, 9_999), tick(0.12, 12_000), tick(0.3, 30_000)):
        plain.tick(report, None)
    said = "o: heavy key, 12% of 100,000 rows: k = 7"
    assert [line for line in out.getvalue().splitlines() if "heavy" in line] == [said]


def test_lines_are_written_whatever_the_encoding_and_whatever_is_in_names():
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="latin-1")
    plain = PlainLines(out)
    heavy = (HeavyKeyProgress(f"k = 'é→\x1b[2J{'x' * 120}'", 50_000, 0.5),)
    plain.started([WaitingInput("o", (SilentPartition("orders\x1b[2J", "2"),))], None)
    plain.tick(TickReport(1, 0.0, (InputReport("o", 0, 0, 0, 0, 100_000, hot_keys=heavy),), {}, {}), None)
    out.flush()
    first, _, hot = raw.getvalue().decode("latin-1").splitlines()
    assert "orders\\x1b[2J/2" in first
    assert "'é\\u2192\\x1b[2Jxxx" in hot
    assert (len(hot), hot[-1]) == (LINE, "~")
