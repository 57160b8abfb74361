"""Streams whose records say what changes, by calls: plans and rows are those of SQL, and what is refused."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

import watersmeet as ws
from watersmeet import local
from watersmeet.runtime.spark.sources.frames import can_have_broken_records

COLUMNS = {"id": "BIGINT", "name": "STRING", "op": "STRING", "n": "INT", "v": "BIGINT", "at": "TIMESTAMP"}
DECLARED = ", ".join(f"{name} {type_}" for name, type_ in COLUMNS.items())
KEY = ", PRIMARY KEY (id) NOT ENFORCED"
TIME = ", WATERMARK FOR at AS at - INTERVAL '10' SECONDS"
LAG = {"time": "at", "lag": "10 seconds"}

SAME: dict[str, tuple[dict[str, Any], str, str]] = {
    "an operation": ({"op": "OP"}, "", ", 'op.column' = 'op'"),
    "words of its own": (
        {"op": "op", "inserts": ["new", "again"], "deletes": "old"},
        "",
        ", 'op.column' = 'op', 'op.insert' = 'new, again', 'op.delete' = 'old'",
    ),
    "an operation that is a number": (
        {"op": "n", "inserts": [0, 1], "deletes": 2},
        "",
        ", 'op.column' = 'n', 'op.insert' = '0,1', 'op.delete' = '2'",
    ),
    "a diff": ({"diff": "n"}, "", ", 'diff.column' = 'n'"),
    "a key": ({"key": "id"}, KEY, ""),
    "a key of two": ({"key": ["id", "name"]}, KEY.replace("id", "id, name"), ""),
    "a key and an operation": ({"key": "id", "op": "op"}, KEY, ", 'op.column' = 'op'"),
    "a sequence": ({"key": "id", "sequence": "v"}, KEY, ", 'sequence.by' = 'v'"),
    "deletes that are remembered": (
        {"key": "id", "op": "op", "sequence": "v", "tombstones": "2 hours"},
        KEY,
        ", 'op.column' = 'op', 'sequence.by' = 'v', 'tombstones' = '2 hours'",
    ),
    "deletes that are not": (
        {"key": "id", "op": "op", "sequence": "v", "tombstones": "off", "max_rows": 9},
        KEY,
        ", 'op.column' = 'op', 'sequence.by' = 'v', 'tombstones' = 'off', 'max_rows' = '9'",
    ),
    "a stream of operations": ({"op": "op", **LAG}, TIME, ", 'op.column' = 'op'"),
    "a stream of diffs": (
        {"diff": "n", **LAG, "idle_timeout": "1 minute"},
        TIME,
        ", 'diff.column' = 'n', 'idle_timeout' = '1 minute'",
    ),
}


SCHEMA = StructType(
    [StructField("id", LongType()), StructField("v", LongType()), StructField("op", StringType())]
)


def both(what: str) -> tuple[ws.Relation, ws.Relation]:
    """By calls, and by SQL."""
    arguments, clause, options = SAME[what]
    text = f"CREATE TABLE c ({DECLARED}{clause}) WITH ('connector' = 'memory'{options})"
    return ws.stream(COLUMNS, name="c", **arguments), ws.declared(text)["c"]


def of(relation: ws.Relation, mode: str | None = "changes") -> ws.Job:
    return ws.job(relation.to_sink(ws.memory("q"), emit=mode))


@pytest.mark.parametrize("what", SAME)
def test_calls_give_the_plan_of_sql(what):
    made, said = both(what)
    assert made._given["c"].source == said._given["c"].source
    others = [
        ws.stream({"k": "BIGINT", "d": "INT", "t": "TIMESTAMP"}, name="o", diff="d", **time)
        for time in [{"time": "t", "lag": "5 seconds"} if "time" in SAME[what][0] else {}]
    ] * 2
    jobs = []
    for relation, other in zip((made, said), others, strict=True):
        c, o = relation.alias("c"), other.alias("o")
        within = ws.between("c.at", "o.t", "0s", "1h") if "time" in SAME[what][0] else ()
        joined = c.join(o, on="c.id = o.k", within=within or None, how="left").select("c.id", "c.name", "o.k")
        grouped = relation.group_by(ws.tumble("at", "10 minutes") if within else "name").agg("count(*) AS n")
        jobs.append([of(joined), of(relation.where("id > 3").select("id", "at")), of(grouped)])
    for one, other in zip(*jobs, strict=True):
        assert one.plan.queries[0].fingerprint == other.plan.queries[0].fingerprint
        assert one.explain() == other.explain()
    text = (
        "INSERT INTO q SELECT c.id, o.k FROM c JOIN o ON c.id = o.k AND c.at BETWEEN o.t AND o.t EMIT CHANGES"
    )
    texts = [ws.sql(f"CREATE SINK q WITH ('connector' = 'memory'); {text}", c=one, o=others[0])
             for one in (made, said)]  # fmt: skip
    assert texts[0].explain() == texts[1].explain()


def test_the_plan_says_by_what_records_of_a_tick_are_in_order():
    frame = ws.declared(
        f"CREATE TABLE c ({DECLARED}{KEY}) TYPE Spark"
        " OPTIONS ('format' = 'x', 'op.column' = 'op', 'sequence.by' = 'v')"
    )["c"]
    assert "of equal ones in a tick one counts: a row before a delete" in of(frame).explain()
    assert "of equal ones" not in of(both("a sequence")[0]).explain()


def test_pushed_rows_come_and_go_as_records_say(seed):
    """Against a dict and a sum, tick by tick."""
    draw = random.Random(seed)
    customers = ws.stream(
        {"id": "BIGINT", "name": "STRING", "what": "INT", "v": "BIGINT"},
        name="customers", op="what", inserts=[1, 2], deletes=0, key="id", sequence="v", tombstones="10 days",
    )  # fmt: skip
    orders = ws.stream({"k": "BIGINT", "item": "STRING", "d": "INT"}, name="orders", diff="d")
    joined = orders.alias("o").join(customers.alias("c"), on="o.k = c.id", how="left")
    job = local.job(of(joined.select("o.k", "o.item", "c.name")).plan)
    versions: dict[int, tuple[int, str | None]] = {}
    there: Counter[tuple[int, str]] = Counter()
    total: Counter[tuple[Any, ...]] = Counter()
    for _ in range(30):
        for _ in range(draw.randrange(6)):
            key, version, what = draw.randrange(5), draw.randrange(40), draw.choice([0, 1, 2])
            name = draw.choice("ab")
            job.push("customers", {"id": key, "name": name, "what": what, "v": version})
            if version >= versions.get(key, (-1, None))[0]:
                versions[key] = version, name if what else None
        for _ in range(draw.randrange(6)):
            row, times = (draw.randrange(5), draw.choice("xy")), draw.choice([1, 2, -1])
            if there[row] + times >= 0:
                job.push("orders", {"k": row[0], "item": row[1], "d": times})
                there[row] += times
        for row in job.tick().table.to_pylist():
            total[row["k"], row["item"], row["name"]] += row["_diff"]
        wanted = {
            (k, item, versions.get(k, (-1, None))[1]): times for (k, item), times in there.items() if times
        }
        assert {row: times for row, times in total.items() if times} == wanted, f"seed {seed}"


WRONG: dict[str, tuple[dict[str, Any], str, str]] = {
    "nothing that changes": ({}, "no column tells inserts from deletes", "op='op'"),
    "no such column": ({"op": "opp"}, 'op names the column "opp"', 'did you mean "op"?'),
    "no such diff": ({"diff": "nn"}, 'diff names the column "nn"', "n"),
    "two that say it": ({"op": "op", "diff": "n"}, "op and diff cannot be used together", "leave out one"),
    "inserts of nothing": ({"inserts": "I", **LAG}, "inserts needs op", "op='op'"),
    "deletes of a diff": ({"diff": "n", "deletes": "D"}, "inserts and deletes need op", "remove"),
    "a diff that is not a number": ({"diff": "name"}, "a diff column needs an integer type", "BIGINT"),
    "an operation that is a time": ({"op": "at"}, "cannot tell inserts", "STRING, or an integer"),
    "words that are no numbers": ({"op": "n"}, "'I' in inserts is not a possible value", "inserts='1'"),
    "a word of both": (
        {"op": "op", "inserts": "x", "deletes": ["x", "y"]},
        "'x' is listed both as an insert and as a delete",
        "either inserts or deletes",
    ),
    "a word that is none": ({"op": "op", "inserts": [None]}, "inserts is [None]", "inserts=["),
    "a truth": ({"op": "op", "deletes": True}, "deletes is True", "deletes=["),
    "an empty word": ({"op": "op", "deletes": ["D", " "]}, "deletes has an empty entry", "remove it"),
    "an operation of no name": ({"op": 3}, "op is 3", "pass the name of a column"),
    "a key that is no column": ({"key": "idd"}, 'key: unknown column "idd"', "id"),
    "a key that says what changes": ({"key": "op", "op": "op"}, 'key: unknown column "op"', "id"),
    "a key twice": ({"key": ["id", "ID"]}, 'key names "id" twice', "remove one"),
    "a key and a diff": ({"key": "id", "diff": "n"}, "each key has at most one row", "use op"),
    "a key and a time": ({"key": "id", **LAG}, "it has a key", "sequence='at'"),
    "a sequence without a key": ({"sequence": "v", **LAG}, "sequence needs a key", "key='id'"),
    "a sequence that is no column": ({"key": "id", "sequence": "w"}, 'sequence: unknown column "w"', "v"),
    "a sequence in the key": ({"key": "id", "sequence": "id"}, "is in the primary key", "in sequence that"),
    "a sequence of no name": ({"key": "id", "sequence": ["v"]}, "sequence is ['v']", "the name of a column"),
    "tombstones without a key": ({"tombstones": "1 day", **LAG}, "tombstones needs a key", "key='id'"),
    "tombstones without a sequence": (
        {"key": "id", "tombstones": "1 day"}, "tombstones needs sequence", "sequence='updated_at'"
    ),
    "tombstones that are not length": (
        {"key": "id", "sequence": "v", "tombstones": "never"}, "tombstones is 'never'", "INTERVAL"
    ),
    "a time that says what changes": (
        {"diff": "n", "time": "n"}, 'by "n", so this cannot be an event time', "use another"
    ),
    "a lag of no time": ({"op": "op", "lag": "1 second"}, 'lag needs an event time, but "c"', "add time"),
    "idle without a time": ({"op": "op", "idle_timeout": "1 second"}, "idle_timeout needs", "add time"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_argument_says_what_and_what_to_do(what):
    arguments, message, hint = WRONG[what]
    with pytest.raises(ws.WatersmeetError) as caught:
        ws.stream(COLUMNS, name="c", **arguments)
    assert message in str(caught.value)
    assert hint in str(caught.value.hint)
    assert '"c": "c"' not in str(caught.value)


def test_what_sql_refuses_of_changes_is_refused_of_calls():
    changing, rows = both("an operation")[0], ws.stream(COLUMNS, name="s", **LAG)
    with pytest.raises(ws.WatersmeetError, match="whose records are changes"):
        rows.alias("s").join(changing.alias("c").as_of(), on="s.id = c.id").query()
    with pytest.raises(ws.WatersmeetError, match="EMIT FINAL is not possible"):
        of(changing.alias("a").join(changing.alias("b"), on="a.id = b.id").select("a.id"), "final")
    with pytest.raises(ws.WatersmeetError, match="unbounded-state"):
        of(rows.alias("s").join(changing.alias("c"), on="s.id = c.id").select("s.id"))
    with pytest.raises(ws.WatersmeetError, match='unknown column "op"'):
        changing.select("id", "op")


@pytest.mark.parametrize("op", ["", ", 'op.column' = 'op'"])
def test_a_key_of_rows_in_no_order_needs_a_sequence(op):
    text = f"CREATE TABLE c ({DECLARED}{KEY}) TYPE Spark OPTIONS ('format' = 'x'{op})"
    with pytest.raises(ws.SqlError, match="rows of a spark source have no stable order") as caught:
        ws.declared(text)
    assert caught.value.code == "primary-key"
    assert "'sequence.by' = 'updated_at'" in str(caught.value.hint)
    assert ws.declared(text.replace("'x'", "'x', 'sequence.by' = 'v'"))
    frame = SimpleNamespace(schema=SCHEMA, isStreaming=True)
    said = {"op": "op"} if op else {}
    with pytest.raises(ws.SqlError, match="rows of a DataFrame have no stable order") as caught:
        ws.stream(frame, name="c", key="id", **said)
    assert "sequence='updated_at'" in str(caught.value.hint)
    made = ws.stream(frame, name="c", key="id", sequence="v", **said)._given["c"].source
    of_spark = (
        ws.declared(
            "CREATE TABLE c (id BIGINT PRIMARY KEY NOT ENFORCED, v BIGINT, op STRING) TYPE Spark"
            f" OPTIONS ('format' = 'x', 'sequence.by' = 'v'{op})"
        )["c"]
        ._given["c"]
        .source
    )
    assert made.connector == "dataframe"
    assert replace(made, connector="spark", options=of_spark.options) == of_spark
    assert can_have_broken_records(made), "a record without a key, or without a sequence"
