"""Case files (semantics.md, section 6) on any engine: steps in, one output per step.

An engine offers `CaseEngine`; this module knows the format of steps and outputs, and nothing of how a tick
is run.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from watersmeet.errors import SpecError, WatersmeetError, near_names, raise_all
from watersmeet.event_time import DAY_US, Watermark
from watersmeet.names import CASE_PARTITION, SHOWN_TICK
from watersmeet.parser.case_file import case_job
from watersmeet.plan.model.job import JobPlan
from watersmeet.plan.model.nodes import ArrangePlan
from watersmeet.plan.planner import plan_job
from watersmeet.runtime.coordinator.results import QueryResult
from watersmeet.spec.model import OutputMode, PlanChoice, Source
from watersmeet.types.sql_type import DATE, SqlType

QUERY = "q"
"""The name of a case's one query."""

_STEP_KEYS = ("rows", "idle", "advance", "clock", "end", "restart", "rescale")

Row = Mapping[str, Any]


@dataclass(frozen=True)
class CaseStep:
    """Input of one tick of a case.

    ``rows``: per stream (row, diff) in order; ``idle``: per stream its idle partitions, empty for the
    whole stream; ``advances``: explicit watermarks per stream and column.
    """

    rows: Mapping[str, list[tuple[Row, int]]]
    idle: Mapping[str, list[str]]
    advances: Mapping[str, Mapping[str, int]]
    clock_us: int
    end: bool


@dataclass(frozen=True)
class CaseOutput:
    """Output of one tick of a case.

    ``rows``: values as in case files. ``late``: (stream, row) as in the input, and for stages (alias of
    the input, the columns of the row that the query retains).
    """

    rows: list[dict[str, Any]]
    late: list[tuple[str, Row]]
    result: QueryResult


class CaseEngine(Protocol):
    def open(self, partitions: int, clock_us: int) -> None:
        """Drop all memory and go on from what was committed last."""

    def tick(self, step: CaseStep) -> CaseOutput:
        """Run one tick and commit it."""

    @property
    def state(self) -> Mapping[str, int]:
        """Retained rows per alias."""


def replay(
    case: Mapping[str, Any],
    engine: Callable[[JobPlan], CaseEngine],
    partitions: int,
    *,
    join_by_join: bool = False,
) -> list[dict[str, Any]]:
    """Run a case and return the output of each step.

    If planning rejects the case, the result is one object with ``error``; a step that fails has an
    ``error``, too.

    Args:
        join_by_join: run a delta join as a cascade, which yields the same rows.
    """
    name = case["case"]
    try:
        plan = plan_job(case_job(case))
        if join_by_join and any(query.every(ArrangePlan) for query in plan.queries):
            cascade = {**case.get("options", {}), "plan": PlanChoice.CASCADE.value}
            plan = plan_job(case_job({**case, "options": cascade}))
        _check_steps(case)
    except WatersmeetError as error:
        return [{"case": name, "error": str(error)}]
    running = engine(plan)
    running.open(partitions, 0)
    clock_us = 0
    outputs: list[dict[str, Any]] = []
    for number, step in enumerate(case["steps"]):
        head = {"case": name, "step": number}
        try:
            if "restart" in step or "rescale" in step:
                partitions = int(step.get("rescale", partitions))
                running.open(partitions, clock_us)
                outputs.append(
                    {**head, "rows": [], "watermarks": {}, "late": [], "state": dict(running.state)}
                )
                continue
            clock_us += round(step.get("clock", 0) * 1_000_000)
            outputs.append({**head, **_format_output(plan, running.tick(_parse_step(plan, step, clock_us)))})
        except WatersmeetError as error:
            outputs.append({**head, "error": str(error)})
            break
    return outputs


def _check_steps(case: Mapping[str, Any]) -> None:
    """Refuse what steps say of nothing that is there: it would be passed over in silence.

    Raises: SpecError, or SeveralErrors with all of it.
    """
    columns = {
        name: set(declared["columns"])
        for kind in ("streams", "tables")
        for name, declared in case.get(kind, {}).items()
    }
    errors: dict[str, SpecError] = {}

    def check_known_name(number: int, what: str, name: str, names: Iterable[str]) -> bool:
        names = list(names)
        if name not in names:
            text = f'step {number}: unknown {what} "{name}"'
            errors.setdefault(text, SpecError(text, code="bad-case", hint=near_names(name, names)))
        return name in names

    for number, step in enumerate(case["steps"]):
        for key in step:
            check_known_name(number, "entry", key, _STEP_KEYS)
        for stream, row, *_ in step.get("rows", ()):
            if check_known_name(number, "stream", stream, columns):
                for column in row:
                    check_known_name(
                        number, f'column of "{stream}":', column, (*sorted(columns[stream]), CASE_PARTITION)
                    )
        for name in step.get("idle", ()):
            check_known_name(number, "stream", name.partition("/")[0], columns)
        for key in step.get("advance", {}):
            stream, _, column = key.partition(".")
            if check_known_name(number, "stream", stream, columns):
                check_known_name(number, f'column of "{stream}":', column, sorted(columns[stream]))
    raise_all(list(errors.values()))


