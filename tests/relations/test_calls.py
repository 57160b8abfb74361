"""What calls make of relations, and what they refuse: at the call, with its argument and what to do."""

from __future__ import annotations

import re
import threading
from datetime import timedelta
from types import SimpleNamespace

import pytest
from pyspark.sql.types import LongType, StructField, StructType

import watersmeet as ws
from watersmeet import background_job
from watersmeet.relations.terms import length_node
from watersmeet.runtime.spark.sql_text import to_spark_sql
from watersmeet.spec.options.function import NAMED, named_among
from watersmeet.types.intervals import interval_us

ORDERS = {"order_id": "BIGINT", "order_time": "TIMESTAMP", "item_id": "BIGINT"}
DELIVERIES = {"order_id": "BIGINT", "delivery_time": "TIMESTAMP", "address": "STRING"}
TICKS = {"n": "BIGINT", "at": "BIGINT"}

orders = ws.stream(ORDERS, time="order_time", lag="10 seconds", name="orders")
deliveries = ws.stream(DELIVERIES, time={"delivery_time": "1 minute"}, name="deliveries")
ticks = ws.stream(TICKS, time="at", lag=5, name="ticks")
AS_OF = "FOR SYSTEM_TIME AS OF PROCTIME()"
KEY = ", PRIMARY KEY (order_id) NOT ENFORCED"
WITHIN = ws.between("d.delivery_time", "o.order_time", "0s", "1h")


class Later:
    async def __call__(self, rows: object, tick: int) -> None:
        raise AssertionError("nobody waits for it")


def delivered(how: str = "left") -> ws.Relation:
    o, d = orders.alias("o"), deliveries.alias("d")
    return o.join(d, on="o.order_id = d.order_id", within=WITHIN, how=how)


def names(relation: ws.Relation) -> list[str]:
    return [column.name for column in relation.columns]


def test_a_relation_is_not_changed_by_what_is_made_of_it():
    o = orders.alias("o")
    before = repr(o)
    o.where("o.item_id > 100").select("o.order_id")
    o.join(deliveries.alias("d"), on="o.order_id = d.order_id").where("d.address IS NOT NULL")
    assert repr(o) == before
    assert repr(orders) == "Relation(SELECT * FROM `orders`)"


def test_filters_stand_where_they_were_called():
    beneath = orders.alias("o").where("o.item_id > 100").join(deliveries.alias("d"), within=WITHIN)
    assert "JOIN" in repr(beneath).partition("item_id > 100")[2]
    above = delivered().where("o.item_id > 100").where("d.address = 'x'", "o.order_id > 3 OR TRUE")
    assert repr(above).endswith("WHERE o.item_id > 100 AND d.address = 'x' AND (o.order_id > 3 OR TRUE))")
    chosen = orders.select("item_id AS item", "order_time").where("item > 3")
    assert names(chosen) == ["item", "order_time"]


def test_a_filter_of_an_or_stays_one():
    """``a OR b`` beside ``c`` is no ``a OR (b AND c)``, in the tree and in the text that Spark gets."""
    wanted = orders.where("(order_id = 1 OR order_id = 2) AND item_id = 3").alias("v").query()
    for relation in (
        orders.where("order_id = 1 OR order_id = 2").where("item_id = 3"),
        orders.where("order_id = 1 OR order_id = 2", "item_id = 3"),
    ):
        got = relation.alias("v").query()
        assert to_spark_sql(got.inputs[0].branches[0].above) == to_spark_sql(
            wanted.inputs[0].branches[0].above
        )


def test_bound_operand_is_parenthesized():
    on = ticks.alias("a").join(ticks.alias("b"), within=ws.between("b.at | 1", "a.at | 8", -1, 1)).query()
    assert (
        to_spark_sql(on.relation.on).replace("`", "")
        == "(b.at | 1) BETWEEN (a.at | 8) + -1 AND (a.at | 8) + 1"
    )


def test_an_alias_stays_with_an_order():
    ordered = (
        ws.stream({"at": "BIGINT", "bt": "BIGINT"}, time="at", name="a").alias("p").impose_order("p.bt", 1)
    )
    assert [i.alias for i in ordered.select("p.bt").query().inputs] == ["p"]
    named = ws.stream({"at": "BIGINT", "bt": "BIGINT"}, time="at", name="shop.orders")
    assert names(named.where("orders.bt > 3").select("orders.at")) == ["at"]


