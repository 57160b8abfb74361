"""`replay --trace`: every reason in words, and buffers that are those of the state."""

from __future__ import annotations

import json

import pytest

from tests.support.case_files import case_files, cases_by_name
from tests.support.effort import at_effort
from watersmeet.event_time import Side
from watersmeet.plan.model.nodes import AggregatePlan, WindowGroupPlan
from watersmeet.runtime.local import Tracer, replay_case
from watersmeet.spec.model import OutputMode
from watersmeet.testing.cases import load_cases
from watersmeet.trace.record import TickTrace
from watersmeet.trace.view import trace_text


def stream(lag: int | None = 0, **columns: str) -> dict:
    return {"columns": {"t": "BIGINT", **columns}, "time": {"t": {"lag": lag}}}


def case(query: str, *steps: dict, options: dict | None = None, **streams: dict) -> dict:
    named = streams or {"l": stream(k="STRING"), "r": stream(k="STRING")}
    return {"case": "c", "streams": named, "query": query, "steps": list(steps), "options": options or {}}


def trace_of(case: dict, partitions: int = 1) -> str:
    tracer = Tracer()
    return trace_text(case, replay_case(case, partitions=partitions, tracer=tracer), tracer.trace)


def rows(*given: tuple) -> dict:
    return {"rows": [list(row) for row in given]}


@pytest.mark.parametrize("file", case_files())
@pytest.mark.parametrize("partitions", [3, pytest.param(1, marks=pytest.mark.full)])
def test_traced_buffers_equal_the_state_and_pairs_equal_the_output(file, partitions):
    for each in load_cases(file)[:: at_effort(quick=6, full=1)]:
        tracer = Tracer()
        outputs = replay_case(each, partitions=partitions, tracer=tracer)
        if tracer.trace is None or tracer.trace.query.every(WindowGroupPlan):  # no step shows what these keep
            continue
        for output, entry in zip(outputs, tracer.trace.entries[1:], strict=False):
            if not isinstance(entry, TickTrace):
                continue
            kept = {
                plan.name: len(step.buffers.get(side, ()))  # a join with a table as of the tick has none
                for step in entry.joins
                for side, plan in zip(Side, step.join.sides, strict=False)
                if plan.feed is None
            }
            passing = {side.name: 0 for side in tracer.trace.query.sides if side.passes}
            kept |= {s.node.side.name: s.kept for s in entry.windows if s.node.side.feed is None}
            assert kept | passing == output["state"], (each["case"], output["step"])
            if passing:
                continue
            if isinstance(tracer.trace.query.root, AggregatePlan):
                if tracer.trace.query.where is None:
                    assert len(entry.windows[-1].results) == len(output["rows"])
                continue
            changes = tracer.trace.query.options.mode is OutputMode.CHANGELOG  # summed, some to nothing
            if tracer.trace.query.where is None and not changes:
                assert len(entry.joins[-1].pairs) == len(output["rows"]), (each["case"], output["step"])


LEFT = "SELECT l.t AS lt, r.t AS rt FROM l LEFT JOIN r ON l.k = r.k AND r.t BETWEEN l.t AND l.t + 5"


def test_trace_explains_why_a_row_is_not_retained():
    text = trace_of(
        case(
            f"{LEFT} AND l.k <> 'x' AND r.k <> 'y' WHERE l.k <> 'z' OR l.k IS NULL",
            rows(("l", {"t": 7, "k": "a"})),
            rows(
                ("l", {"t": 6, "k": "a"}),
                ("l", {"t": None, "k": "a"}),
                ("l", {"t": 8, "k": None}),
                ("l", {"t": 8, "k": "x"}),
                ("l", {"t": 8, "k": "z"}),
                ("r", {"t": 8, "k": "y"}),
            ),
        )
    )
    assert '    l {"t": 7, "k": "a"}\n' in text
    assert '    l {"t": 6, "k": "a"}: late, dropped: l.t = 6 < W[l.t] = 7\n' in text
    assert '    l {"t": null, "k": "a"}: dropped: l.t is NULL\n' in text
    assert '    l {"t": 8, "k": null}: can match nothing, put out at once: l.k is NULL\n' in text
    assert "\"x\"}: can match nothing, put out at once: l.k <> 'x' is not TRUE\n" in text
    assert '    l {"t": 8, "k": "z"}: dropped by a filter: l.k <> \'z\' OR l.k IS NULL\n' in text
    assert '    r {"t": 8, "k": "y"}: dropped by a filter: r.k <> \'y\'\n' in text
    assert '      l {"t": 8, "k": null} with NULLs for r\n' in text


def test_the_rule_limit():
    text = trace_of(case(LEFT, rows(("l", {"t": 9}), ("r", {"t": 4})), options={"watermark_rule": "limit"}))
    assert "      l.t: -1 = W[r.t] 4 - 5\n" in text
    assert "      r.t: 9 = W[l.t] 9\n" in text
    assert "      l.t = -1, rose from none: min(W[l.t] = 9, limit -1)\n" in text
    assert "      r.t = 4, rose from none: min(W[r.t] = 4, limit 9)\n" in text


