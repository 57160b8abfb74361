"""A job's history as the document that the page draws: plain values, ready for JSON.

Times of the clock are seconds since 1970, with fractions; event times are µs, or plain integers where the
column is one; sizes are bytes. A series has a point per tick, or per several ticks where there are more than
`MOST_POINTS`, and a NULL where nothing is known: before the first row, and while no run was on.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow.compute as pc

from watersmeet.history.figures import JOB
from watersmeet.history.past import Past, Series
from watersmeet.history.points import END, names_of, rolled
from watersmeet.history.runs import Run
from watersmeet.observe.account import LABELS, PLACES
from watersmeet.observe.reports import input_name
from watersmeet.watermark.lateness import INTEGER_BUCKETS, TIME_BUCKETS

MOST_POINTS = 1_500
_US = 1_000_000

Document = dict[str, Any]


def document_of(past: Past, title: str) -> Document:
    """The whole document. ``title``: the job, as its user calls it."""
    thin = _thinned(past)
    last = past.runs[-1] if past.runs else None
    ticks = past.points.column("last_tick")
    return {
        "title": title,
        "until": past.until_us,
        "status": _status(last),
        "ticks": pc.max(ticks).as_py() or 0,
        "runs": [_run(run) for run in past.runs],
        "plan": "" if last is None else last.begun.plan,
        "settings": {} if last is None else dict(last.begun.settings),
        "charts": _charts(thin, frozenset() if last is None else frozenset(last.begun.integer_times)),
        "inputs": [_input(past, subject) for subject in past.subjects("input")],
        "told": [
            {"tick": tick, "at": clock / _US, "of": _name(of), "what": figure, "text": text}
            for tick, clock, of, figure, text in past.told()
        ],
        "problems": list(past.problems),
    }


def _status(run: Run | None) -> str:
    if run is None:
        return "it has not run"
    return "running, or killed" if run.ended is None else run.ended.how


def _run(run: Run) -> Document:
    ended = run.ended
    return {
        "started": run.begun.started_us / _US,
        "ended": None if ended is None else ended.ended_us / _US,
        "how": _status(run),
        "error": None if ended is None else ended.error,
        "notices": [] if ended is None else list(ended.notices),
        "version": run.begun.version,
        "machine": run.begun.machine,
    }


def _thinned(past: Past) -> Past:
    """The same with `MOST_POINTS` points of a series at most, about."""
    ticks = pc.count_distinct(past.points.column("last_us")).as_py()
    every = -(-ticks // MOST_POINTS)
    return past if every <= 1 else Past(rolled(past.points, every), past.runs)


def _charts(past: Past, integers: frozenset[str]) -> list[Document]:
    """``kind`` says how the values of a chart are to be shown: rows, bytes, seconds, time, integer."""
    times = past.subjects("time")
    marks = [(subject, "watermark") for subject in times if subject not in integers]
    whole = [(subject, "watermark") for subject in times if subject in integers]
    sources, queries, inputs = (past.subjects(kind) for kind in ("source", "query", "input"))
    charts = [
        _chart(past, "watermarks", "Watermarks", "time", marks),
        _chart(past, "lag", "How far watermarks are behind the clock", "seconds", marks, behind=True),
        _chart(past, "integers", "Watermarks of integer times", "integer", whole),
        _chart(past, "read", "Rows read per second", "rate", [(source, "rows") for source in sources]),
        _chart(past, "written", "Rows to sinks", "rows", [(query, "rows_out") for query in queries]),
        _chart(past, "unread", "Not read yet", "rows", [(source, "unread") for source in sources]),
        _chart(past, "kept", "Retained rows", "rows", [(one, "retained") for one in inputs]),
        _chart(past, "state", "State, in files", "bytes", [(query, "bytes") for query in queries]),
        _chart(past, "late", "Late rows so far", "rows", [(one, "late") for one in inputs]),
        _chart(past, "ticks", "Seconds of a tick", "seconds", [(JOB, "seconds")], per_tick=True),
        _chart(
            past,
            "parts",
            "… and of its parts",
            "seconds",
            [(part, "seconds") for part in past.subjects("part")],
            per_tick=True,
        ),
    ]
    return [chart for chart in charts if chart["series"]]


def _chart(
    past: Past,
    key: str,
    title: str,
    kind: str,
    figures: Iterable[tuple[str, str]],
    *,
    behind: bool = False,
    per_tick: bool = False,
) -> Document:
    """``behind``: of event times, how far they are behind the clock; ``per_tick``: the most of a tick."""
    series = []
    elapsed = dict(zip(*_points(past.series(JOB, "elapsed"), "total"), strict=True)) if kind == "rate" else {}
    for of, figure in figures:
        points = past.series(of, figure)
        clock, values = _points(points, "most" if per_tick else "total" if kind == "rate" else "last")
        if behind:
            values = [
                None if v is None or v == END else (at - v) / _US for at, v in zip(clock, values, strict=True)
            ]
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
            series.append({"name": _name(of), "at": [at / _US for at in clock], "values": values})
    return {"key": key, "title": title, "kind": kind, "series": series}


def _points(series: Series, name: str) -> tuple[list[int], list[Any]]:
    return series.points.column("last_us").to_pylist(), series.values(name)


def _input(past: Past, subject: str) -> Document:
    """What has become of an input's rows, as of its last tick: of what that tick had none of there is none,
    whatever ticks before it had, that were gone back from."""
    last: dict[str, int] = {}
    late: dict[str, dict[str, int]] = {}
    until = past.series(subject, "retained").until_us
    for figure in past.figures(subject):
        series = past.series(subject, figure)
        values = series.values()
        if series.until_us != until or values[-1] is None:
            continue
        if figure.startswith(_LATE_OF):
            column, bucket = figure.removeprefix(_LATE_OF).rsplit(" ", 1)
            late.setdefault(column, {})[bucket] = values[-1]
        else:
            last[figure] = values[-1]
    late = {column: dict(sorted(of.items(), key=lambda bar: _ORDER[bar[0]])) for column, of in late.items()}
    places = {LABELS.get(place, place): last[place] for place in PLACES if last.get(place)}
    return {"name": _name(subject), "in": last.get("in", 0), "places": places, "late": late}


_LATE_OF = "late of "
_ORDER = {bucket: n for n, bucket in enumerate((*TIME_BUCKETS, *INTEGER_BUCKETS[:-1]))}


def _name(subject: str) -> str:
    """As people know it."""
    kind, *names = names_of(subject)
    if kind in ("input", "time"):
        names[1] = input_name(names[1])
    return ".".join(names) if names else kind
