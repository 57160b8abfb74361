"""`replay --trace`: what each step of a case did, and why, as text for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from watersmeet.event_time import Side
from watersmeet.plan.conditions.conjuncts import text_of
from watersmeet.plan.explain.groups import window_name
from watersmeet.plan.explain.wording import title_of
from watersmeet.plan.model.nodes import JoinPlan, MatchPlan
from watersmeet.spec.model import JoinKind, Lateness, PlanChoice
from watersmeet.trace.record import JoinStep, Opened, Pair, TickTrace, Trace, WindowStep, row_text

Lines = Iterator[str]
_INDENT = "  "


def trace_text(case: Mapping[str, Any], outputs: Sequence[Mapping[str, Any]], trace: Trace | None) -> str:
    """Render a case from its head to its last step.

    Args:
        outputs: the output of each step, as `replay` prints it.
        trace: None when the plan was rejected.
    """
    about = f": {case['about']}" if case.get("about") else ""
    lines = [f"case {case['case']}{about}", *_indent_lines([" ".join(case.get("query", "").split())])]
    if trace is None:
        return _text([*lines, *_indent_lines(_format_failure("refused", outputs[0]))])
    lines += _indent_lines(_head(trace))
    chosen = trace.query.options.plan.value
    if case.get("options", {}).get("plan", PlanChoice.AUTO.value) != chosen:
        lines.append(f"{_INDENT}plan {chosen}: shown join by join; run as a delta join, with the same rows")
    for output, entry in zip(outputs, [*trace.entries[1:], None], strict=False):
        step = output["step"]
        lines += ["", f"step {step}: {_describe_step(case['steps'][step])}"]
        if "error" in output:
            lines += _indent_lines(_format_failure("failed", output))
        elif isinstance(entry, TickTrace):
            lines += _indent_lines(_tick(trace, entry, output))
        elif isinstance(entry, Opened):
            lines += _indent_lines([f"all memory dropped; goes on from what tick {entry.tick} has committed"])
    return _text(lines)


def _text(lines: Sequence[str]) -> str:
    return "\n".join(lines) + "\n"


def _indent_lines(lines: Iterator[str] | Sequence[str]) -> list[str]:
    return [_INDENT + line for line in lines]


def _section(title: str, lines: Sequence[str] | Lines, nothing: str = "nothing") -> Lines:
    content = list(lines)
    yield title if content else f"{title}: {nothing}"
    yield from _indent_lines(content)


def _format_failure(how: str, output: Mapping[str, Any]) -> list[str]:
    return f"{how}: {output['error']}".splitlines()


def _head(trace: Trace) -> Lines:
    query = trace.query
    rule, lateness = query.options.watermark_rule, query.options.allowed_lateness
    late = ""
    if lateness:
        late = f", allowed lateness {trace.distance(_first_key(trace), lateness)}"
    rule_text = f"watermark rule {rule.value}"
    if query.options.lateness is Lateness.JOIN:
        rule_text = "lateness by the join"
    yield f"{rule_text}, output mode {query.options.mode.value}{late}"
    for join in trace.query.every(JoinPlan):
        what = "postpone map" if join.horizon is None else "horizon"
        yield from _section(f"{_title(join)}: {what}", _postpone_map(trace, join))


def _first_key(trace: Trace) -> str:
    return next(side.watermark_key(c) for side in trace.query.sides for c in side.event_times)


def _keys(join: JoinPlan) -> list[str]:
    return [plan.watermark_key(column) for plan in (join.left, join.right) for column in plan.event_times]


def _title(join: MatchPlan) -> str:
    return f"join {join.number + 1}, {title_of(join)}"


def _postpone_map(trace: Trace, join: JoinPlan) -> Lines:
    if join.horizon is not None:
        left, right = join.horizon.keys
        reach = trace.distance(left, join.horizon.reach + trace.query.options.allowed_lateness)
        yield f"min(W[{left}], W[{right}]) - {reach}"
        return
    for key in _keys(join):
        entries = [f"{b.evicted}: {trace.distance(b.evicted, b.c)}" for b in join.bounds if b.by == key]
        yield f"{key} -> {{{', '.join(entries)}}}" if entries else f"{key} -> []"


def _describe_step(step: Mapping[str, Any]) -> str:
    """Describe what the case does in a step."""
    if "restart" in step:
        return "restart"
    if "rescale" in step:
        return f"restart with {step['rescale']} partition{'' if step['rescale'] == 1 else 's'}"
    parts = []
    if step.get("clock"):
        parts.append(f"the clock moves by {step['clock']} s")
    if step.get("rows"):
        rows = len(step["rows"])
        parts.append("1 row" if rows == 1 else f"{rows} rows")
    if step.get("idle"):
        parts.append(f"idle: {', '.join(step['idle'])}")
    parts += [f"advance {key} to {value}" for key, value in step.get("advance", {}).items()]
    if step.get("end"):
        parts.append("end of input")
    return "; ".join(parts) or "nothing"


def _tick(trace: Trace, tick: TickTrace, output: Mapping[str, Any]) -> Lines:
    yield from _section("came in", [row.text for row in tick.arrived])
    if tick.too_late:
        yield from _section("came too late from a join", tick.too_late)
    yield from _section("input watermarks", [mark.text for mark in tick.inputs])
    steps: dict[int, JoinStep | WindowStep] = {step.join.number: step for step in tick.joins}
    steps |= {step.node.number: step for step in tick.windows}
    for _, step in sorted(steps.items(), key=lambda own: own[0]):
        if isinstance(step, JoinStep):
            yield _title(step.join)
            yield from _indent_lines(_join(step))
        else:
            yield f"{window_name(step.node)} over {step.node.time_key}"
            yield from _indent_lines(_windows(step))
    if trace.query.where is not None:
        condition = text_of(trace.query.where).replace("`", "")
        yield f"filter after the last join: {condition}"
    yield from _section("put out", [row_text(row) for row in output["rows"]])
    for alias, text in tick.output.result.missing_deletes:
        yield f"not deleted, for {alias} has no such row: {text}"
    for back in output.get("advances_back", ()):
        yield f"not advanced: {back['key']} is {back['watermark']} already, and not {back['advance']}"
    rose = ", ".join(f"{key} = {value}" for key, value in output["watermarks"].items())
    yield f"watermarks put out: {rose or 'none rose'}"


def _join(step: JoinStep) -> Lines:
    join = step.join
    for side in Side:
        feed = join.side(side).feed
        if side in step.brought:
            title = f"came in of {join.side(side).title}" if feed is None else f"from join {feed.node + 1}"
            if step.dropped.get(side):
                title += f" ({step.dropped[side]} more were filtered out or can match nothing)"
            yield from _section(title, [row_text(row) for row in step.brought[side]])
    if step.fed:
        yield f"watermarks of the joins beneath: {', '.join(step.fed)}"
    matched, padded = list[str](), list[str]()
    for pair in step.pairs:
        (padded if pair.left is None or pair.right is None else matched).append(_pair(join, pair))
    left = [f"{join.left.title} {row_text(pair.left or {})}" for pair in step.pairs if pair.right is None]
    if join.kind is JoinKind.SEMI:
        yield from _section("put out with their first match", left)
    elif join.kind is not JoinKind.ANTI:
        yield from _section("matched", matched)
    if step.table_rows is None:
        yield from _section("limits", step.limits)
        yield from _section("released", step.releases)
    elif step.pairs:
        count = "1 row" if step.table_rows == 1 else f"{step.table_rows} rows"
        yield f"looked up in {join.right.title}: {count}, NULL keys and filtered ones left out"
    if join.kind is JoinKind.ANTI:
        yield from _section("put out, for they never matched", left)
    elif join.kind.pads_left or join.kind.pads_right:
        yield from _section("padded", padded)
    for side, rows in step.buffers.items():
        count = "1 row" if len(rows) == 1 else f"{len(rows)} rows"
        yield f"kept of {join.side(side).title}: {count}"
        yield from _indent_lines(rows)
    yield from _section("output watermarks", [mark.text for mark in step.outputs])


def _windows(step: WindowStep) -> Lines:
    yield f"windows close by {step.node.time_key} = {step.watermark}"
    yield from _section("closed", [row_text(row) for row in step.results])
    count = "1 row" if step.kept == 1 else f"{step.kept} rows"
    yield f"kept of {step.node.side.title}: {count}"
    yield f"output watermarks: {', '.join(step.outputs) or 'none rose'}"


def _pair(join: MatchPlan, pair: Pair) -> str:
    left, right = pair.left, pair.right
    diff = f" diff {pair.diff:+d}" if join.changes else ""
    if left is None:
        return f"{join.right.title} {row_text(right or {})} with NULLs for {join.left.title}{diff}"
    other = f"NULLs for {join.right.title}" if right is None else f"{join.right.title} {row_text(right)}"
    return f"{join.left.title} {row_text(left)} with {other}{diff}"