def test_a_hint_of_a_join_that_is_joined_is_not_lost():
    inner = orders.alias("o").join(deliveries.alias("d"), on="o.order_id = d.order_id", within=WITHIN)
    with pytest.raises(ws.SqlError, match="no name"):
        ticks.join(inner.hint("BROADCAST(d)"))


def test_one_name_is_a_list_of_it():
    assert ws.sink("postgres", url="postgresql://x/y", table="s.t", primary_key="id").primary_key == ("id",)
    joined = orders.alias("o").join(deliveries.alias("d"), using="order_id")
    assert repr(joined) == repr(orders.alias("o").join(deliveries.alias("d"), using=["order_id"]))
    assert ws.files("out/v1.2").name == "v1.2"
    assert ws.sink("delta", path="/lake/orders.tbl/").name == "orders.tbl"
    assert ws.sink("kafka", topic="shop.orders").name == "orders"


def test_a_started_job_tells_what_its_plan_warns_of(monkeypatch):
    monkeypatch.setattr(
        background_job, "run_planned", lambda job, plan, how, **_: how.on_notice("told later")
    )
    never = ws.between("d.delivery_time", "o.order_time", "1h", "0s")
    joined = orders.alias("o").join(deliveries.alias("d"), on="o.order_id = d.order_id", within=never)
    job = ws.job(joined.select("o.order_id").to_sink(ws.memory("none")), checkpoint="state")
    begun = job.start()
    assert begun.await_termination(5)
    (first, second) = begun.notices
    assert first == f"none: {job.plan.queries[0].warnings[0]}"
    assert second == "told later"


def test_a_job_runs_to_its_end_with_what_it_was_made_of(monkeypatch, capsys):
    asked = []

    def run(job, plan, settings):
        settings.on_notice("told later")
        asked.append((job, plan, settings))
        return "ended"

    def ignore_batch(rows, tick):
        pass

    monkeypatch.setattr("watersmeet.running.run_planned", run)
    late = orders.where("order_id > 5").foreach_batch(ignore_batch)
    job = ws.job(late, checkpoint="state/put", settings={"max_rows": 9})
    assert job.run(on_tick=print) == "ended"
    ((description, plan, settings),) = asked
    assert (description, plan) == (job.description, job.plan)
    assert not settings.is_background
    assert (settings.checkpoint, settings.functions, settings.on_tick) == (
        "state/put",
        {"ignore_batch": ignore_batch},
        print,
    )
    assert capsys.readouterr().err.splitlines()[-1] == "told later"
    with pytest.raises(ws.SpecError, match="no checkpoint"):
        ws.job(late).run()


def test_a_job_is_stopped_by_its_own_tick(monkeypatch):
    """Which the job waits for, so that waiting for the job there would never end."""
    said, made, gate = [], [], threading.Event()

    def run(job, plan, settings, *, watchers):
        for watcher in watchers:
            watcher.tick(SimpleNamespace(read=0, written=0), None)
        return SimpleNamespace(stopped=settings.stop.is_set() and settings.is_background)

    def stop_job_on_tick(_):
        assert gate.wait(5)
        said.append(made[0].stop())
        with pytest.raises(ws.SpecError, match="own on_tick"):
            made[0].await_termination()

    monkeypatch.setattr(background_job, "run_planned", run)
    job = ws.job(ticks.select("n").to_sink(ws.memory("q")), checkpoint="state")
    made.append(job.start(on_tick=stop_job_on_tick))
    gate.set()
    assert made[0].await_termination(5)
    assert said == [False]
    assert made[0].status == "stopped"


def test_a_function_of_batches_is_run_with_the_parameters_that_it_has(monkeypatch):
    """By which it is told of the job and the INSERT, as its sink sees them."""
    seen = []

    def record_batch_call(rows, tick, *, job, insert):
        seen.append((rows, tick, job, insert))

    def run(job, plan, settings, **_):
        functions = settings.functions
        asked = {name: name.upper() for name in named_among(functions["record_batch_call"], NAMED)}
        functions["record_batch_call"]("rows", 7, **asked)
        return SimpleNamespace(stopped=False)

    monkeypatch.setattr(background_job, "run_planned", run)
    job = ws.job(ticks.select("n").foreach_batch(record_batch_call), checkpoint="state")
    assert job.start().await_termination(5)
    assert seen == [("rows", 7, "JOB", "INSERT")]