def test_times_and_lags_in_words():
    timed = {"columns": {"t": "TIMESTAMP"}, "time": {"t": {"lag": "10 seconds"}}}
    query = "SELECT l.t AS a, r.t AS b FROM l JOIN r ON r.t BETWEEN l.t AND l.t + INTERVAL '1' HOUR"
    text = trace_of(case(query, rows(("r", {"t": "2024-01-01T12:00:10"})), l=timed, r=timed))
    assert "    r.t -> {l.t: 1 h}\n" in text
    newest = "newest time 2024-01-01T12:00:10 - lag 10 s"
    assert f"    r.t = 2024-01-01T12:00:00, rose from none: {newest}\n" in text
    assert "      l.t: 2024-01-01T11:00:00 = W[r.t] 2024-01-01T12:00:00 - 1 h\n" in text


def test_keys_that_are_computed_have_their_expression_for_a_name():
    query = "SELECT l.t AS a, r.t AS b FROM l JOIN r ON upper(l.k) = r.k AND l.t = r.t"
    text = trace_of(case(query, rows(("l", {"t": 1, "k": "a"}), ("r", {"t": 1, "k": "A"}))))
    assert '      l {"t": 1, "UPPER(k)": "A"} with r {"t": 1, "k": "A"}\n' in text


def test_rows_between_joins():
    streams = {name: stream(None, k="STRING") for name in "abc"}
    query = (
        "SELECT a.t AS x, b.t AS y, c.t AS z FROM a LEFT JOIN b ON a.t = b.t"
        " JOIN c ON c.t BETWEEN b.t AND b.t + 1"
    )
    text = trace_of(
        case(
            query,
            rows(("a", {"t": 1}), ("a", {"t": 2}), ("b", {"t": 1})),
            {"advance": {"b.t": 5}},
            **streams,
        )
    )
    assert '    from join 1\n      {"a.t": 1, "b.t": 1}\n' in text
    assert '      a {"t": 2} with NULLs for b\n' in text
    assert "    from join 1 (1 more were filtered out or can match nothing): nothing\n" in text


def test_a_trace_does_not_depend_on_the_number_of_tasks():
    found = cases_by_name()["hz-M3-cascade-tight"]
    assert trace_of(found) == trace_of(found, partitions=3)


def test_end_of_input_and_a_failed_step():
    found = trace_of(
        case(LEFT, rows(("l", {"t": 1, "k": "a"})), {"end": True}, {"rows": []}),
    )
    assert "step 1: end of input\n" in found
    assert "    l.t = +∞, rose from 1\n" in found
    assert '      l {"t": 1, "k": "a"}: l.t = 1 < limit +∞ = W[r.t] +∞; never matched\n' in found
    assert "step 2: nothing\n  failed: StateError[job-finished]" in found


def test_of_the_command(watersmeet, tmp_path):
    file = tmp_path / "case.json"
    file.write_text(json.dumps([case(LEFT, {}), case("SELECT l.t FROM l JOIN r ON l.k = r.k", {})]))
    found = watersmeet("replay", file, "--trace")
    assert found.status == 1
    first, second = found.out.split("\n\ncase ")
    assert first.startswith("case c\n  SELECT l.t AS lt")
    assert "\n  refused: PlanError[unbounded-state]" in second
    assert "\n  Hint: " in second


def test_spark_has_no_trace(watersmeet, tmp_path):
    file = tmp_path / "case.json"
    file.write_text(json.dumps(case(LEFT, {})))
    found = watersmeet("replay", file, "--trace", "--engine", "spark")
    assert found.status == 2
    assert "--trace shows the state of the in-process engine" in found.err


def test_semi_and_anti_joins():
    both = rows(("l", {"t": 1, "k": "a"}), ("l", {"t": 2, "k": "b"}), ("r", {"t": 1, "k": "a"}))
    end = {"end": True}
    condition = "JOIN r ON l.k = r.k AND r.t BETWEEN l.t AND l.t + 5"
    semi = trace_of(case(f"SELECT l.t AS lt FROM l LEFT SEMI {condition}", both, end))
    assert '    put out with their first match\n      l {"t": 1, "k": "a"}\n' in semi
    assert '    kept of l: 1 row\n      {"t": 2, "k": "b"}\n' in semi
    assert "min(W[r.t]" not in semi, "no watermark of the right side goes out"
    anti = trace_of(case(f"SELECT l.t AS lt FROM l LEFT ANTI {condition}", both, end))
    assert '      {"t": 1, "k": "a"}, matched\n' in anti
    assert '    put out, for they never matched\n      l {"t": 2, "k": "b"}\n' in anti
