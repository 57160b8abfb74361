"""What is worked out over columns is what the engine counts tick by tick: of random samples and queries."""

from __future__ import annotations

import random
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from tests.support.effort import at_effort
from watersmeet.parser.statements import parse_job
from watersmeet.plan.planner import plan_job
from watersmeet.whatif.ingest_rules import count_ingested, is_direct, marks_of, retained, rows_of_query
from watersmeet.whatif.lags import disorder_of, least_lags
from watersmeet.whatif.sample import SampleSource, sample_of
from watersmeet.whatif.settings import Setting, apply_setting
from watersmeet.whatif.trial import Trials, replay_sample

CASES = at_effort(quick=14, full=56)
S = 1_000_000

TABLES = """
CREATE TABLE a (k BIGINT, t {t}, u {t}, x BIGINT, WATERMARK FOR t AS t - {lag}) WITH ({with_a});
CREATE TABLE b (k BIGINT, t {t}, u {t}, x BIGINT, WATERMARK FOR t AS t - {lag}, WATERMARK FOR u AS u - {lag})
  WITH ({with_b});
CREATE TABLE c (k BIGINT, t {t}, u {t}, x BIGINT, WATERMARK FOR t AS t - {lag}) WITH ({with_c});
CREATE VIEW ac AS SELECT k, t, u, x FROM a WHERE x > 1 UNION ALL SELECT k, t, u, x FROM c;
CREATE VIEW beneath AS
  SELECT * FROM TABLE(IMPOSE_ORDER(TABLE plain, DESCRIPTOR(t), {lag}));
"""
PLAIN = "CREATE TABLE plain (k BIGINT, t {t}, u {t}, x BIGINT) WITH ('connector' = 'memory');\n"
QUERIES = (
    "SELECT a.k, b.x FROM a {kind} JOIN b ON a.k = b.k AND b.t BETWEEN a.t - {one} AND a.t + {two}",
    "SELECT a.k, b.x FROM a {kind} JOIN b ON a.k = b.k AND b.t BETWEEN a.t - {one} AND a.t + {two}"
    " AND a.x < 3 AND b.u <= a.t + {two}",
    "SELECT p.k, q.x FROM a p {kind} JOIN a q ON p.k = q.k AND q.t BETWEEN p.t AND p.t + {two} AND p.x < q.x",
    "SELECT ac.k, b.x FROM ac {kind} JOIN b ON ac.k = b.k AND b.t BETWEEN ac.t - {one} AND ac.t + {two}",
    "SELECT p.k, b.x FROM beneath p {kind} JOIN b ON p.k = b.k AND b.t BETWEEN p.t - {one} AND p.t + {two}",
    "SELECT t, x FROM a WHERE x > 2",
    "SELECT a.k, b.x, c.x AS y FROM a, b, c WHERE a.k = b.k AND b.k = c.k"
    " AND b.t BETWEEN a.t - {one} AND a.t + {two} AND c.t BETWEEN b.t AND b.t + {two}",
)


def job_text(rng, query, in_time):
    def amount(n):
        return f"INTERVAL '{n}' SECONDS" if in_time else str(n)

    def options():
        written = ["'connector' = 'memory'"]
        if in_time and rng.random() < 0.4:
            written.append(f"'idle_timeout' = '{rng.randint(2, 12)} seconds'")
            if rng.random() < 0.4:
                written.append("'on_idle' = 'follow'")
        if in_time and rng.random() < 0.3:
            written.append("'max_ahead' = '4 seconds'")
        return ", ".join(written)

    said = {
        "t": "TIMESTAMP" if in_time else "BIGINT",
        "lag": amount(3),
        "one": amount(rng.randint(0, 4)),
        "two": amount(rng.randint(1, 9)),
        "kind": rng.choice(["INNER", "LEFT", "RIGHT", "FULL"]),
    }
    sets = ""
    if rng.random() < 0.3:
        sets += f"SET allowed_lateness = '{rng.randint(1, 3)}{' seconds' if in_time else ''}';\n"
    if rng.random() < 0.5 and query == QUERIES[2]:
        sets += "SET lateness = join;\n"
    if "c.x AS y" in query:
        sets += f"SET plan = {rng.choice(['delta', 'delta', 'cascade'])};\n"
    text = sets + PLAIN.format(**said)
    text += TABLES.format(with_a=options(), with_b=options(), with_c=options(), **said)
    return text + query.format(**said) + ";"


def rows_of(rng, count, in_time, partitions):
    start = 1_600_000_000
    now, rows = 0.0, []
    for _ in range(count):
        now += rng.expovariate(2.0) if rng.random() > 0.03 else 15

        def time(now=now):
            if rng.random() < 0.05:
                return None
            late = rng.expovariate(0.4) if rng.random() < 0.5 else 0
            ahead = 30 if rng.random() < 0.01 else 0
            value = int(now - late + ahead)
            return (start + value) * S if in_time else value

        rows.append((rng.choice([1, 2, 3, None]), time(), time(), rng.randint(0, 5), (start + now) * S))
    k, t, u, x, came = zip(*rows, strict=True)
    kind = pa.timestamp("us") if in_time else pa.int64()
    table = pa.table(
        {
            "k": pa.array(k, pa.int64()),
            "t": pa.array([None if v is None else int(v) for v in t], pa.int64()).cast(kind),
            "u": pa.array([None if v is None else int(v) for v in u], pa.int64()).cast(kind),
            "x": pa.array(x, pa.int64()),
        }
    )
    names = pa.chunked_array([pa.array([f"p{rng.randint(1, partitions)}" for _ in rows])])
    return table, pa.chunked_array([pa.array([int(v) for v in came]).cast(pa.timestamp("us"))]), names


