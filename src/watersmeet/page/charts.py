"""The time lines of a document: series of a history on axes of the clock.

A chart has ``at``, its clocks (seconds since 1970), and per series ``values``, one for each; a series that
has other clocks has an ``at`` of its own. There is a point per tick, or per several ticks where there are
more than `MOST_POINTS`, and a NULL where nothing is known. ``kind`` says how values are to be shown: rows,
bytes, seconds, rate, time, integer; ``stacked``: each line stands on those before it; ``to_now``: while the
job runs, lines go on from the last tick until now. ``peaks`` of a series: the most that it was since the
point before, for it grows until a tick ends; NULL where that is not more than its value.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.history.figures import DURATION, ELAPSED, JOB
from watersmeet.history.past import Past, Series
from watersmeet.history.points import END, names_of, subject_of
from watersmeet.observe.reports import input_name

MOST_POINTS = 500
MOST_OF_PARTITIONS = 150
_US = 1_000_000
_SUMMED = {"max": np.maximum, "total": np.add}
WATERMARK_OF = "watermark of "

Chart = dict[str, Any]


def _every(past: Past, most: int) -> int:
    """How many ticks a point stands for, that there are so many at most, about."""
    return max(1, -(-past.ticks // most))


def charts_of(past: Past, integers: Collection[str]) -> list[Chart]:
    """Those of the job. ``integers``: the subjects whose watermarks are integers."""
    every = _every(past, MOST_POINTS)
    times = past.subjects("time")
    marks = [(subject, "watermark") for subject in times if subject not in integers]
    whole = [(subject, "watermark") for subject in times if subject in integers]
    sources, queries, inputs = (past.subjects(kind) for kind in ("source", "query", "input"))
    phases = [(phase, DURATION) for phase in past.subjects("phase")]
    charts = [
        _chart(past, every, "watermarks", "Watermarks", "time", marks),
        _chart(past, every, "watermark_lag", "Watermark lag behind the clock", "seconds", marks, behind=True),
        _chart(past, every, "integers", "Watermarks of integer event times", "integer", whole),
        _chart(past, every, "read", "Rows read (rows/s)", "rate", [(of, "rows_in") for of in sources]),
        _chart(past, every, "backlog", "Backlog", "rows", [(of, "backlog") for of in sources]),
        _chart(past, every, "written", "Rows written", "rows", [(of, "total_rows_out") for of in queries]),
        _chart(past, every, "late", "Late rows", "rows", [(of, "late") for of in inputs]),
        _chart(past, every, "broken", "Broken records", "rows", [(of, "broken") for of in inputs]),
        _chart(past, every, "retained", "Retained rows", "rows", [(of, "retained") for of in inputs]),
        _chart(past, every, "state", "State size", "bytes", [(of, "state_bytes") for of in queries]),
        _chart(past, every, "ticks", "Tick duration", "seconds", [(JOB, DURATION)], per_tick=True),
        _chart(past, every, "phases", "Tick duration by phase", "seconds", phases, per_tick=True)
        | {"stacked": True},
    ]
    return [chart for chart in charts if chart["series"]]


def partitions_of(past: Past, integers: Collection[str]) -> list[dict[str, Any]]:
    """Per input that tells of partitions: their ``charts``, one per event time, ``last_row_at``, the clock of
    the last row of each (seconds; NULL: it has had none), and how many there are and are idle."""
    own, told = past.of_kind("partition"), []
    every = _every(own, MOST_OF_PARTITIONS)
    by_input: dict[tuple[str, ...], list[str]] = {}
    for subject in own.subjects("partition"):
        by_input.setdefault(tuple(names_of(subject)[1:3]), []).append(subject)
    for counts in past.subjects("partitions"):
        query, alias = names_of(counts)[1:]
        subjects = by_input.get((query, alias), [])
        figures = dict.fromkeys(figure for subject in subjects for figure in own.figures(subject))
        charts = []
        for figure in figures:
            if figure.startswith(WATERMARK_OF):
                column = figure.removeprefix(WATERMARK_OF)
                integer = subject_of("time", query, alias, column) in integers
                lines = [(subject, figure) for subject in subjects]
                kind = "integer" if integer else "time"
                charts.append(_chart(own, every, column, f"Watermarks of {column} by partition", kind, lines))
        last_row_at = {name_of(of): _seconds(own.series(of, "last_row_us").values()[-1]) for of in subjects}
        count, idle = (past.series(counts, figure).values()[-1] for figure in ("count", "idle"))
        told.append(
            {"name": name_of(f"input/{counts.split('/', 1)[1]}"), "count": count, "idle": idle}
            | {"charts": [chart for chart in charts if chart["series"]], "last_row_at": last_row_at}
        )
    return told


def name_of(subject: str) -> str:
    """As people know it: ``query.input``, of a partition ``source/partition``."""
    kind, *names = names_of(subject)
    if kind == "partition":
        source, partition = names[2:]
        return f"{source}/{partition}" if partition else source
    if kind in ("input", "time", "side"):
        names[1] = input_name(names[1])
    return ".".join(names) if names else kind


def _seconds(us: int | None) -> float | None:
    return None if us is None else us / _US


def _chart(
    past: Past,
    every: int,
    key: str,
    title: str,
    kind: str,
    figures: Iterable[tuple[str, str]],
    *,
    behind: bool = False,
    per_tick: bool = False,
) -> Chart:
    """``every``: ticks to a point; ``behind``: of event times, how far they are behind the clock;
    ``per_tick``: the most of a tick."""
    series: list[dict[str, Any]] = []
    common: list[float] = []
    elapsed = dict(zip(*_points(past.series(JOB, ELAPSED), "total", every), strict=True))
    for of, figure in figures:
        what = "max" if per_tick else "total" if kind == "rate" else "last"
        clock, values = _points(past.series(of, figure), what, every)
        more: dict[str, Any] = {}
        if behind:
            values = [
                None if v is None or v == END else (at - v) / _US for at, v in zip(clock, values, strict=True)
            ]
            more["peaks"] = _peaks(past, past.series(of, figure), every, values)
        elif kind == "rate":
            values = [
                None if v is None or not elapsed.get(at) else v * _US / elapsed[at]
                for at, v in zip(clock, values, strict=True)
            ]
        elif kind == "seconds":
            values = [None if v is None else v / _US for v in values]
        elif kind in ("time", "integer"):
            values = [None if v == END else v for v in values]
        if any(value is not None for value in values):
            at = [us / _US for us in clock]
            common = common or at
            series.append(
                {"name": name_of(of), "values": values, **more, **({} if at == common else {"at": at})}
            )
    to_now = behind or kind in ("time", "integer")
    return {"key": key, "title": title, "kind": kind, "at": common, "series": series, "to_now": to_now}


def _peaks(past: Past, series: Series, every: int, values: list[float | None]) -> list[float | None]:
    """How far a watermark was behind the clock at most since the point before: it stands still until a tick
    ends. Nobody knows where that point stands for several ticks, or is of an earlier run."""
    points = series.points
    if not len(series):
        return []
    clock, tick = (points.column(name).to_numpy() for name in ("last_us", "first_tick"))
    marks = points.column("last").to_numpy().astype(float)
    marks[marks == float(END)] = np.nan
    runs = np.searchsorted([run.begun.started_us for run in past.runs], clock, side="right")
    is_next = (np.diff(runs) == 0) & (points.column("last_tick").to_numpy()[1:] == tick[1:])
    peaks = np.append(np.nan, np.where(is_next, clock[1:] - marks[:-1], np.nan)) / _US
    if every > 1:
        peaks = np.fmax.reduceat(peaks, _bucket_starts(tick, every))
    return [
        float(peak) if value is not None and peak > value else None
        for peak, value in zip(peaks, values, strict=True)
    ]


def _points(series: Series, what: str, every: int) -> tuple[list[int], list[Any]]:
    """The clocks, and the values: of so many ticks each the last one, the ``max`` or the ``total``."""
    clocks, values = series.points.column("last_us"), series.points.column(what)
    if every > 1 and len(series):
        starts = _bucket_starts(series.points.column("first_tick").to_numpy(), every)
        ends = pa.array(np.append(starts[1:], len(series)) - 1)
        clocks = clocks.take(ends)
        if what == "last":
            values = values.take(ends)
        else:  # amounts, of which none is NULL
            values = pa.array(_SUMMED[what].reduceat(values.to_numpy(), starts))
    return clocks.to_pylist(), values.to_pylist()


def _bucket_starts(ticks: np.ndarray[Any, Any], every: int) -> np.ndarray[Any, Any]:
    """Where the first point of each so many ticks is."""
    buckets = ticks // every
    return np.flatnonzero(np.diff(buckets, prepend=buckets[0] - 1))