def test_what_makes_a_table_does_not_wait_for_its_job(monkeypatch):
    """Which calls it in a tick, and would wait for it for ever."""
    said, made, gate = [], [], threading.Event()
    schema = StructType([StructField("order_id", LongType())])

    def makes():
        if made:
            said.append(made[0].stop())
        return SimpleNamespace(isStreaming=False, schema=schema)

    def run(job, plan, settings, **_):
        assert gate.wait(5)
        settings.table_functions["known"]()
        return SimpleNamespace(stopped=settings.stop.is_set())

    monkeypatch.setattr(background_job, "run_planned", run)
    known = ws.table(makes, name="known").alias("k").as_of()
    met = orders.alias("o").join(known, on="o.order_id = k.order_id").select("o.order_id")
    made.append(ws.job(met.to_sink(ws.memory("q")), checkpoint="state").start())
    gate.set()
    assert made[0].await_termination(5)
    assert (said, made[0].status) == ([False], "stopped")


def test_columns_of_rows_by_the_names_of_their_windows_are_not_mentioned():
    rows = ws.stream({"window_end": "BIGINT", "at": "BIGINT"}, time="at", name="rows")
    grouped = rows.group_by(ws.tumble("at", 10))
    assert names(grouped.agg("count(*) AS n")) == ["window_start", "window_end", "n"]
    with pytest.raises(
        ws.WatersmeetError, match=r'"window_end" is ambiguous.* \(agg, item 1, line 1, column 5\)'
    ):
        grouped.agg("max(window_end) AS n")


def test_columns_of_groups_are_edges_keys_and_aggregates():
    grouped = orders.group_by(ws.tumble("order_time", "10 minutes"), "item_id % 2 AS odd").agg(
        "count(*) AS n", having="count(*) > 1"
    )
    assert names(grouped) == ["window_start", "window_end", "odd", "n"]
    assert names(ticks.group_by("n").agg("max(at) AS latest")) == ["n", "latest"]
    assert names(ticks.group_by().agg("count(*) AS n")) == ["n"]
    assert names(ticks.group_by(ws.hop("at", 10, 5)).select("sum(n) AS s", "window_end")) == [
        "s",
        "window_end",
    ]


@pytest.mark.parametrize(
    ("length", "us"),
    [
        ("10 seconds", 10_000_000),
        ("-5 min", -300_000_000),
        ("INTERVAL '1' HOUR", 3_600_000_000),
        ("1 day 02:03:04", None),
        (timedelta(days=-1, microseconds=3), -86_399_999_997),
        (timedelta.max, None),
        ("0s", 0),
    ],
)
def test_lengths(length, us):
    if us is None:
        with pytest.raises(ws.SqlError):
            length_node(length, "lag")
    else:
        assert interval_us(length_node(length, "lag")) == us


def test_bounds_are_of_both_ends_or_one():
    plan = ws.job(
        ticks.alias("a")
        .join(ticks.alias("b"), on="a.n = b.n", within=ws.between("b.at", "a.at", -3, 7))
        .select("a.n")
        .to_sink(ws.memory("q"))
    ).plan
    (band,) = plan.queries[0].root.bands
    assert (band.lower, band.upper) == (-3, 7)
    half = ticks.alias("a").join(
        ticks.alias("b"), within=[ws.between("b.at", "a.at", None, 7), ws.between("b.at", "a.at", -3, None)]
    )
    (band,) = ws.job(half.select("a.n").to_sink(ws.memory("q"))).plan.queries[0].root.bands
    assert (band.lower, band.upper) == (-3, 7)


def test_outputs_of_one_job_are_named_after_their_sinks():
    job = ws.job(
        delivered().select("o.order_id").to_sink(ws.files("out/delivered")),
        orders.select("item_id").to_sink(ws.files("out/items.d/", name="items")),
        settings={"max_rows": 1000},
    )
    assert [query.name for query in job.plan.queries] == ["delivered", "items"]
    assert job.description.options.max_rows == 1000
    assert "LEFT OUTER JOIN" in job.explain()
    assert job.mermaid().startswith("flowchart LR")