def drawn(rng, case):
    in_time = rng.random() < 0.7
    query = QUERIES[case % len(QUERIES)]
    job = parse_job(job_text(rng, query, in_time))
    by_arrival, partitions = in_time and rng.random() < 0.6, rng.randint(1, 3)
    given = []
    for source in plan_job(job).sources:
        table, came, names = rows_of(rng, rng.randint(1, 80), in_time, partitions)
        told = None if partitions == 1 else names
        given.append(SampleSource(source, table, "t", came if by_arrival else None, told))
    idle = [source.source.idle_timeout_us for source in given if source.source.idle_timeout_us]
    size = rng.choice([{"rows_per_tick": rng.randint(1, 30)}, {"ticks": 12}])
    if in_time and rng.random() < 0.3:
        size = {"tick_length": 3 * S}
    sample = sample_of(given, idle_us=idle if by_arrival else (), **size)
    unit = S if in_time else 1
    lags = {source.source.name: rng.randint(0, 8) * unit for source in given if rng.random() < 0.7}
    scale = rng.choice([Fraction(1), Fraction(1), Fraction(1, 2), Fraction(3)])
    idle_us = rng.choice([None, 4 * S])
    keeps = rng.random() < 0.6 or "follow" in str(job) or not in_time
    if "BETWEEN" not in query or "{one}" not in query:
        scale = Fraction(1)
    return job, sample, Setting(lags=lags, scale=scale, idle=idle_us, keeps_idle=keeps)


def worked_out(query, sample):
    """Late, without a time, and retained after every tick: per alias."""
    rows = rows_of_query(query, sample)
    marks = marks_of(query, rows, sample)
    late, null_time, kept = {}, {}, {}
    for own in rows:
        of, alias = count_ingested(own, marks), own.side.name
        late[alias] = late.get(alias, 0) + int(of.late.sum())
        null_time[alias] = null_time.get(alias, 0) + of.null_time
        kept[alias] = kept.get(alias, 0) + retained(of, own.arrived.ticks, sample.ticks)
    return late, null_time, {alias: own.tolist() for alias, own in kept.items()}


def test_late_retained_and_lost_are_those_of_the_engine():
    seen = dict.fromkeys(("direct", "late", "lost", "null_time", "released", "delta", "scaled"), 0)
    for case in range(CASES):
        seed = 7_000 + case
        rng = random.Random(seed)
        try:
            job, sample, setting = drawn(rng, case)
            changed = apply_setting(job, setting)
            plan = plan_job(changed)
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error
        (query,) = plan.queries
        if not is_direct(query):
            continue
        told = replay_sample(plan, sample)[query.name]
        late, null_time, kept = worked_out(query, sample)
        where = f"seed {seed}: {query.sql} {setting}"
        assert late == {alias: told.counts[alias].get("late", 0) for alias in late}, where
        assert null_time == {alias: told.counts[alias].get("null_time", 0) for alias in late}, where
        assert kept == {alias: told.retained[alias] for alias in kept}, where
        outcome = Trials(job, sample).run(setting).queries[query.name]
        assert {alias: own.rows for alias, own in outcome.inputs.items()} == {
            alias: told.counts[alias].get("in", 0) for alias in late
        }, where
        if outcome.matches is not None:
            assert outcome.matches - outcome.lost == told.matches, where
            seen["lost"] += outcome.lost
        seen["direct"] += 1
        seen["late"] += sum(late.values())
        seen["null_time"] += sum(null_time.values())
        seen["released"] += sum(any(np.diff(own) < 0) for own in kept.values())
        seen["delta"] += len(query.nodes) > 1
        seen["scaled"] += setting.scale != 1
    assert all(seen.values()), seen


@pytest.mark.parametrize("share", [0.0, 0.05, 0.1])
def test_a_suggested_lag_is_the_least_that_does(share):
    """By the engine's own count of late rows, with the lag and with one less."""
    tight = 0
    for seed in range(at_effort(quick=2, full=6)):
        rng = random.Random(seed)
        in_time = rng.random() < 0.5
        job = parse_job(
            PLAIN.format(t="TIMESTAMP" if in_time else "BIGINT")
            + "CREATE VIEW a AS SELECT * FROM TABLE(IMPOSE_ORDER(TABLE plain, DESCRIPTOR(t), "
            + ("INTERVAL '1' SECOND" if in_time else "1")
            + "));\nSELECT t, x FROM a WHERE x > 2;"
        )
        (source,) = plan_job(job).sources
        table, _, names = rows_of(rng, 60, in_time, 2)
        sample = sample_of([SampleSource(source, table, "t", None, names)], rows_per_tick=5)
        lag = least_lags(disorder_of(job, sample), share)["plain"]

        def late_with(lag, job=job, sample=sample):
            counts = replay_sample(plan_job(apply_setting(job, Setting(lags={"plain": lag}))), sample)[
                "console"
            ].counts["a"]
            return counts.get("late", 0) / counts["in"]

        assert late_with(lag) <= share, seed
        if lag:
            assert late_with(lag - 1) > share, seed
            tight += 1
    assert tight
