"""A job's history as the document that the page draws."""

from __future__ import annotations

import heapq
import json
import os
import re
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from watersmeet.history.plan_document import PlannedLimit, SideFiles
from watersmeet.history.points import DURATION, ELAPSED, END, JOB, names_of, subject_of
from watersmeet.history.reader import JobHistory, Series
from watersmeet.history.segments import RunRecord, RunStart
from watersmeet.observe.reports import input_name
from watersmeet.observe.row_accounting import LABELS, PLACES
from watersmeet.page.layout import PlacedNode, lay_out_drawing
from watersmeet.watermark.lateness import INTEGER_BUCKETS, TIME_BUCKETS

# Rows that a job has set aside, as samples: of the last files of its side output, where these are JSON or
# Parquet in a folder that this process can read.
#
# What is there was written for people; it is shown on the served page, and in no report.

MOST_ROWS, MOST_FILES = 20, 5
MAX_CHARACTERS = 300
_TAIL = 64 * 1024
_PUBLISHED = re.compile(r"[^._].*-(\d{12})-\d{5,}[-.].+")
_COLUMNS = ("input", "reason", "late_by", "watermark_key", "record")


def samples_of(files: SideFiles | None) -> list[dict[str, Any]]:
    """Read the last rows of the files, newest file first; return [] if none can be read."""
    if files is None:
        return []
    rows: list[dict[str, Any]] = []
    try:
        for file in _newest(Path(files.path), files.format):
            read = _of_parquet(file) if files.format == "parquet" else _of_json(file)
            rows += [_format_row(row) for row in read]
            if len(rows) >= MOST_ROWS:
                break
    except (OSError, ValueError, pa.ArrowException):
        pass  # it goes on being written, or is none of ours: what could be read is enough
    return rows[:MOST_ROWS]


def _newest(folder: Path, kind: str) -> list[Path]:
    """Return the files of the last ticks; a folder may contain very many files.

    The names of published files contain their tick numbers.
    """
    files = [
        (int(of_tick[1]), name)
        for name in os.listdir(folder)
        if (of_tick := _PUBLISHED.fullmatch(name)) and name.endswith(f".{kind}")
    ]
    return [folder / name for _, name in heapq.nlargest(MOST_FILES, files)]


def _of_parquet(file: Path) -> list[dict[str, Any]]:
    with pq.ParquetFile(file) as opened:
        last = opened.num_row_groups - 1
        names = [name for name in _COLUMNS if name in opened.schema_arrow.names]
        batches = opened.iter_batches(MOST_ROWS, row_groups=[last], columns=names) if last >= 0 else iter(())
        return [row for batch in islice(batches, 1) for row in batch.to_pylist()]