def test_a_text_may_name_relations():
    text = """
        CREATE SINK delivered WITH ('connector' = 'file', 'path' = 'out', 'format' = 'csv');
        INSERT INTO delivered
        SELECT x.order_id, d.address FROM x LEFT JOIN "d" ON x.order_id = d.order_id
          AND d.delivery_time BETWEEN x.order_time AND x.order_time + INTERVAL '1' HOUR"""
    job = ws.sql(text, x=orders, d=deliveries, checkpoint="state", settings={"max_rows": 9})
    assert job.description.options.max_rows == 9
    assert job.description.run["checkpoint"] == "state"
    o, d = orders.alias("x"), deliveries.alias("d")
    by_calls = ws.job(
        o.join(
            d, on="x.order_id = d.order_id", how="left",
            within=ws.between("d.delivery_time", "x.order_time", "0s", "1 hour"),
        ).select("x.order_id", "d.address").to_sink(ws.files("out", "delivered", format="csv"))
    )  # fmt: skip
    assert job.plan.queries[0].fingerprint == by_calls.plan.queries[0].fingerprint
    view = ws.sql(
        "SELECT * FROM big", big=orders.where("item_id > 100").select("order_id AS id", "order_time")
    )
    assert [output.name for output in view.description.inserts[0].query.outputs] == ["id", "order_time"]


DECLARED = "CREATE TABLE Ticked (n BIGINT, at BIGINT, WATERMARK FOR at) WITH ('connector' = 'memory')"


def test_what_is_declared_has_its_name_and_no_place_in_a_text_that_nobody_wrote():
    assert list(ws.declared(DECLARED)) == ["Ticked"]
    twice = ticks.alias("a").join(ticks.alias("b"), within=ws.between("b.at", "a.at", 0, 1)).select("*")
    with pytest.raises(ws.SqlError, match="two columns of the result") as caught:
        ws.job(twice.to_sink(ws.files("out")))
    assert caught.value.location is None


def o_and_d(**more):
    return orders.alias("o").join(deliveries.alias("d"), **more)


