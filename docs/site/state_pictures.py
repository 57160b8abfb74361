"""Pictures of what is kept: the paths of a delta join through it, and rows that several queries keep once."""

from __future__ import annotations

from docs.site.svg import COLOURS, GREY, INK, Drawing
from watersmeet.cli.state_commands.show import state_report
from watersmeet.parser.statements import parse_job
from watersmeet.plan.model.nodes import DeltaPlan
from watersmeet.plan.planner import plan_job
from watersmeet.runtime.local import LocalJob
from watersmeet.state.store import MemoryStore
from watersmeet.testing import MemoryJob

CLAIMS = """
CREATE TABLE customers (id BIGINT, name STRING, d INT) WITH ('connector' = 'memory', 'diff.column' = 'd');
CREATE TABLE orders (number BIGINT, customer BIGINT, d INT)
  WITH ('connector' = 'memory', 'diff.column' = 'd');
CREATE TABLE lines (number BIGINT, item STRING, d INT) WITH ('connector' = 'memory', 'diff.column' = 'd');
SELECT c.name, l.item FROM customers c JOIN orders o ON o.customer = c.id JOIN lines l ON l.number = o.number;
"""
HELD = {"c": "customers", "o": "orders", "l": "lines"}

JOB = """
CREATE TABLE orders (n BIGINT, t TIMESTAMP, item BIGINT, WATERMARK FOR t AS t - INTERVAL '10' MINUTES)
  WITH ('connector' = 'memory');
CREATE TABLE deliveries (n BIGINT, t TIMESTAMP, WATERMARK FOR t AS t - INTERVAL '10' MINUTES)
  WITH ('connector' = 'memory');
CREATE SINK delivered WITH ('connector' = 'memory');
CREATE SINK items WITH ('connector' = 'memory');
INSERT INTO delivered SELECT o.n, d.t FROM orders o LEFT JOIN deliveries d
  ON d.n = o.n AND d.t BETWEEN o.t AND o.t + INTERVAL '1' HOUR;
INSERT INTO items SELECT a.item, b.t FROM orders a JOIN deliveries b
  ON b.n = a.n AND b.t BETWEEN a.t AND a.t + INTERVAL '1' HOUR;
"""


def delta() -> str:
    """The paths of a delta join, from its plan, and what a tick in which all inputs change puts out."""
    job = MemoryJob(CLAIMS)
    before = {
        "customers": [{"id": 1, "name": "Ada", "d": 1}],
        "orders": [{"number": 10, "customer": 1, "d": 1}],
        "lines": [{"number": 10, "item": "tea", "d": 1}],
    }
    changes = {
        "customers": [{"id": 1, "name": "Ada", "d": -1}, {"id": 1, "name": "Bea", "d": 1}],
        "orders": [{"number": 11, "customer": 1, "d": 1}],
        "lines": [{"number": 10, "item": "jam", "d": 1}, {"number": 11, "item": "rye", "d": 1}],
    }
    first, last = job.tick(before), job.tick(changes)
    plans = [node for node in job.plan.queries[0].nodes if isinstance(node, DeltaPlan)]
    draw = Drawing(760, 300, "A delta join: each input's changes take a path of their own through the others")
    draw.write(
        16, 24, "A delta join: each input's changes take a path of their own through the others", size=15
    )
    for number, alias in enumerate(plans[0].path_names):
        y = 52 + 58 * number
        draw.box(16, y, 150, 40, COLOURS[number])
        draw.write(91, y + 25, f"changes of {HELD[alias]}", COLOURS[number], anchor="middle")
        for step, plan in enumerate(plans):
            look, met = plan.lookups[number], plan.met[number]
            place = list(HELD).index(met.name)
            x = 216 + 250 * step
            draw.arrow(x - 50, y + 20, x - 4, y + 20, GREY)
            draw.box(x, y, 200, 40, COLOURS[place])
            when = "after the tick" if look.sees_tick else "before the tick"
            draw.write(x + 100, y + 25, f"{HELD[met.name]} {when}", COLOURS[place], anchor="middle")
    rows = sorted(f"{row['_diff']:+} {row['name']} {row['item']}" for row in last.rows)
    there = ", ".join(f"{row['name']} {row['item']}" for row in first.rows)
    draw.write(
        16, 248, f"There was: {there}. In one tick Ada becomes Bea, and order 11, jam and rye come:", INK
    )
    draw.write(16, 274, ",  ".join(rows), INK, size=15)
    return draw.text()


def shared() -> str:
    """What two queries keep of two streams, from the state of a run."""
    job = plan_job(parse_job(JOB))
    local = LocalJob(job, MemoryStore(), clock_us=0, given=True)
    hour = "2024-01-01T10:{:02}:00"
    orders = [({"n": n, "t": hour.format(n), "item": n}, 1) for n in range(40)]
    deliveries = [({"n": n, "t": hour.format(n + 15)}, 1) for n in range(0, 40, 2)]
    local.tick({"orders": orders, "deliveries": deliveries}, clock_us=0)
    manifest = local.driver.manifest
    assert manifest is not None
    report = state_report(manifest, job)
    draw = Drawing(760, 250, "Shared arrangements: two queries over the same streams keep their rows once")
    draw.write(16, 24, "Shared arrangements: two queries over the same streams keep their rows once", size=15)
    queries = list(dict.fromkeys(kept.query for kept in report.inputs))
    for number, query in enumerate(queries):
        draw.box(560, 60 + 90 * number, 184, 56, INK)
        draw.write(652, 93 + 90 * number, f"query {query}", anchor="middle")
    groups: list[set[str]] = []
    for kept in report.inputs:
        together = {kept.name, *kept.shared_with}
        if together not in groups:
            groups.append(together)
    for number, together in enumerate(groups):
        y, colour = 60 + 90 * number, COLOURS[number]
        of = next(kept for kept in report.inputs if kept.name in together)
        source = next(
            side.ingested[0][1].source.name
            for query in job.queries
            for side in query.sides
            if f"{query.name}/{side.name}" == of.name
        )
        draw.box(16, y, 130, 56, colour)
        draw.write(81, y + 33, source, colour, anchor="middle")
        draw.arrow(146, y + 28, 206, y + 28, GREY)
        draw.box(210, y, 240, 56, colour)
        files = "1 file" if of.files == 1 else f"{of.files} files"
        draw.write(330, y + 24, f"{of.rows} rows, by n and t: {files}", colour, anchor="middle")
        draw.write(330, y + 44, ", ".join(sorted(together)), colour, anchor="middle", size=11)
        for name in sorted(together):
            place = queries.index(name.split("/")[0])
            draw.arrow(450, y + 28, 556, 88 + 90 * place, GREY)
    draw.write(
        16,
        238,
        "What each query has released and matched stays its own: limits and marks, beside the rows.",
        GREY,
    )
    return draw.text()