def _of_json(file: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows at the end of a JSON file; skip a first line that may be incomplete."""
    with file.open("rb") as opened:
        size = opened.seek(0, 2)
        opened.seek(max(0, size - _TAIL))
        lines = opened.read().splitlines()[1 if size > _TAIL else 0 :]
    for line in lines[-MOST_ROWS:]:
        row = json.loads(line)
        if isinstance(row, dict):
            yield row


def _format_row(row: dict[str, Any]) -> dict[str, Any]:
    told = {name: row.get(name) for name in _COLUMNS}
    record = told["record"]
    text = record if isinstance(record, str) else json.dumps(record)
    told["record"] = text if len(text) <= MAX_CHARACTERS else f"{text[: MAX_CHARACTERS - 1]}…"
    return told


# The time lines of a document: series of a history on axes of the clock.
#
# A chart has ``at``, its clocks (seconds since 1970), and per series ``values``, one for each; a series
# that has other clocks has an ``at`` of its own. There is a point per tick, or per several ticks where
# there are more than `MAX_POINTS`, and a NULL where nothing is known. ``kind`` says how values are to be
# shown: rows, bytes, seconds, rate, time, integer; ``stacked``: each line stands on those before it;
# ``to_now``: while the job runs, lines go on from the last tick until now. ``peaks`` of a series: the
# most that it was since the point before, for it grows until a tick ends; NULL where that is not more
# than its value.

MAX_POINTS = 500
MAX_PARTITION_POINTS = 150
_US = 1_000_000
_SUMMED = {"max": np.maximum, "total": np.add}
WATERMARK_OF = "watermark of "

Chart = dict[str, Any]


def _ticks_per_point(past: JobHistory, most: int) -> int:
    """Return the number of ticks per chart point for at most about `most` points per chart."""
    return max(1, -(-past.ticks // most))


def charts_of(past: JobHistory, integers: Collection[str]) -> list[Chart]:
    """Build the charts of a job.

    Args:
        integers: the subjects whose watermarks are integers.
    """
    every = _ticks_per_point(past, MAX_POINTS)
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


def partitions_of(past: JobHistory, integers: Collection[str]) -> list[dict[str, Any]]:
    """Build the partition section of each input that reports partitions.

    Returns:
        Per input: its ``charts``, one per event time; ``last_row_at``, the clock of each partition's
        last row (seconds; NULL: it has had no row); and the numbers of all and of idle partitions.
    """
    own, told = past.of_kind("partition"), []
    every = _ticks_per_point(own, MAX_PARTITION_POINTS)
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
    """Return the name of a subject for people.

    The name is ``query.input``, or ``source/partition`` for a partition.
    """
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
    past: JobHistory,
    every: int,
    key: str,
    title: str,
    kind: str,
    figures: Iterable[tuple[str, str]],
    *,
    behind: bool = False,
    per_tick: bool = False,
) -> Chart:
    """Build a chart of figures.

    Args:
        every: ticks per point.
        behind: show by how much event times lag the clock.
        per_tick: show the maximum of a tick.
    """
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


def _peaks(past: JobHistory, series: Series, every: int, values: list[float | None]) -> list[float | None]:
    """Compute a watermark's greatest lag since the previous point, in seconds.

    A watermark stands still until a tick ends. Its lag is unknown where the previous point stands for
    several ticks or belongs to an earlier run.
    """
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
    """Return the clocks and the values of a series, one point per `every` ticks.

    The value of a point is the last one, the ``max`` or the ``total``.
    """
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
    """Return the index of the first point of each group of `every` ticks."""
    buckets = ticks // every
    return np.flatnonzero(np.diff(buckets, prepend=buckets[0] - 1))


# What a document says of the state: per side of a join what it keeps, beside its forecast, the keys that
# have most of its rows, and how far the limits are away.

_FIGURES = ("retained", "file_bytes", "forecast_rows", "forecast_bytes")


def sides_of(past: JobHistory) -> list[dict[str, Any]]:
    """Return the sides with their figures as of the last sample.

    ``hot_keys`` are heavy keys, each with its approximate number of rows.
    """
    keys = past.keys("hot_keys")
    sides = []
    for subject in past.subjects("side"):
        told = {
            "name": name_of(subject),
            **{figure: _last_value(past, subject, figure) for figure in _FIGURES},
        }
        heaviest = sorted(keys.get(subject, {}).items(), key=lambda key: (-key[1], key[0]))
        sides.append({**told, "hot_keys": [{"key": key, "rows": rows} for key, rows in heaviest]})
    return sides


def limit_usage(past: JobHistory, limits: Sequence[PlannedLimit]) -> list[dict[str, Any]]:
    """Return the limits, each with the amount that is ``used``; NULL: unknown."""
    told = []
    for limit in limits:
        amounts = [
            _last_value(past, subject, "file_bytes" if limit.in_bytes else "retained") for subject in limit.of
        ]
        told_of = [amount for amount in amounts if amount is not None]
        told.append(
            {"name": limit.name, "owner": limit.owner, "limit": limit.most}
            | {"kind": "bytes" if limit.in_bytes else "rows", "used": sum(told_of) if told_of else None}
        )
    return told


def _last_value(past: JobHistory, subject: str, figure: str) -> int | None:
    values = past.series(subject, figure).values()
    return values[-1] if values else None


# A job's history as the document that the page draws: plain values, ready for JSON.
#
# Times of the clock are seconds since 1970, with fractions; event times are µs, or plain integers where
# the column is one; sizes are bytes. The time lines are those of `charts`; all else is as of the last
# tick, or as of the last time that somebody looked, see `history.recorder`.

RECENT_TICKS = 64
"""What is as of the last tick is in one of these; what somebody looked at is, if ticks are not very short."""
RATE_TICKS = 10

Document = dict[str, Any]


def document_of(
    past: JobHistory, title: str, after: int = 0, *, is_held: bool | None = None, now: float | None = None
) -> Document:
    """Build the whole document of the page.

    Args:
        title: name of the job for its user.
        after: include only points of time series, and texts, after this clock (µs).
        is_held: whether a process holds the checkpoint; None: unknown.
        now: the clock, in seconds; None: the system's.
    """
    last = past.runs[-1] if past.runs else None
    begun = RunStart(started_us=0, version="", machine="") if last is None else last.begun
    new = past.since(after) if after else past
    recent = past.recent(RECENT_TICKS)
    integers = frozenset(begun.integer_times)
    return {
        "title": title,
        "last_tick_us": past.until_us,
        "now": time.time() if now is None else now,
        "status": status_of(last, is_held),
        "ticks": pc.max(past.points.column("last_tick")).as_py() or 0,
        "runs": [_run(run, is_held if run is last else False) for run in past.runs],
        "plan": begun.plan,
        "drawing": _drawing(begun),
        "flows": _flows(recent, begun),
        "settings": dict(begun.settings),
        "charts": charts_of(new, integers),
        "partitions": partitions_of(new, integers),
        "inputs": [_input(recent, subject) for subject in recent.subjects("input")],
        "sides": sides_of(recent),
        "limits": limit_usage(recent, begun.limits),
        "events": [
            {"tick": tick, "at": clock / _US, "subject": name_of(of), "event": figure, "text": text}
            for tick, clock, of, figure, text in new.told()
        ],
        "problems": list(past.problems),
    }


def status_of(run: RunRecord | None, is_held: bool | None) -> str:
    """Return the status of a run from its record and from `is_held` (see `document_of`).

    A run without a recorded end is running or was killed.
    """
    if run is None or run.ended is not None:
        ended = "not started" if run is None or run.ended is None else run.ended.how
        return "starting" if is_held else ended
    return "unknown" if is_held is None else "running" if is_held else "killed"


def _run(run: RunRecord, is_held: bool | None) -> Document:
    ended = run.ended
    return {
        "started": run.begun.started_us / _US,
        "ended": None if ended is None else ended.ended_us / _US,
        "status": status_of(run, is_held) if ended is None else ended.how,
        "error": None if ended is None else ended.error,
        "notices": [] if ended is None else list(ended.notices),
        "version": run.begun.version,
        "machine": run.begun.machine,
    }


def _drawing(begun: RunStart) -> Document:
    """Return the drawing of the plan with positions, in pixels."""
    drawn = lay_out_drawing(begun.drawing)
    return {
        "width": drawn.width,
        "height": drawn.height,
        "nodes": [_node(placed) for placed in drawn.nodes],
        "edges": [
            {"from": edge.start, "to": edge.end, "begin": begin, "end": end, "of": edge.of}
            for edge, begin, end in drawn.edges
        ],
    }


def _node(placed: PlacedNode) -> Document:
    node = placed.node
    return {
        "id": node.id,
        "kind": node.kind,
        "lines": placed.lines,
        "whole": node.lines,
        "input": name_of(node.of) if node.of.startswith("input/") else None,
        "box": (placed.x, placed.y, placed.width, placed.height),
    }


def _flows(past: JobHistory, begun: RunStart) -> dict[str, Document]:
    """Return, by subject, the figures on the edges of the drawing.

    ``rate``: rows per second over the last ticks; ``retained``: rows; ``watermarks``: per event time
    the watermark, and how to show it.
    """
    last = past.recent(RATE_TICKS)
    elapsed = sum(value or 0 for value in last.series(JOB, ELAPSED).values("total")) / _US
    flows: dict[str, Document] = {}
    for subject in last.subjects("source"):
        rows = sum(value or 0 for value in last.series(subject, "rows_in").values("total"))
        backlog = last.series(subject, "backlog").values()
        flows[subject] = {
            "rate": rows / elapsed if elapsed else None,
            "backlog": backlog[-1] if backlog else None,
        }
    for subject in last.subjects("query"):
        rows_out = last.series(subject, "total_rows_out")
        clock = rows_out.points.column("last_us").to_pylist()
        levels = [value or 0 for value in rows_out.values()]
        took = (clock[-1] - clock[0]) / _US if clock else 0
        flows[subject] = {"rate": (levels[-1] - levels[0]) / took if took > 0 else None}
    for subject in past.subjects("input"):
        retained = past.series(subject, "retained").values()
        flows[subject] = {"retained": retained[-1] if retained else None, "watermarks": []}
    for subject in past.subjects("time"):
        owner, _, column = subject.rpartition("/")
        flow = flows.get(f"input/{owner.removeprefix('time/')}")
        marks = past.series(subject, "watermark").values()
        if flow is not None and marks:
            kind = "integer" if subject in begun.integer_times else "time"
            value = "end" if marks[-1] == END else marks[-1]
            flow["watermarks"].append({"column": name_of(f"column/{column}"), "value": value, "kind": kind})
    return flows


def _input(past: JobHistory, subject: str) -> Document:
    """Return the outcomes of an input's rows as of its last tick.

    A figure that the last tick does not have is omitted, even if ticks before it had one and the job
    went back to an earlier tick.
    """
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
    query, alias = names_of(subject)[1:]
    told = {"name": name_of(subject), "query": query, "input": alias}
    return {**told, "in": last.get("in", 0), "places": places, "late": late}


_LATE_OF = "late of "
_ORDER = {bucket: n for n, bucket in enumerate((*TIME_BUCKETS, *INTEGER_BUCKETS[:-1]))}