WRONG = {
    "a time that is none": (
        lambda: ws.stream(ORDERS, time="at", name="o"),
        'no column "at"',
        '"order_time"',
    ),
    "a time of text": (lambda: ws.stream(DELIVERIES, time="address", name="d"), "is STRING", "TIMESTAMP"),
    "a lag that is none": (
        lambda: ws.stream(ORDERS, time="order_time", lag="soon", name="o"),
        "'soon'",
        "INTERVAL '10' SECONDS",
    ),
    "a lag of units": (
        lambda: ws.stream(ORDERS, time="order_time", lag=10, name="o"),
        "must be an interval",
        None,
    ),
    "a negative lag": (
        lambda: ws.stream(ORDERS, time="order_time", lag="-1s", name="o"),
        "is negative",
        None,
    ),
    "months": (lambda: ws.stream(ORDERS, time="order_time", lag="1 month", name="o"), "no fixed", "days"),
    "two lags": (
        lambda: ws.stream(ORDERS, time={"order_time": "1s"}, lag="1s", name="o"),
        "lag cannot be combined with",
        "{'t'",
    ),
    "no name": (lambda: ws.stream(ORDERS, time="order_time", name=" "), "name is ' '", "name='orders'"),
    "no frame": (lambda: ws.stream([1, 2], time="t", name="o"), "is a list", "DataFrame"),
    "a type that is none": (
        lambda: ws.stream({"t": "BIGINT", "x": "GEOMETRY"}, time="t", name="o"),
        'column "x"',
        None,
    ),
    "two columns of a name": (
        lambda: ws.stream({"t": "BIGINT", "T": "INT"}, time="t", name="o"),
        "two columns",
        "rename",
    ),
    "a column of ours": (lambda: ws.stream({"t": "INT", "__ws_x": "INT"}, time="t", name="o"), "__ws_", None),
    "an idle time that is none": (
        lambda: ws.stream(ORDERS, time="order_time", name="o", idle_timeout="never"),
        "idle_timeout is 'never'",
        None,
    ),
    "an unknown column": (lambda: orders.select("order"), 'unknown column "order"', "order_id"),
    "an unknown input": (lambda: delivered().select("x.order_id"), 'unknown input "x"', '"o"'),
    "no expression": (lambda: orders.where("item_id >"), "syntax", None),
    "two expressions": (lambda: orders.select("item_id; order_id"), "found 2", None),
    "a SELECT": (lambda: orders.where("SELECT 1"), "not a SELECT", None),
    "no text": (lambda: orders.where(True), "not SQL text", None),  # type: ignore[arg-type]
    "no condition": (lambda: orders.where(), "at least one condition", None),
    "nothing chosen": (lambda: orders.select(), "at least one column", None),
    "another kind": (lambda: o_and_d(how="outter"), "how is 'outter'", "full"),
    "no relation": (lambda: orders.join("deliveries"), "not str", "stream"),  # type: ignore[arg-type]
    "one name twice": (lambda: orders.join(orders), 'two inputs are named "orders"', "another name"),
    "on and using": (lambda: o_and_d(on="TRUE", using=["order_id"]), "combined with on", "leave out"),
    "no bound": (lambda: o_and_d(within=ws.between("d.delivery_time", "o.order_time", None, None)),
                 "needs at least one bound", "lower or upper"),
    "bounds that are none": (lambda: o_and_d(within="1h"), "within is", "between("),
    "an ambiguous column": (lambda: o_and_d(on="order_id = 3"), "ambiguous", None),
    "a filter between joins": (
        lambda: delivered().where("o.item_id > 3").join(ticks.alias("t"), within=WITHIN),
        "cannot follow a filter of a join",
        "before the join",
    ),
    "two windows": (
        lambda: orders.group_by(ws.tumble("order_time", "1s"), ws.tumble("order_time", "2s")),
        "only one window",
        "one",
    ),
    "a window of another time": (
        lambda: orders.group_by(ws.tumble("item_id", 3)).agg("count(*)"),
        "not an event time",
        "order_time",
    ),
    "a window of no size": (
        lambda: ticks.group_by(ws.tumble("at", 0)).agg("count(*)"),
        "greater than 0",
        None,
    ),
    "a hint of no join": (lambda: orders.hint("BROADCAST(o)"), "needs a relation that joins", ".join("),
    "a hint of nobody": (lambda: delivered().hint("BROADCAST(x)"), 'unknown input "x"', '"d"'),
    "a union of other widths": (lambda: orders.union_all(ticks), "branch 2 has 2", None),
    "two streams of a name": (
        lambda: orders.union_all(ws.stream(TICKS, time="at", name="Orders")),
        'named "Orders"',
        "name='…'",
    ),
    "no sink": (lambda: orders.to_sink("out"), "needs a sink, not 'out'", "files("),  # type: ignore[arg-type]
    "no such emit": (lambda: orders.to_sink(ws.memory("q"), emit="all"), "emit is 'all'", "changes"),
    "no such connector": (lambda: ws.sink("kafak"), "'kafak'", "kafka"),
    "a source for a sink": (lambda: ws.sink("generator"), "not a connector for sinks", None),
    "an option that is none": (
        lambda: ws.job(orders.to_sink(ws.files("out", fromat="csv"))),
        'no option "fromat"',
        "format",
    ),
    "an option in two spellings": (
        lambda: ws.files("out", Path="elsewhere"),
        "option 'Path' is set twice, also as 'path'",
        "leave out one",
    ),
    "an option in both ways": (
        lambda: ws.sink("file", options={"path": "out"}, path="elsewhere"),
        "option 'path' is set twice",
        "leave out one",
    ),
    "a setting in two spellings": (
        lambda: ws.job(orders.to_sink(ws.files("out")), settings={"max_rows": 5, "Max-Rows": 7}),
        "setting 'Max-Rows' is set twice, also as 'max_rows'",
        "leave out one",
    ),
    "a name that nobody gave": (
        lambda: ws.sql("SELECT * FROM x", y=orders),
        'unknown table or view "x" (line 1, column 15)',
        '"y"',
    ),
    "nothing but EXPLAIN": (lambda: ws.sql("EXPLAIN SELECT * FROM x", x=orders), "than EXPLAIN", "INSERT"),
    "a frame in a text": (lambda: ws.sql("SELECT * FROM x", x=[]), "is given list", "stream("),  # type: ignore[arg-type]
    "nothing to run": (lambda: ws.job(), "at least one sink", "to_sink"),
    "another declaration of a stream": (
        lambda: ws.sql(
            "CREATE TABLE Orders (order_id BIGINT, order_time TIMESTAMP, WATERMARK FOR order_time)"
            " WITH ('connector' = 'memory'); SELECT order_id FROM Orders UNION ALL SELECT order_id FROM x",
            x=orders,
        ),
        'are named "orders"',
        "another name",
    ),
    "two spellings of a name": (
        lambda: ws.sql("SELECT * FROM o", o=orders, O=ticks),
        "the same name twice",
        None,
    ),
    "a statement": (lambda: orders.where("DROP TABLE x"), "not DROP", None),
    "a deletion": (lambda: orders.where("DELETE FROM x"), "not DELETE", None),
    "a star as a condition": (lambda: orders.where("*"), 'not "*"', None),
    "a named condition": (lambda: orders.where("item_id > 3 AS x"), "not one with a name", None),
    "a number as a condition": (lambda: o_and_d(on=3), "on is 3", "at least"),
    "conditions of nothing": (lambda: o_and_d(on=[]), "on is []", "at least"),
    "columns of nothing": (lambda: o_and_d(using=[]), "using is []", "at least"),
    "columns of no text": (lambda: o_and_d(using=[None]), "using is [None]", "pass names of columns"),
    "kinds": (lambda: o_and_d(how=["left"]), "how is ['left']", None),
    "an emit of no text": (lambda: orders.to_sink(ws.memory("q"), emit=True), "emit is True", None),  # type: ignore[arg-type]
    "a union with a text": (lambda: orders.union_all("x"), "not str", None),  # type: ignore[arg-type]
    "a hint of no text": (lambda: delivered().hint(3), "hint is (3,)", None),  # type: ignore[arg-type]
    "a hint that ends": (lambda: delivered().hint("BROADCAST(d) */ x"), "hint is", None),
    "a group of nothing": (lambda: ticks.group_by().agg("n"), "no aggregate", None),
    "a text that is none": (lambda: ws.sql(3), "is given int", None),  # type: ignore[arg-type]
    "settings that are none": (
        lambda: ws.job(orders.to_sink(ws.memory("q")), settings=["a"]),  # type: ignore[arg-type]
        "settings is ['a']",
        None,
    ),
    "no checkpoint": (
        lambda: ws.job(orders.to_sink(ws.memory("q")), checkpoint=" "),
        "checkpoint is ' '",
        "directory",
    ),
    "two checkpoints": (
        lambda: ws.job(orders.to_sink(ws.memory("q")), checkpoint="a", settings={"CHECKPOINT": "b"}),
        "in the settings",
        None,
    ),
    "a time of no text": (lambda: ws.stream(ORDERS, time={3: "1s"}, name="o"), "time is", None),  # type: ignore[dict-item]
    "a sink of no name": (lambda: ws.memory(3), "name is 3", None),  # type: ignore[arg-type]
    "options that are none": (lambda: ws.sink("file", options="abc"), "options is", None),  # type: ignore[arg-type]
    "an order of another input": (
        lambda: ticks.alias("t").impose_order("zzz.n", 3),
        "not a column of the relation",
        None,
    ),
    "two lags of one time": (
        lambda: ws.stream({"t": "INT"}, time={"t": 1, "T": 2}, name="o"),
        '"t" has two lags',
        None,
    ),
    "bounds of a number": (lambda: o_and_d(within=5), "within is 5", "between("),
    "a view among declarations": (
        lambda: ws.declared(f"{DECLARED}; CREATE VIEW v AS SELECT * FROM Ticked WHERE n > 3"),
        "declares no stream or table",
        "views",
    ),
    "a sink among declarations": (
        lambda: ws.declared(f"{DECLARED}; CREATE SINK s WITH ('connector' = 'console')"),
        "declares no stream or table",
        "sinks",
    ),
    "a table that can only be written to": (
        lambda: ws.declared("CREATE TABLE d (n INT) WITH ('connector' = 'delta', 'path' = 'x')")["d"].columns,
        '"d" can only be written to: there is no delta source',
        "TYPE Spark OPTIONS ('format' = 'delta', …)",
    ),
    "declarations with more": (lambda: ws.declared("SELECT 1"), "only declarations such as", None),
    "a frame as a table": (
        lambda: ws.table(SimpleNamespace(isStreaming=False), name="t"),
        "always reads the files or version",
        "table(lambda:",
    ),
    "a maker of nothing": (lambda: ws.table(lambda: None, name="t"), "is a NoneType", "DataFrame"),
    "a maker of columns": (
        lambda: ws.table(lambda: {"id": "INT"}, name="t"), "returns no DataFrame", "spark.read"
    ),
    "a key of what does not change": (
        lambda: ws.table({"id": "INT"}, name="t", key="id", changes=False),
        "is only for changing tables",
        "remove key",
    ),
    "a key that is no column": (
        lambda: ws.table({"id": "INT"}, name="t", key="i"), 'key: unknown column "i"', "id"
    ),
    "a look at what is given": (
        lambda: ws.table({"id": "INT"}, name="t", refresh="1 minute"),
        "refresh",
        None,
    ),
    "a relation to run": (lambda: ws.job(orders), "is given Relation", "to_sink"),  # type: ignore[arg-type]
    "a setting that is none": (
        lambda: ws.job(orders.to_sink(ws.memory("q")), settings={"max_row": 3}),
        'unknown setting "max_row"',
        "max_rows",
    ),
    "state without bound": (
        lambda: ws.job(o_and_d(on="o.order_id = d.order_id").select("o.order_id").to_sink(ws.memory("q"))),
        "unbounded-state",
        None,
    ),
    "a sink and a format": (lambda: orders.to_sink(ws.memory("m"), format="orc"), "and a format", "leave"),
    "options of no format": (lambda: orders.to_sink(options={"a": 1}), "options without a format", "files("),
    "nowhere to go": (lambda: orders.to_sink(), "needs a sink, not None", "to_sink(files("),
    "a format of no text": (lambda: orders.to_sink(format=3), "format is 3", "jdbc"),  # type: ignore[arg-type]
    "two formats": (
        lambda: orders.to_sink(format="orc", options={"Format": "jdbc"}), "also contain a format", "remove it"
    ),
    "a key of a sink that has none": (
        lambda: ws.sink("file", path="out", format="json", primary_key="order_id"),
        'primary-key]: "out": rows in a file sink do not replace',
        "remove the PRIMARY KEY",
    ),
    "a table of no name": (lambda: orders.to_table(" "), "table is ' '", "catalog.db.t"),
    "a format of ours": (
        lambda: ws.job(orders.to_sink(format="parquet", options={"path": "out"})),
        "parquet needs TYPE File, which writes exactly once",
        "sink('file', …)",
    ),
    "a mode": (
        lambda: ws.job(orders.to_sink(format="orc", options={"path": "out", "mode": "overwrite"})),
        "option 'mode' cannot be set",
        "remove it",
    ),
    "a function of no name": (
        lambda: orders.foreach_batch(lambda rows, tick: None), "has no name", "name='put'"
    ),
    "a function that is none": (lambda: orders.foreach_batch("put"), "a str, not a function", "def put"),  # type: ignore[arg-type]
    "a function of one": (lambda: orders.foreach_batch(len), "cannot be called with rows", "def put"),  # type: ignore[arg-type]
    "an object that is called later": (
        lambda: orders.foreach_batch(Later(), name="put"), "it is an async function", "def put"
    ),
    "two functions of a name": (
        lambda: ws.job(
            orders.foreach_batch(lambda rows, tick: None, name="put"),
            orders.foreach_batch(lambda rows, tick: None, name="put"),
        ),
        'two sinks are named "put"',
        "another name",
    ),
    "two sinks of a name": (
        lambda: ws.job(orders.to_sink(ws.files("a/out")), orders.to_sink(ws.files("b/out"))),
        'two sinks are named "out"',
        "another name",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_call_says_what_and_what_to_do(what):
    call, message, hint = WRONG[what]
    with pytest.raises(ws.WatersmeetError) as caught:
        call()
    assert re.search(re.escape(message), str(caught.value))
    if hint is not None:
        assert hint in str(caught.value).partition("Hint: ")[2]


def test_tables_are_those_of_sql():
    columns = {"order_id": "BIGINT", "name": "STRING"}
    compared = "'connector' = 'memory', 'changes' = 'snapshot'"
    for table, key, options, clause in (
        (ws.table(columns, name="items").alias("i").as_of(), "", "'connector' = 'memory'", AS_OF),
        (ws.table(columns, name="items", changes=True).alias("i"), "", compared, ""),
        (ws.table(columns, name="items", key="order_id").alias("i"), KEY, compared, ""),
    ):
        on = "o.order_id = i.order_id"
        text = f"""
            CREATE TABLE items (order_id BIGINT, name STRING{key}) WITH ({options});
            CREATE TABLE orders (order_id BIGINT, order_time TIMESTAMP, item_id BIGINT{
            ", WATERMARK FOR order_time AS order_time - INTERVAL '10' SECONDS" if clause else ""
        }) WITH ({"'connector' = 'memory'" if clause else compared});
            SELECT o.item_id, i.name FROM orders o JOIN items {clause} AS i ON {on}"""
        left = orders if clause else ws.table(ORDERS, name="orders", changes=True)
        relation = left.alias("o").join(table, on=on).select("o.item_id", "i.name")
        emit, mode = (None, {}) if clause else ("changes", {"output_mode": "changelog"})
        made, said = ws.job(relation.to_sink(ws.memory("m"), emit=emit)), ws.sql(text, settings=mode)
        assert made.plan.queries[0].fingerprint == said.plan.queries[0].fingerprint


def test_where_rows_go_has_a_name():
    def discard_batch(rows: object, tick: int) -> None:
        pass

    names_of = [
        output.sink.name
        for output in (
            orders.foreach_batch(discard_batch),
            orders.foreach_batch(discard_batch, name="shop"),
            orders.to_table("lake.shop.delivered"),
            orders.to_sink(format="jdbc", options={"url": "jdbc:x", "dbtable": "shop.orders"}),
            orders.to_sink(format="orc", options={"path": "out/delivered"}),
            orders.to_sink(format="noop"),
            orders.to_sink(format="noop", name="nowhere"),
        )
    ]
    assert names_of == ["discard_batch", "shop", "delivered", "orders", "delivered", "noop", "nowhere"]
    plan = ws.job(orders.foreach_batch(discard_batch, primary_key="order_id"), checkpoint="state").plan
    assert plan.queries[0].sink.primary_key == ("order_id",)


def test_problems_are_placed_in_the_text_of_their_argument():
    with pytest.raises(ws.SeveralErrors) as caught:
        delivered().select("o.order_id", "o.nothing", "d.address ||\n d.nobody")
    places = [str(error.location) for error in caught.value.errors]
    assert places == ["select, item 2, line 1, column 3", "select, item 3, line 2, column 4"]


def test_columns_are_of_the_types_that_spark_gives_them():
    rows = ws.stream(
        {"n": "BIGINT", "p": "DECIMAL(10,2)", "s": "STRING", "t": "TIMESTAMP"}, time="t", name="rows"
    )
    computed = rows.select(
        "date_trunc('hour', t) AS h", "to_date(s, 'yyyy') AS d", "p * 2 AS twice", "t - t AS x", "NULL AS z"
    )
    assert [str(own.type) for own in computed.columns] == [
        "TIMESTAMP", "DATE", "DECIMAL(12,2)", "INTERVAL DAY TO SECOND", "VOID",
    ]  # fmt: skip
    grouped = rows.group_by(ws.tumble("t", "1 hour"), "date_trunc('hour', t) AS h")
    aggregates = grouped.agg("0.2 * avg(p) AS fifth", "sum(CASE WHEN n > 1 THEN 1 ELSE 0 END) AS many")
    assert [str(own.type) for own in aggregates.columns[2:]] == ["TIMESTAMP", "DECIMAL(16,7)", "BIGINT"]


@pytest.mark.parametrize(
    ("expression", "type_"),
    [
        ("timestamp_millis(n)", "TIMESTAMP"),
        ("make_timestamp(y, 1, 1, 0, 0, 0)", "TIMESTAMP"),
        ("date_trunc('hour', u)", "TIMESTAMP"),
        ("coalesce(u, timestamp_seconds(n))", "TIMESTAMP"),
        ("d + INTERVAL '1' HOUR", "TIMESTAMP"),
        ("make_timestamp_ntz(y, 1, 1, 0, 0, 0)", "TIMESTAMP_NTZ"),
        ("to_date(s, 'yyyy/MM/dd')", "DATE"),
        ("if(y > 1, make_date(y, 1, 1), d)", "DATE"),
        ("unix_millis(u) DIV 1000", "BIGINT"),
    ],
)
def test_event_times_are_made_by_functions(expression, type_):
    columns = {"n": "BIGINT", "y": "INT", "s": "STRING", "d": "DATE", "u": "TIMESTAMP"}
    rows = ws.stream(columns, time="u", name="rows").select("n", f"{expression} AS at")
    numbers = type_ == "BIGINT"
    ordered = rows.impose_order("at", 5 if numbers else "5 seconds")
    assert str(ordered.columns[1].type) == type_
    counted = ordered.group_by(ws.tumble("at", 60 if numbers else "1 day")).agg("count(*) AS c")
    assert f".at {type_}, lag" in counted.explain()
