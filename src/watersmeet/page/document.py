"""A job's history as the document that the page draws: plain values, ready for JSON.

Times of the clock are seconds since 1970, with fractions; event times are µs, or plain integers where the
column is one; sizes are bytes. The time lines are those of `charts`; all else is as of the last tick, or as
of the last time that somebody looked, see `history.looks`.
"""

from __future__ import annotations

import time
from typing import Any

import pyarrow.compute as pc

from watersmeet.history.figures import ELAPSED, JOB
from watersmeet.history.past import Past
from watersmeet.history.points import END, names_of
from watersmeet.history.runs import Begun, Run
from watersmeet.observe.account import LABELS, PLACES
from watersmeet.page.charts import charts_of, name_of, partitions_of
from watersmeet.page.kept import sides_of, used_of
from watersmeet.page.layout import Placed, laid_out
from watersmeet.watermark.lateness import INTEGER_BUCKETS, TIME_BUCKETS

RECENT_TICKS = 64
"""What is as of the last tick is in one of these; what somebody looked at is, if ticks are not very short."""
RATE_TICKS = 10
_US = 1_000_000

Document = dict[str, Any]


def document_of(
    past: Past, title: str, after: int = 0, *, is_held: bool | None = None, now: float | None = None
) -> Document:
    """The whole document.

    Args:
        title: the job, as its user calls it.
        after: of time lines, and of what was told, only what came after that clock (µs).
        is_held: whether a process holds the checkpoint; None: nobody knows.
        now: the clock, in seconds; None: the system's.
    """
    last = past.runs[-1] if past.runs else None
    begun = Begun(started_us=0, version="", machine="") if last is None else last.begun
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
        "limits": used_of(recent, begun.limits),
        "events": [
            {"tick": tick, "at": clock / _US, "subject": name_of(of), "event": figure, "text": text}
            for tick, clock, of, figure, text in new.told()
        ],
        "problems": list(past.problems),
    }


def status_of(run: Run | None, is_held: bool | None) -> str:
    """How a run is, as `document_of` knows it. One that wrote no end is running or was killed."""
    if run is None or run.ended is not None:
        ended = "not started" if run is None or run.ended is None else run.ended.how
        return "starting" if is_held else ended
    return "unknown" if is_held is None else "running" if is_held else "killed"


def _run(run: Run, is_held: bool | None) -> Document:
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


def _drawing(begun: Begun) -> Document:
    """The plan with a place for everything, in pixels."""
    drawn = laid_out(begun.drawing)
    return {
        "width": drawn.width,
        "height": drawn.height,
        "nodes": [_node(placed) for placed in drawn.nodes],
        "edges": [
            {"from": edge.start, "to": edge.end, "begin": begin, "end": end, "of": edge.of}
            for edge, begin, end in drawn.edges
        ],
    }


def _node(placed: Placed) -> Document:
    node = placed.node
    return {
        "id": node.id,
        "kind": node.kind,
        "lines": placed.lines,
        "whole": node.lines,
        "input": name_of(node.of) if node.of.startswith("input/") else None,
        "box": (placed.x, placed.y, placed.width, placed.height),
    }


def _flows(past: Past, begun: Begun) -> dict[str, Document]:
    """By subject what goes along the edges of the drawing: ``rate``, rows a second over the last ticks;
    ``retained``: rows; ``watermarks``: per event time the watermark, and how it is to be shown."""
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
    query, alias = names_of(subject)[1:]
    told = {"name": name_of(subject), "query": query, "input": alias}
    return {**told, "in": last.get("in", 0), "places": places, "late": late}


_LATE_OF = "late of "
_ORDER = {bucket: n for n, bucket in enumerate((*TIME_BUCKETS, *INTEGER_BUCKETS[:-1]))}
