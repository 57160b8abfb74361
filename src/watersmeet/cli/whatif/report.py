"""Report what other settings would have changed, as text and as a plot."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from watersmeet.errors import SpecError, format_count, printable
from watersmeet.plan.explain.wording import distance, number_of, rounded_up, size_of
from watersmeet.whatif.lags import EventStream
from watersmeet.whatif.sample import Sample
from watersmeet.whatif.settings import Setting
from watersmeet.whatif.trial import OfInput, OfQuery, TrialOutcome

_TABLE_WIDTH = 160
"""Columns of a table that is not on a terminal."""


@dataclass(frozen=True)
class Suggestion:
    """Suggested lags for a wanted ``share`` of late rows.

    Args:
        least: For each source, the smallest lag that achieves the share.
        lags: The same lags, rounded up.
        outcome: Outcome of a trial with ``lags``.
        lines: Lines of the job's text that set the lags.
    """

    share: float
    least: Mapping[str, int]
    lags: Mapping[str, int]
    outcome: TrialOutcome
    lines: Sequence[str]


@dataclass(frozen=True)
class Findings:
    """All that is shown. ``notes``: how the sample was taken, and what is not worked out."""

    outcomes: Sequence[TrialOutcome]
    suggestion: Suggestion | None
    streams: Mapping[str, EventStream]
    sample: Sample
    notes: Sequence[str]
    seconds: float


def print_text(findings: Findings, plot: str | None) -> None:
    """Print a table per query, the notes, and the suggestion."""
    from rich.console import Console
    from rich.table import Table

    out = Console(file=sys.stdout, width=None if sys.stdout.isatty() else _TABLE_WIDTH)
    outcomes = [*findings.outcomes, *([findings.suggestion.outcome] if findings.suggestion else [])]
    for name in outcomes[0].queries:
        out.print(printable(name), style="italic", markup=False, highlight=False)
        table = Table(header_style="bold")
        columns = [*_columns(findings, name, outcomes)]
        for title, _ in columns:
            table.add_column(printable(title), justify="right" if title else "left", overflow="fold")
        for outcome in outcomes:
            table.add_row(*(printable(cell(outcome)) for _, cell in columns))
        out.print(table)
    lines = [*_format_sample(findings)]
    if findings.suggestion:
        lines += _format_suggestion(findings, findings.suggestion)
    if plot is not None:
        lines.append(f"plot: {plot}")
    for line in lines:
        print(printable(line))


Cell = Callable[[TrialOutcome], str]


def _columns(findings: Findings, name: str, outcomes: Sequence[TrialOutcome]) -> Iterator[tuple[str, Cell]]:
    own = outcomes[0].queries[name]
    in_time = findings.sample.in_time
    yield "", lambda outcome: outcome.setting.title
    for source, stream in findings.streams.items():
        if stream.lag is not None:
            yield f"lag {source}", _lag_of(source, stream.in_time)
    if any(outcome.setting.scale != 1 for outcome in outcomes):
        yield "interval", lambda outcome: f"×{float(outcome.setting.scale):g}"
    if any(not outcome.setting.keeps_idle for outcome in outcomes):
        yield "idle", lambda outcome: _idle(outcome.setting)
    for alias in own.inputs:
        yield f"late {alias}", _late_cell(name, alias)
    if any(outcome.queries[name].matches is not None for outcome in outcomes):
        yield "lost matches", lambda outcome: _format_lost(outcome.queries[name])
    yield "retained at most", lambda outcome: f"{outcome.queries[name].most:,}"
    yield "on average", lambda outcome: number_of(outcome.queries[name].average)
    yield "bytes at most", lambda outcome: size_of(outcome.queries[name].most_bytes)
    if any(_longest_wait(outcome.queries[name]) is not None for outcome in outcomes):
        yield "a row waits", lambda outcome: _length(_longest_wait(outcome.queries[name]), in_time)


def _lag_of(source: str, in_time: bool) -> Cell:
    return lambda outcome: distance(outcome.lags[source], in_time)


def _late_cell(query: str, alias: str) -> Cell:
    return lambda outcome: _late_text(outcome.queries[query].inputs[alias])


def _idle(setting: Setting) -> str:
    if setting.keeps_idle:
        return "as it is"
    return "none" if setting.idle is None else distance(setting.idle, True)


def _late_text(own: OfInput) -> str:
    return f"{own.late:,} ({_percent(own.late_share)})"


def _percent(share: float) -> str:
    """Format a share as a percentage.

    >>> _percent(0.0), _percent(0.00001), _percent(0.1234)
    ('0%', '0.001%', '12.3%')
    """
    return "0%" if share == 0 else f"{share * 100:.3g}%"


def _format_lost(own: OfQuery) -> str:
    if own.matches is None or own.lost is None:
        return "?"
    return f"{own.lost:,} ({_percent(own.lost / own.matches if own.matches else 0.0)})"


def _longest_wait(own: OfQuery) -> float | None:
    """Return the longest mean wait of any input, over its rows that were released."""
    return max((i.mean_delay for i in own.inputs.values() if i.mean_delay is not None), default=None)


def _length(value: float | None, in_time: bool) -> str:
    if value is None:
        return "?"
    return rounded_up(round(value)) if in_time else number_of(value)


def _format_sample(findings: Findings) -> Iterator[str]:
    sample = findings.sample
    rows = ", ".join(f"{name} {own.count:,}" for name, own in sample.sources.items())
    per_tick = number_of(sample.rows / sample.ticks)
    per_tick = f"about {per_tick} {'row' if per_tick == '1' else 'rows'}"
    ticks = format_count(sample.ticks, "tick")
    yield f"Sample: rows of {rows}; {ticks} of {per_tick}. {findings.seconds:.1f} s"
    yield from (f"note: {note}" for note in findings.notes)


def _format_suggestion(findings: Findings, suggestion: Suggestion) -> Iterator[str]:
    yield f"For at most {_percent(suggestion.share)} late rows:"
    yield from (f"  {line}" for line in suggestion.lines)
    for source, least in suggestion.least.items():
        stream = findings.streams[source]
        yield f"  {source}: the least lag that does is {distance(least, stream.in_time)}"
    for name, query in suggestion.outcome.queries.items():
        for alias, own in query.inputs.items():
            if own.late_share > suggestion.share:
                yield (
                    f"  {name}: {_percent(own.late_share)} of {alias} are late even so: its watermark does"
                    " not go by its own rows alone (idle or followed sources, or lateness = join)"
                )


def _setting_as_json(outcome: TrialOutcome) -> dict[str, Any]:
    setting = outcome.setting
    return {
        "setting": setting.title,
        "lags": dict(outcome.lags),
        "interval_scale": float(setting.scale),
        "idle_timeout_us": "as declared" if setting.keeps_idle else setting.idle,
    }


def _query_as_json(own: OfQuery) -> dict[str, Any]:
    return {
        "matches": own.matches,
        "lost_matches": own.lost,
        "max_retained_rows": own.most,
        "mean_retained_rows": round(own.average, 3),
        "max_retained_bytes": round(own.most_bytes),
        "mean_retained_bytes": round(own.average_bytes),
    }


def _input_as_json(own: OfInput) -> dict[str, Any]:
    return {
        "rows": own.rows,
        "late": own.late,
        "late_share": own.late_share,
        "null_time": own.null_time,
        "max_retained_rows": own.most,
        "mean_retained_rows": round(own.average, 3),
        "mean_wait": None if own.mean_delay is None else round(own.mean_delay, 3),
        "max_wait": own.most_delay,
    }


def print_json(findings: Findings) -> None:
    """Print one line of JSON per setting, and one for the sample and the suggestion.

    Lags and waits are in µs, or in plain units of integer times.
    """
    for outcome in findings.outcomes:
        print(json.dumps(_json_line(outcome), ensure_ascii=False))
    sample = findings.sample
    told: dict[str, Any] = {
        "sources": {name: own.count for name, own in sample.sources.items()},
        "ticks": sample.ticks,
        "by_arrival": sample.by_arrival,
        "notes": list(findings.notes),
        "seconds": round(findings.seconds, 3),
    }
    if findings.suggestion is not None:
        told["suggestion"] = {
            "max_late_share": findings.suggestion.share,
            "min_lags": dict(findings.suggestion.least),
            "declarations": list(findings.suggestion.lines),
            **_json_line(findings.suggestion.outcome),
        }
    print(json.dumps({"whatif": told}, ensure_ascii=False))


def _json_line(outcome: TrialOutcome) -> dict[str, Any]:
    queries = {
        name: _query_as_json(own) | {"inputs": {alias: _input_as_json(i) for alias, i in own.inputs.items()}}
        for name, own in outcome.queries.items()
    }
    return _setting_as_json(outcome) | {"queries": queries}


def print_csv(findings: Findings) -> None:
    """Print one CSV line per setting, query and input, with the suggested setting last.

    Values of a query are repeated in the line of each of its inputs.
    """
    outcomes = [*findings.outcomes, *([findings.suggestion.outcome] if findings.suggestion else [])]
    writer = csv.writer(sys.stdout, lineterminator="\n")
    first = True
    for number, outcome in enumerate(outcomes, 1):
        plain = _setting_as_json(outcome)
        lags = {f"lag {name}": lag for name, lag in plain.pop("lags").items()}
        for name, query in outcome.queries.items():
            for alias, own in query.inputs.items():
                row = {
                    "number": number,
                    **plain,
                    **lags,
                    "query": name,
                    "input": alias,
                    **_input_as_json(own),
                }
                row |= {f"query_{word}": value for word, value in _query_as_json(query).items()}
                if first:
                    writer.writerow(row)
                    first = False
                writer.writerow(row.values())


_PLOT_WIDTH, _HEIGHT = 8.0, 4.5


def plot(
    path: str,
    outcomes: Sequence[TrialOutcome],
    suggestion: Suggestion | None,
    streams: Mapping[str, EventStream],
) -> None:
    """Draw one plot per query below each other, and write the picture to a file.

    Each plot has a line per interval and idle timeout, and a point per lag.

    Raises:
        SpecError: The file cannot be written.
    """
    from matplotlib.figure import Figure

    names = list(outcomes[0].queries)
    figure = Figure(figsize=(_PLOT_WIDTH, _HEIGHT * len(names)), layout="constrained")
    for name, axes in zip(names, figure.subplots(len(names), squeeze=False)[:, 0], strict=True):
        _draw(axes, name, outcomes, suggestion, streams)
    try:
        figure.savefig(path)
    except OSError as error:
        raise SpecError(
            f"--plot {path} cannot be written: {error.strerror or error}", code="not-written"
        ) from None


def _draw(
    axes: Any,
    name: str,
    outcomes: Sequence[TrialOutcome],
    suggestion: Suggestion | None,
    streams: Mapping[str, EventStream],
) -> None:
    lines: dict[str, list[TrialOutcome]] = {}
    for outcome in outcomes:
        lines.setdefault(_line(outcome), []).append(outcome)
    for label, points in lines.items():
        points = sorted(
            points, key=lambda own: (own.queries[name].average, -_max_late_share(own.queries[name]))
        )
        kept = [own.queries[name].average for own in points]
        late = [100 * _max_late_share(own.queries[name]) for own in points]
        axes.plot(kept, late, marker="o", label=label)
        for own, x, y in zip(points, kept, late, strict=True):
            axes.annotate(_lags(own, streams), (x, y), textcoords="offset points", xytext=(5, 5), fontsize=7)
    if suggestion is not None:
        suggested = suggestion.outcome.queries[name]
        late = [100 * _max_late_share(suggested)]
        axes.plot([suggested.average], late, marker="*", markersize=14, linestyle="", label="suggested")
        axes.axhline(100 * suggestion.share, linestyle=":", linewidth=1)
    axes.set_title(name)
    axes.set_xlabel("rows retained on average")
    axes.set_ylabel("late rows, % of the worst input")
    axes.set_ylim(bottom=0)
    axes.margins(x=0.2)
    if len(lines) > 1 or suggestion is not None:
        axes.legend()


def _max_late_share(own: OfQuery) -> float:
    return max(given.late_share for given in own.inputs.values())


def _line(outcome: TrialOutcome) -> str:
    setting = outcome.setting
    words = [f"interval × {float(setting.scale):g}"]
    if not setting.keeps_idle:
        words.append("no idle timeout" if setting.idle is None else f"idle {distance(setting.idle, True)}")
    return ", ".join(words)


def _lags(outcome: TrialOutcome, streams: Mapping[str, EventStream]) -> str:
    return ", ".join(distance(lag, streams[name].in_time) for name, lag in outcome.lags.items())
