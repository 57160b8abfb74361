"""Histories to look at: a large job, and one whose names and words want to be markup."""

from __future__ import annotations

import watersmeet
from watersmeet.history import segments
from watersmeet.history.plan_document import Drawing, limits_of
from watersmeet.history.points import Figures, subject_of
from watersmeet.history.segments import RunEnd, RunStart
from watersmeet.history.writer import HistoryWriter
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


def build_run_start(plan, explained="", **more):
    return RunStart(
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
        segments.begin(self.store, "0" * 8, build_run_start(self.plan, late_files=late_files))
        self.keeping = HistoryWriter(self.store, _fail_with_message, pause_s=1e9)
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
        amounts = {("job", "duration_us"): 300_000 + tick % 7 * 10_000, ("job", "elapsed_us"): US}
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
                late, broken, kept = tick // 20, tick // 200, 2_000 + tick % 40
                levels |= {(of, "in"): 50 * tick, (of, "late"): late, (of, "retained"): kept}
                levels[of, "broken"] = broken
                levels |= {(of, "late of at <10s"): late // 2, (of, "late of at <1m"): late - late // 2}
                levels[of, "matched"] = 50 * tick - late - broken - kept
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
        keys |= {(side, "hot_keys", f"id = {n}"): 400 - n for n in range(3)}
        counts = subject_of("partitions", query, alias)
        levels |= {(counts, "count"): PARTITIONS, (counts, "idle"): 3}
        source = "orders" if alias == "o" else "payments"
        for n in range(SHOWN_PARTITIONS):
            of = subject_of("partition", query, alias, source, str(n))
            here = mark if n == 7 else START_US + (tick - 5 + n % 3) * US
            levels[of, "watermark of at"] = here
            levels[of, "last_row_us"] = here + 5 * US


def hostile():
    """A store with a history of which every name and every word is `HOSTILE`."""
    store, plan = MemoryStore(), plan_of(1)
    drawing = Drawing.of_plan(plan)
    nodes = tuple(
        node.model_copy(update={"lines": (HOSTILE,), "of": node.of and subject_of("input", HOSTILE, HOSTILE)})
        for node in drawing.nodes
    )
    begun = build_run_start(plan, explained=HOSTILE, settings={HOSTILE: HOSTILE}, machine=HOSTILE)
    limits = tuple(limit.model_copy(update={"owner": HOSTILE, "name": HOSTILE}) for limit in begun.limits)
    begun = begun.model_copy(
        update={"limits": limits, "drawing": drawing.model_copy(update={"nodes": nodes})}
    )
    run = segments.begin(store, "0" * 8, begun)
    keeping = HistoryWriter(store, _fail_with_message, pause_s=1e9)
    of, side = subject_of("input", HOSTILE, HOSTILE), subject_of("side", HOSTILE, HOSTILE)
    partition = subject_of("partition", HOSTILE, HOSTILE, HOSTILE, HOSTILE)
    counts = subject_of("partitions", HOSTILE, HOSTILE)
    for tick in (1, 2, 3):
        mark = START_US + tick * US
        levels = {(of, "in"): tick, (of, "retained"): 0, (of, "late"): tick}
        levels |= {(of, f"late of {HOSTILE} <1s"): tick, (side, "retained"): 1, (side, "file_bytes"): 1}
        levels |= {(subject_of("time", HOSTILE, HOSTILE, HOSTILE), "watermark"): mark}
        levels |= {(partition, f"watermark of {HOSTILE}"): mark, (partition, "last_row_us"): mark}
        levels |= {(counts, "count"): 1, (counts, "idle"): 0}
        amounts = {
            (subject_of("phase", HOSTILE), "duration_us"): 1,
            (subject_of("source", HOSTILE), "rows_in"): 1,
        }
        told = [(of, "standstill", HOSTILE), (of, "hot_keys", HOSTILE)]
        keys = {(side, "hot_keys", HOSTILE): 1}
        keeping.add(tick, mark, Figures(amounts | {("job", "elapsed_us"): US}, levels, told, keys))
    keeping.close()
    ended = RunEnd(ended_us=START_US + 9 * US, how="failed", error=f"{HOSTILE}\nHint: {HOSTILE}")
    segments.end(store, run, ended.model_copy(update={"notices": (HOSTILE,)}))
    return store


def _fail_with_message(said):
    raise AssertionError(said)


LONG = "orders_of_the_northern_region_with_returns_and_cancellations"
SOURCES = (
    LONG,
    "платежи_по_заказам",
    "注文の配送状況と返品の一覧および店舗ごとの売上の合計",
    "clicks",
    "الطلبات",
)
_TIME = "time_of_the_order_in_the_shop_as_the_till_of_the_shop_says_it"


def odd_plan():
    """Inputs with long names and names of many scripts; the rows of one come by the million."""
    text = "SET max_rows = 2000000000; SET max_bytes = '50 GB';\n"
    for name in SOURCES:
        times = [_TIME] if name == LONG else ["at", _TIME] if name == "clicks" else ["at"]
        columns = "".join(
            f", `{at}` TIMESTAMP, WATERMARK FOR `{at}` AS `{at}` - INTERVAL '5' SECONDS" for at in times
        )
        text += f"""CREATE TABLE `{name}` (id BIGINT{columns})
          WITH ('connector' = 'memory', 'rows_per_second' = '12345678');"""
    joins = "".join(
        f" JOIN `{name}` {alias} ON o.id = {alias}.id"
        f" AND {alias}.at BETWEEN o.`{_TIME}` AND o.`{_TIME}` + INTERVAL '1' HOUR"
        for alias, name in zip("pdx", (SOURCES[1], SOURCES[2], SOURCES[4]), strict=True)
    )
    text += f"""
        CREATE SINK `unpaid_{LONG[:53]}` WITH ('connector' = 'memory');
        CREATE SINK small WITH ('connector' = 'memory');
        INSERT INTO `unpaid_{LONG[:53]}` SELECT o.id, o.`{_TIME}` AS t FROM `{LONG}` o{joins};
        INSERT INTO small SELECT c.id, c.at FROM clicks c JOIN clicks d
          ON c.id = d.id AND d.at BETWEEN c.at AND c.at + INTERVAL '1' MINUTE;"""
    return watersmeet.plan_job(watersmeet.parse_job(text))


def odd(ticks, *, scale=10**12, pause_s=1, ended=None):
    """A store with a history of `odd_plan`. ``scale``: rows of its largest input in a tick; ``ended``: how,
    if it has."""
    store, plan = MemoryStore(), odd_plan()
    integers = (subject_of("time", "small", "d", "at"),)
    run = segments.begin(store, "0" * 8, build_run_start(plan, integer_times=integers))
    keeping = HistoryWriter(store, _fail_with_message, pause_s=1e9)
    for tick in range(1, ticks + 1):
        clock_us = START_US + tick * pause_s * US
        keeping.add(tick, clock_us, _odd_figures(plan, tick, clock_us, scale))
    keeping.close()
    if ended is not None:
        error = "the disk is full: /var/lib/" + LONG + "\nHint: make room"
        segments.end(
            store, run, RunEnd(ended_us=START_US + (ticks + 1) * pause_s * US, how=ended, error=error)
        )
    return store


def _odd_figures(plan, tick, clock_us, scale):
    amounts = {("job", "duration_us"): 300_000 + tick, ("job", "elapsed_us"): US}
    amounts |= {(subject_of("phase", part), "duration_us"): 100_000 + tick for part in ("ingest", "join")}
    levels, keys, told = {}, {}, []
    for source in SOURCES:
        rows = scale // 7 if source == LONG else 3
        amounts[subject_of("source", source), "rows_in"] = rows
        levels[subject_of("source", source), "backlog"] = rows
    for query in plan.queries:
        is_large = query.name != "small"
        levels[subject_of("query", query.name), "total_rows_out"] = tick * (scale // 13 if is_large else 1)
        levels[subject_of("query", query.name), "state_bytes"] = scale if is_large else 999_999
        for side in query.sides:
            rows = scale if side.name == "o" else 20
            of, stored = (subject_of(kind, query.name, side.name) for kind in ("input", "side"))
            counts = {"late": tick * rows // 20, "broken": tick * rows // 50, "retained": rows // 3}
            levels |= {(of, place): count for place, count in counts.items()}
            levels |= {(of, "in"): tick * rows, (of, "matched"): tick * rows - sum(counts.values())}
            levels |= {(stored, "retained"): rows // 3, (stored, "forecast_rows"): rows // 4}
            levels |= {(stored, "file_bytes"): rows * 30, (stored, "forecast_bytes"): rows * 25}
            keys[stored, "hot_keys", f"id = {LONG}"] = rows // 4
            told.append((of, "standstill", f"partition 2 of {side.name} has had no row for 35 min"))
            partitions = subject_of("partitions", query.name, side.name)
            levels |= {(partitions, "count"): 2, (partitions, "idle"): 0}
            source = side.sources[0][1].source.name
            for column in side.event_times:
                mark = clock_us - (3_605 if side.name == "o" else 5) * US
                levels |= {(of, f"late of {column} <10s"): counts["late"]}
                levels[subject_of("time", query.name, side.name, column), "watermark"] = mark
                for n in (0, 1):
                    partition = subject_of("partition", query.name, side.name, source, str(n))
                    levels |= {
                        (partition, f"watermark of {column}"): mark + n * US,
                        (partition, "last_row_us"): mark,
                    }
    return Figures(amounts, levels, told if tick == 1 else (), keys)