def _parse_step(plan: JobPlan, step: Mapping[str, Any], clock_us: int) -> CaseStep:
    rows: dict[str, list[tuple[Row, int]]] = defaultdict(list)
    for stream, row, *diff in step.get("rows", ()):
        rows[stream].append((row, diff[0] if diff else 1))
    idle: dict[str, list[str]] = defaultdict(list)
    for name in step.get("idle", ()):
        stream, _, partition = name.partition("/")
        idle[stream] += [partition] if partition else []
    sources = {source.name for source in plan.sources}
    advances: dict[str, dict[str, int]] = defaultdict(dict)
    for key, value in step.get("advance", {}).items():
        stream, _, column = key.partition(".")
        if stream in sources:
            advances[stream][column] = parse_case_time(value)
    return CaseStep(rows, idle, advances, clock_us, bool(step.get("end")))


def _format_output(plan: JobPlan, output: CaseOutput) -> dict[str, Any]:
    sources = {source.name: source for source in plan.sources}
    changelog = plan.queries[0].options.output_mode is OutputMode.CHANGELOG
    told: dict[str, Any] = {}
    if output.result.missing_deletes:
        told["missing_deletes"] = [
            {"stream": alias, "row": json.loads(row)} for alias, row in output.result.missing_deletes
        ]
        counts = output.result.counts.values()
        told["missing_deletes_count"] = sum(counted.get("missing_deletes", 0) for counted in counts)
    if output.result.advances_back:
        marks = format_watermarks(plan, {back.key: back.watermark for back in output.result.advances_back})
        wanted = format_watermarks(plan, {back.key: back.advance for back in output.result.advances_back})
        told["advances_back"] = [
            {"key": key, "watermark": marks.get(key), "advance": advance} for key, advance in wanted.items()
        ]
    return {
        "rows": [_drop_tick(row) for row in output.rows] if changelog else output.rows,
        "watermarks": format_watermarks(plan, output.result.risen_watermarks),
        "late": [
            {"stream": stream, "row": _select_declared_columns(sources, stream, row)}
            for stream, row in output.late
        ],
        "state": dict(output.result.state),
        **told,
    }


def _drop_tick(row: dict[str, Any]) -> dict[str, Any]:
    """Drop the tick number from a row; the step already implies it."""
    return {name: value for name, value in row.items() if name != SHOWN_TICK}


def _select_declared_columns(sources: Mapping[str, Source], stream: str, row: Row) -> dict[str, Any]:
    """Return a stream row with all declared columns, or the row of a stage unchanged."""
    if stream not in sources:
        return dict(row)
    return {column.name: row.get(column.name) for column in sources[stream].columns}


def parse_case_time(value: Any) -> int:
    """Parse an event time of a case file: an integer stays as it is, ISO text becomes µs.

    Raises:
        SpecError: the text is not a valid time.
    """
    if isinstance(value, int):
        return value
    try:
        moment = datetime.fromisoformat(str(value))
    except ValueError:
        raise SpecError(
            f'"{value}" is not a valid time',
            code="bad-case",
            hint="write times as whole numbers, or as text such as 2024-07-01T10:00:00",
        ) from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def format_watermarks(plan: JobPlan, watermarks: Mapping[str, Watermark]) -> dict[str, Any]:
    """Format watermarks as in case files, in the types of their columns; omit those that are +∞."""
    types = {
        side.watermark_key(column.name): column.type
        for side in plan.queries[0].sides
        for column in side.input.columns
    }
    types |= {column.name: column.type for column in plan.queries[0].root.columns}
    return {
        key: format_case_time(value, types[key])
        for key, value in watermarks.items()
        if isinstance(value, int)
    }


def format_case_time(value: int, declared: SqlType) -> Any:
    """Format a time as in case files, for a column of the type ``declared``."""
    if declared == DATE:
        return _format_instant(value // DAY_US * DAY_US)[:10]
    return _format_instant(value) if declared.is_time else value


def _format_instant(value: int) -> str:
    return (datetime(1970, 1, 1) + timedelta(microseconds=value)).isoformat()
