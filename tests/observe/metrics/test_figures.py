"""The figures of a run are those of its account, of its watermarks and of what it keeps."""

from __future__ import annotations

from collections import defaultdict

import pytest

from tests.observe.watched import TICKS, WatchedJob
from watersmeet.observe.metrics import figures
from watersmeet.observe.metrics.figures import FIGURES, Readings
from watersmeet.observe.reports import account_of, report_of
from watersmeet.observe.row_accounting import PLACES
from watersmeet.state.manifest import Manifest

NOW_US = 1_795_000_000_000_000


@pytest.fixture(scope="module")
def job() -> WatchedJob:
    made = WatchedJob()
    made.ticks()
    return made


def readings(job: WatchedJob, figure: figures.Figure, result=None) -> dict[tuple[str, ...], float]:
    """Of one figure, by labels; each once."""
    result = result or job.results[-1]
    found = [
        (labels, value)
        for of, labels, value in Readings(job.plan).read_tick(
            report_of(result, 0.5, 0.5, NOW_US), result, NOW_US
        )
        if of is figure
    ]
    assert len(dict(found)) == len(found), "a series comes once"
    return dict(found)


def test_every_figure_has_a_name_of_its_own_after_the_conventions():
    names = [figure.name for figure in FIGURES]
    assert len(set(names)) == len(names) > 25
    for figure in FIGURES:
        assert figure.name.startswith("watersmeet_")
        assert figure.name.endswith("_total") == (figure.kind == figures.COUNTER)
        assert figure.help.endswith(".")


def test_input_rows_equal_outcomes_plus_retained_rows_after_each_tick(job):
    for result in job.results:
        came, kept = readings(job, figures.INPUT_ROWS, result), readings(job, figures.RETAINED_ROWS, result)
        gone: defaultdict[tuple[str, ...], float] = defaultdict(float)
        for (*labels, _), rows in readings(job, figures.ROWS, result).items():
            gone[tuple(labels)] += rows
        assert came == {labels: gone[labels] + kept[labels] for labels in came}


def test_they_are_the_account_s_place_by_place(job):
    outcomes, kept = readings(job, figures.ROWS), readings(job, figures.RETAINED_ROWS)
    account = account_of(job.results[-1])
    assert account.adds_up()
    for row in account.inputs:
        query, _, name = row.input.partition(".")
        assert kept[query, name] == row.retained
        assert {place: outcomes[query, name, place] for place in PLACES if place != "retained"} == {
            place: getattr(row, place) for place in PLACES if place != "retained"
        }
    assert outcomes["delivered", "o", "late"] == outcomes["delivered", "o", "null_time"] == 1
    assert ("windows", "rows of join 1", "late") in outcomes, "rows of a join, on their way into windows"


def test_rows_out_are_all_that_went_to_the_sink(job):
    out = readings(job, figures.OUTPUT_ROWS)
    assert out == {
        (name,): sum(result.queries[name].rows_out for result in job.results)
        for name in ("delivered", "windows", "climbed")
    }
    assert out["delivered",] > 0


def test_only_timestamp_watermarks_have_a_clock_lag(job):
    marks, lags = readings(job, figures.WATERMARK), readings(job, figures.WATERMARK_LAG)
    assert marks["delivered", "o", "t"] % 86_400 == 99, "that of the day's second 101, less the lag"
    assert lags == {labels: NOW_US / 1e6 - mark for labels, mark in marks.items()}
    assert readings(job, figures.WATERMARK_INTEGER)["climbed", "a", "n"] == 2
    assert not any(query == "climbed" for query, *_ in marks)


def test_before_the_first_row_there_is_no_watermark():
    job = WatchedJob()
    job.ticks([{}])
    assert readings(job, figures.WATERMARK) == readings(job, figures.WATERMARK_LAG) == {}
    assert readings(job, figures.INPUT_ROWS)["delivered", "o"] == 0


def test_lateness_metric_equals_the_row_accounting(job):
    late = readings(job, figures.LATE_BY)
    account = {row.input: row.late_by for row in account_of(job.results[-1]).inputs}
    assert late == {
        (*name.split("."), column, bucket): rows
        for name, columns in account.items()
        for column, of in columns.items()
        for bucket, rows in of.counts.items()
    }
    assert late


def test_bytes_and_forecasts_are_those_of_the_state(job):
    """By the declared rate: rows per second, times how long a row stays at most."""
    state = job.results[-1].state
    assert isinstance(state, Manifest)
    sizes = readings(job, figures.RETAINED_BYTES)
    assert sizes["delivered", "o"] == sum(
        live.run.nbytes
        for node in state.queries["delivered"].nodes
        for name, side in node.arrangements.items()
        if name == "o"
        for live in side.runs
    )
    rows = readings(job, figures.FORECAST_ROWS)
    assert rows["delivered", "o", "declared"] == pytest.approx(10 * (2 + 1)), "its lag and its bound"
    assert not any(query == "climbed" and by == "declared" for query, _, by in rows)
    assert not any(query == "windows" and "rows of" in name for query, name, _ in rows), "these are panes"
    assert set(readings(job, figures.FORECAST_BYTES)) == set(rows)
    assert {by for *_, by in rows} == {"declared", "measured"}


def test_holders_idle_partitions_and_paused_sources_are_reported(job):
    report = report_of(job.results[-1], 0.5, 0.5, NOW_US)
    found = {
        (figure, labels): value
        for figure, labels, value in Readings(job.plan).read_tick(report, job.results[-1], NOW_US)
    }
    assert found[figures.HOLDERS, ("delivered", "o")] == 0
    assert found[figures.IDLE, ("delivered", "o")] == 0
    assert found[figures.PAUSED, ("orders",)] == 0
    assert found[figures.TICK, ()] == len(TICKS)
    assert found[figures.TICK_TIME, ()] == NOW_US / 1e6
