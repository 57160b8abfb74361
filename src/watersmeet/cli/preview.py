"""`preview`: the first rows of a job's results, from the first rows of its sources, in this process.

Files alone are read, nothing is written. What a value is, Spark decides: an expression or a record of which
that is not certain here is refused by name, or left out and counted.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from watersmeet.cli.output import format_json_value
from watersmeet.errors import EngineError, format_count, printable
from watersmeet.names import is_ours

ROWS, LIMIT = 1_000, 20
TABLE_ROWS = 100_000
"""A table is read as a whole, as far as it has no more."""


@dataclass
class PreviewResult:
    """Result of one INSERT: its columns, the first rows as JSON values, and the row count.

    Args:
        unmatched: For each row, the inputs without a match, whose columns are NULL; empty if no row
            can be unmatched.
        times: Positions of the columns that are times.
        dropped: For each input and reason, the number of rows that are in no result.
    """

    names: list[str] = field(default_factory=list)
    rows: list[list[Any]] = field(default_factory=list)
    count: int = 0
    unmatched: list[list[str]] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    dropped: dict[str, dict[str, int]] = field(default_factory=dict)


def preview_text(
    text: str, source_name: str, overrides: Mapping[str, str], *, rows: int, limit: int, as_json: bool
) -> None:
    """Print the first ``limit`` rows of every INSERT, made of the first ``rows`` rows of every source.

    Raises:
        WatersmeetError: the job is wrong, or there is no preview of something in it, which is named.
    """
    from watersmeet.cli.job_file import job_in
    from watersmeet.cli.output import to_stderr
    from watersmeet.cli.run import locate_error
    from watersmeet.plan.nodes.columns import match_markers, with_markers
    from watersmeet.plan.planner import plan_job
    from watersmeet.runtime.spark.job.column_inference import ColumnInference
    from watersmeet.spec.model import OutputMode

    before = time.monotonic()
    job = job_in(text, source_name, overrides, ColumnInference(say=None if as_json else to_stderr))
    if not job.inserts:
        return
    plan = plan_job(job)
    final = {query.name for query in plan.queries if query.options.mode is OutputMode.APPEND}
    markers = {own.name: match_markers(own) if own.name in final else {} for own in job.inserts}
    samples = _first_rows(plan, rows)
    try:
        marked = plan
        if any(markers.values()):
            inserts = tuple(with_markers(own, markers[own.name]) for own in job.inserts)
            marked = plan_job(replace(job, inserts=inserts))
        rows_of_all = {name: sample.rows for name, sample in samples.items()}
        results = _compute_results(marked, rows_of_all, limit, markers)
    except EngineError as error:
        raise locate_error(error, job, text, source_name) from None
    took = time.monotonic() - before
    if as_json:
        _print_json(results, samples, took)
    else:
        _print_tables(results)
        for line in (*_format_dropped_rows(results), *_footer(plan, samples, took)):
            print(printable(line))


def _first_rows(plan: Any, rows: int) -> dict[str, Any]:
    """Read the first rows of each source and table, after rejecting what a run would not read."""
    from watersmeet.cli.run import check_sources
    from watersmeet.plan.query_inputs import needed_source_columns
    from watersmeet.runtime.files.first_rows import read_first_rows

    zone = plan.queries[0].options.time_zone
    tables = {source.name: source for source in plan.tables}
    branches = [branch for query in plan.queries for side in query.sides for _, branch in side.sources]
    branches += [branch for _, node in plan.lookups for _, branch in node.table.sources]
    sources = {read_source.name: read_source for read_source in (*plan.sources, *tables.values())}
    for source in sources.values():
        if not source.traits.files:
            raise EngineError(
                f'"{source.name}": preview supports file sources only, not {source.connector}',
                code="not-previewed",
                hint="run the job with a console sink and its own checkpoint directory",
            )
    check_sources(plan)
    samples = {}
    for source in sources.values():
        needed = needed_source_columns(
            source, (branch for branch in branches if branch.source.name == source.name)
        )
        count = TABLE_ROWS if source.name in tables else rows
        samples[source.name] = read_first_rows(source, count, zone, needed=needed)
    return samples


def _compute_results(
    plan: Any, rows: Mapping[str, Sequence[Any]], limit: int, markers: Mapping[str, Mapping[str, str]]
) -> dict[str, PreviewResult]:
    """Run all rows in one tick, followed by the end of input, and return the results."""
    import pyarrow as pa

    from watersmeet.plan.nodes.columns import marker_name
    from watersmeet.runtime.local import LocalJob
    from watersmeet.state.store import MemoryStore
    from watersmeet.types.json_values import rows_of

    clock_us = time.time_ns() // 1000
    local = LocalJob(plan, MemoryStore(), clock_us=clock_us, given=True)
    results = {
        query.name: PreviewResult([output.name for output in query.outputs])
        for query in plan.queries
        if not query.is_index
    }
    given = {name: [(row, 1) for row in source_rows] for name, source_rows in rows.items()}
    for output in (local.tick(given, clock_us=clock_us), local.tick({}, clock_us=clock_us, end=True)):
        for name, table in output.tables.items():
            result, aliases = results[name], list(markers.get(name, {}))
            shown = table.select([column for column in table.column_names if not is_ours(column)])
            result.names = shown.column_names
            result.times = [n for n, own in enumerate(shown.schema) if pa.types.is_timestamp(own.type)]
            result.count += table.num_rows
            nulls = [table.column(marker_name(alias)).is_null().to_pylist() for alias in aliases]
            unmatched = [
                [alias for alias, is_null in zip(aliases, row, strict=True) if is_null]
                for row in (zip(*nulls, strict=True) if nulls else [()] * table.num_rows)
            ]
            first = _first(unmatched, limit)
            result.rows += rows_of(shown.take(pa.array(first, pa.int64())))
            result.unmatched += [unmatched[n] for n in first]
        for name in results:  # since the start, both ticks
            told = output.result.queries[name]
            results[name].dropped = {
                alias: dropped
                for alias, counts in told.account.items()
                if (dropped := {reason: counts[reason] for reason in _REASONS if counts.get(reason)})
            }
    for result in results.values():
        first = _first(result.unmatched, limit)
        result.rows = [result.rows[n] for n in first]
        result.unmatched = [result.unmatched[n] for n in first]
    return results


def _first(unmatched: Sequence[Sequence[str]], limit: int) -> list[int]:
    """Return the places of the first ``limit`` rows; a quarter of them is for rows without a match."""
    apart = [n for n, aliases in enumerate(unmatched) if aliases][: limit // 4]
    others = sorted(set(range(min(len(unmatched), limit + len(apart)))) - set(apart))
    return sorted(apart + others[: limit - len(apart)])


_REASONS = {
    "null_time": "without an event time",
    "ahead": "further ahead of the clock than max_ahead",
}
"""In words."""


def _print_json(results: Mapping[str, PreviewResult], samples: Mapping[str, Any], took: float) -> None:
    for name, result in results.items():
        line: dict[str, Any] = {"query": name, "columns": result.names, "rows": result.rows}
        line["more_rows"] = result.count - len(result.rows)
        line["unmatched"] = result.unmatched
        line["dropped"] = result.dropped
        print(json.dumps(line, ensure_ascii=False, allow_nan=False))
    sources = {
        name: {
            "rows": len(sample.rows),
            "broken": sample.left_out,
            "broken_example": sample.example.encode(errors="surrogateescape").decode(errors="replace")
            or None,
            "files": sample.files,
            "has_more": sample.more,
            "unchecked_columns": list(sample.unchecked),
        }
        for name, sample in samples.items()
    }
    print(json.dumps({"preview": {"sources": sources, "seconds": round(took, 3)}}, ensure_ascii=False))


def _print_tables(results: Mapping[str, PreviewResult]) -> None:
    from rich.console import Console

    from watersmeet.observe.notebook import table_of

    out = Console(file=sys.stdout)
    for name, result in results.items():
        days = {row[n].partition("T")[0] for row in result.rows for n in result.times if row[n] is not None}
        day = min(days) if len(days) == 1 else None
        title = f"{name} ({day or 'times'}, UTC)" if days else name
        out.print(printable(title), style="italic", markup=False, highlight=False)
        rows = [
            [
                _short_time(value, day) if n in result.times else format_json_value(value)
                for n, value in enumerate(row)
            ]
            for row in result.rows
        ]
        names = list(result.names)
        if any(result.unmatched):
            names.append("no match in")
            rows = [[*row, ", ".join(own)] for row, own in zip(rows, result.unmatched, strict=True)]
        out.print(table_of(names, rows))
        if result.count > len(result.rows):
            out.print(f"… and {format_count(result.count - len(result.rows), 'more row')}", highlight=False)


def _short_time(value: str | None, day: str | None) -> str | None:
    """Return a time without its zone, without zeros at its end, and without ``day``.

    >>> _short_time("2022-03-01T10:00:00.250000Z", None), _short_time("2022-03-01T10:00:00Z", "2022-03-01")
    ('2022-03-01 10:00:00.25', '10:00:00')
    """
    if value is None:
        return None
    date, _, time_of_day = value.removesuffix("Z").partition("T")
    whole, _, fraction = time_of_day.partition(".")
    fraction = fraction.rstrip("0")
    return ("" if date == day else f"{date} ") + whole + (f".{fraction}" if fraction else "")


def _format_dropped_rows(results: Mapping[str, PreviewResult]) -> Iterator[str]:
    for name, result in results.items():
        for alias, by_reason in result.dropped.items():
            for reason, rows in by_reason.items():
                are = "is" if rows == 1 else "are"
                yield f"{name}: {alias}: {format_count(rows, 'row')} {_REASONS[reason]} {are} in no result"


def _footer(plan: Any, samples: Mapping[str, Any], took: float) -> Iterator[str]:
    from watersmeet.runtime.spark.broken_records import describe_left_out
    from watersmeet.spec.options.files import path_of

    sources = {source.name: source for source in (*plan.sources, *plan.tables)}
    for name, sample in samples.items():
        files, first = format_count(sample.files, "file"), format_count(len(sample.rows), "row")
        which, more = ("first ", "; there are more") if sample.more else ("all ", "")
        if not sample.files:
            yield f'{name}: there are no files with data in "{path_of(sources[name].options)}"'
        elif not sample.rows:
            yield f"{name}: there are no rows in {files}{more}"
        else:
            yield f"{name}: {which}{first} of {files}{more}"
        if sample.left_out:
            yield f"  {describe_left_out(sources[name], sample)}"
        if sample.unchecked:
            yield f"  not looked at: {', '.join(sample.unchecked)}"
    if any(source_rows.more for source_rows in samples.values()):
        yield "Not all rows were read: a match or a part of a window may be missing here."
    yield f"One tick, then the end of input: no row is late. Nothing was written. {took:.1f} s"
