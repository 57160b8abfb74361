"""Histories to look at: a large job, and one whose names and words want to be markup."""

from __future__ import annotations

import watersmeet
from watersmeet.history import runs
from watersmeet.history.keeping import Keeping
from watersmeet.history.planned import Drawing, limits_of
from watersmeet.history.points import Figures, subject_of
from watersmeet.history.runs import Begun, Ended
from watersmeet.plan.explain import explain
from watersmeet.state.store import MemoryStore

START_US = 1_790_000_000_000_000
US = 1_000_000
HOSTILE = "</script><img src=x onerror='window.harmed=1'>\"'&<b>"
QUERIES, PARTITIONS, TICKS = 10, 1_000, 600
SHOWN_PARTITIONS = 12


def plan_of(queries):
    """So many joins of two streams, with limits."""
    text = """
        SET max_rows = 100000;
        CREATE TABLE orders (id BIGINT, at TIMESTAMP, WATERMARK FOR at AS at - INTERVAL '5' SECONDS)
          WITH ('connector' = 'memory', 'rows_per_second' = '50');
        CREATE TABLE payments (id BIGINT, at TIMESTAMP, WATERMARK FOR at AS at - INTERVAL '5' SECONDS)
          WITH ('connector' = 'memory', 'rows_per_second' = '50');"""
    for n in range(queries):
        text += f"""
        CREATE SINK paid_{n} WITH ('connector' = 'memory');
        INSERT INTO paid_{n} SELECT o.id, o.at AS ordered, p.at AS paid
          FROM orders o LEFT JOIN payments p ON o.id = p.id
          AND p.at BETWEEN o.at AND o.at + INTERVAL '{n + 1}' MINUTES WHERE o.id > {n};"""
    return watersmeet.plan_job(watersmeet.parse_job(text))


def begun_of(plan, explained="", **more):
    return Begun(
        **{"started_us": START_US, "version": "1", "machine": "here"} | more,
        plan=explained or explain(plan),
        drawing=Drawing.of_plan(plan),
        limits=limits_of(plan),
    )


class Large:
    """A job that reads `PARTITIONS` partitions, after some ticks and as it goes on. Of its payments partition
    7 stands still from tick 300 on."""

    def __init__(self, queries=QUERIES, ticks=TICKS, late_files=None):
        self.store = MemoryStore()
        self.plan = plan_of(queries)
        runs.begin(self.store, "0" * 8, begun_of(self.plan, late_files=late_files))
        self.keeping = Keeping(self.store, _failed, pause_s=1e9)
        self.tick = 0
        for _ in range(ticks):
            self.add()
        self.write()

    def write(self):
        self.keeping._write()
        self.keeping._writing.result()

    def add(self):
        self.tick += 1
        tick, clock_us = self.tick, START_US + self.tick * US
        amounts = {("job", "seconds"): 300_000 + tick % 7 * 10_000, ("job", "elapsed"): US}
        for part, took in (("ingest", 100_000), ("join", 150_000), ("commit", 50_000 + tick % 7 * 10_000)):
            amounts[subject_of("part", part), "seconds"] = took
        for source in ("orders", "payments"):
            amounts[subject_of("source", source), "rows_in"] = 50 + tick % 5
        levels, keys = {}, {}
        for query in (query.name for query in self.plan.queries):
            levels[subject_of("query", query), "total_rows_out"] = 50 * tick
            levels[subject_of("query", query), "state_bytes"] = 9_000 * (200 + tick % 40)
            for alias in "op":
                of = subject_of("input", query, alias)
                late, kept = tick // 20, 2_000 + tick % 40
                levels |= {(of, "in"): 50 * tick, (of, "late"): late, (of, "retained"): kept}
                levels |= {(of, "late of at <10s"): late // 2, (of, "late of at <1m"): late - late // 2}
                levels[of, "matched"] = 50 * tick - late - kept
                stands = alias == "p" and tick >= 300
                mark = START_US + (295 if stands else tick - 5) * US
                levels[subject_of("time", query, alias, "at"), "watermark"] = mark
                if tick % 5 == 0:
                    self._look(query, alias, tick, mark, levels, keys)
        self.keeping.add(tick, clock_us, Figures(amounts, levels, keys=keys))

    def _look(self, query, alias, tick, mark, levels, keys):
        side = subject_of("side", query, alias)
        levels |= {(side, "retained"): 2_000 + tick % 40, (side, "file_bytes"): 150_000}
        levels |= {(side, "forecast_rows"): 3_000, (side, "forecast_bytes"): 200_000}
        keys |= {(side, "heavy_keys", f"id = {n}"): 400 - n for n in range(3)}
        counts = subject_of("partitions", query, alias)
        levels |= {(counts, "count"): PARTITIONS, (counts, "idle"): 3}
        source = "orders" if alias == "o" else "payments"
        for n in range(SHOWN_PARTITIONS):
            of = subject_of("partition", query, alias, source, str(n))
            here = mark if n == 7 else START_US + (tick - 5 + n % 3) * US
            levels[of, "watermark of at"] = here
            levels[of, "heard"] = here + 5 * US


def hostile():
    """A store with a history of which every name and every word is `HOSTILE`."""
    store, plan = MemoryStore(), plan_of(1)
    drawing = Drawing.of_plan(plan)
    nodes = tuple(
        node.model_copy(update={"lines": (HOSTILE,), "of": node.of and subject_of("input", HOSTILE, HOSTILE)})
        for node in drawing.nodes
    )
    begun = begun_of(plan, explained=HOSTILE, settings={HOSTILE: HOSTILE}, machine=HOSTILE)
    limits = tuple(limit.model_copy(update={"owner": HOSTILE, "name": HOSTILE}) for limit in begun.limits)
    begun = begun.model_copy(
        update={"limits": limits, "drawing": drawing.model_copy(update={"nodes": nodes})}
    )
    run = runs.begin(store, "0" * 8, begun)
    keeping = Keeping(store, _failed, pause_s=1e9)
    of, side = subject_of("input", HOSTILE, HOSTILE), subject_of("side", HOSTILE, HOSTILE)
    partition = subject_of("partition", HOSTILE, HOSTILE, HOSTILE, HOSTILE)
    counts = subject_of("partitions", HOSTILE, HOSTILE)
    for tick in (1, 2, 3):
        mark = START_US + tick * US
        levels = {(of, "in"): tick, (of, "retained"): 0, (of, "late"): tick}
        levels |= {(of, f"late of {HOSTILE} <1s"): tick, (side, "retained"): 1, (side, "file_bytes"): 1}
        levels |= {(subject_of("time", HOSTILE, HOSTILE, HOSTILE), "watermark"): mark}
        levels |= {(partition, f"watermark of {HOSTILE}"): mark, (partition, "heard"): mark}
        levels |= {(counts, "count"): 1, (counts, "idle"): 0}
        amounts = {(subject_of("part", HOSTILE), "seconds"): 1, (subject_of("source", HOSTILE), "rows_in"): 1}
        told = [(of, "standstill", HOSTILE), (of, "heavy_keys", HOSTILE)]
        keys = {(side, "heavy_keys", HOSTILE): 1}
        keeping.add(tick, mark, Figures(amounts | {("job", "elapsed"): US}, levels, told, keys))
    keeping.close()
    ended = Ended(ended_us=START_US + 9 * US, how="failed", error=f"{HOSTILE}\nHint: {HOSTILE}")
    runs.end(store, run, ended.model_copy(update={"notices": (HOSTILE,)}))
    return store


def _failed(said):
    raise AssertionError(said)
