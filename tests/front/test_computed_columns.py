"""Columns that a declaration computes: those of a view in the place where they are declared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import pytest

from watersmeet import LocalJob, MemoryStore, declared, explain
from watersmeet.errors import SqlError
from watersmeet.parser.statements import parse_job
from watersmeet.plan.model.job import KeyRows
from watersmeet.plan.planner import plan_job
from watersmeet.spec.model import Column, Source
from watersmeet.types.parser import sql_type

MEMORY = "WITH ('connector' = 'memory'{})"
STRUCT = "meta STRUCT<ts: TIMESTAMP, op: STRING, id: INT>"
OF_TIME = "CASE WHEN at < 0 THEN 'D' ELSE 'I' END"
OP, DIFF = ", 'op.column' = 'op'", ", 'diff.column' = 'n'"
UPSERT, DEBEZIUM = (
    f", 'connector' = 'kafka', 'topic' = 't', 'bootstrap.servers' = 'b:1', 'format' = '{format}'"
    for format in ("upsert-json", "debezium-json")
)
SINK = "CREATE SINK out WITH ('connector' = 'memory');"


def table(columns: str, options: str = "", name: str = "n") -> str:
    written = MEMORY.format(options) if "connector" not in options else f"WITH ({options.lstrip(', ')})"
    return f"CREATE TABLE {name} ({columns}) {written};"


def refusal(text: str) -> SqlError:
    with pytest.raises(SqlError) as caught:
        parse_job(text)
    return caught.value


def test_a_computed_event_time_is_the_plan_and_the_state_of_a_view() -> None:
    join = (
        "INSERT INTO out SELECT a.k, b.ts FROM {0} a LEFT JOIN {0} b"
        " ON a.k = b.k AND b.ts BETWEEN a.ts AND a.ts + INTERVAL '1' HOUR;"
    )
    view = (
        "CREATE VIEW ordered AS SELECT * FROM TABLE(IMPOSE_ORDER(TABLE(SELECT k, meta.ts AS ts, meta FROM n),"
        " DESCRIPTOR(ts), INTERVAL '5' SECONDS));"
    )
    own = table(f"k INT, ts AS meta.ts, {STRUCT}, WATERMARK FOR ts AS ts - INTERVAL '5' SECONDS")
    computed = plan_job(parse_job(SINK + own + join.format("n")))
    seen = plan_job(parse_job(SINK + table(f"k INT, {STRUCT}") + view + join.format("ordered")))
    assert computed.queries[0].fingerprint == seen.queries[0].fingerprint


def test_a_star_has_them_where_they_are_declared_and_the_sink_has_none() -> None:
    columns = f"op STRING, twice AS k * 2, k INT, again AS Twice + k, {STRUCT}, at AS meta.ts"
    job = parse_job(table(columns, ", 'op.column' = 'op'") + "SELECT * FROM n EMIT CHANGES;")
    outputs = job.inserts[0].query.outputs
    assert [output.name for output in outputs] == ["twice", "k", "again", "meta", "at"]
    (branch,) = job.inserts[0].query.inputs[0].branches
    assert [expr.sql("spark") for expr in branch.columns] == [
        "k * 2", "k", "(k * 2) + k", "meta", "meta.ts",
    ]  # fmt: skip
    (sink,) = (sink for sink in job.sinks if sink.name == "n")
    assert [column.name for column in sink.columns or ()] == ["op", "k", "meta"]


def test_a_comment_is_passed_over() -> None:
    plans = [
        plan_job(parse_job(table(f"k INT, x AS k + 1{said}") + "SELECT * FROM n;"))
        for said in ("", " COMMENT 'one more'")
    ]
    assert plans[0].queries[0].fingerprint == plans[1].queries[0].fingerprint


def test_they_follow_columns_that_are_inferred() -> None:
    asked: list[Sequence[str]] = []

    def infer(source: Source, clauses: Sequence[str]) -> Sequence[Column]:
        asked.append(clauses)
        return [*source.columns, Column("meta", sql_type("STRUCT<ts: TIMESTAMP>"))]

    text = "CREATE TABLE n ({}WATERMARK FOR ts) WITH ('connector' = 'file', 'path' = 'in'); SELECT * FROM n;"
    (insert,) = parse_job(text.format("ts AS meta.ts, "), infer=infer).inserts
    assert [output.name for output in insert.query.outputs] == ["meta", "ts"]
    assert asked == [["ts AS meta.ts", "WATERMARK FOR ts"]]
    with pytest.raises(
        SqlError, match='column "meta" is computed, but the records already have a column of that name'
    ):
        parse_job(text.format("meta AS 1, ts AS meta, "), infer=infer)


def test_python_reads_them_of_declarations() -> None:
    relation = declared(table(f"{STRUCT}, ts AS meta.ts, WATERMARK FOR ts"))["n"]
    assert [(column.name, str(column.type)) for column in relation.columns][1:] == [("ts", "TIMESTAMP")]
    assert "event time n.ts TIMESTAMP" in relation.explain()


KEYED = f"v INT, {STRUCT}, seq INT, id AS meta.id, op AS upper(meta.op), at AS seq, PRIMARY KEY (id)"
FLAT = "v INT, seq INT, id INT, op STRING, at INT, PRIMARY KEY (id)"
BY_KEY = f"{OP}, 'sequence.by' = 'at'"
SEVERAL = "SELECT id, v FROM n WHERE id < 9 UNION ALL SELECT CAST(id AS BIGINT), v FROM n"


def outputs(text: str, *ticks: Sequence[Mapping[str, object]]) -> list[Counter[str]]:
    """Return the changes of each tick of ``n``; the job is opened anew between them."""
    plan, store, found = plan_job(parse_job(text)), MemoryStore(), []
    for rows in ticks:
        job = LocalJob(plan, store)
        job.push("n", rows)
        found.append(Counter(repr(row) for row in job.tick().tables["out"].to_pylist()))
    return found


@pytest.mark.parametrize(
    "query", ["SELECT id, v FROM n", "SELECT count(*) AS n, max(v) AS v FROM n", SEVERAL]
)
def test_records_change_a_table_by_what_is_computed_of_them(query: str) -> None:
    ticks = [
        [("i", 1, 10, 1), ("i", 2, 20, 1), ("i", 3, 30, 1), ("d", 3, 31, 2)],
        [("u", 1, 11, 3), ("u", 1, 99, 2), ("d", 2, 22, 2), ("i", 3, 33, 1)],
        [("i", None, 50, 9), ("d", 1, None, None), ("i", 2, 23, 2)],
    ]
    nested = [
        [{"v": v, "seq": seq, "meta": {"ts": None, "op": op, "id": id}} for op, id, v, seq in tick]
        for tick in ticks
    ]
    flat = [
        [{"v": v, "seq": seq, "id": id, "op": op.upper(), "at": seq} for op, id, v, seq in tick]
        for tick in ticks
    ]
    end = f"{SINK} INSERT INTO out {query} EMIT CHANGES;"
    computed = outputs(table(KEYED, BY_KEY) + end, *nested)
    assert computed == outputs(table(FLAT, BY_KEY) + end, *flat)
    assert all(computed[:2])


@pytest.mark.parametrize(
    ("option", "change"), [(OP, "op AS CASE WHEN meta.n > 0 THEN 'I' ELSE 'D' END"), (DIFF, "n AS meta.n")]
)
def test_a_row_without_a_key_is_all_but_what_says_whether_it_comes(option: str, change: str) -> None:
    columns = f"k INT, meta STRUCT<n: INT, id: INT>, v INT, {change}, id AS meta.id"
    text = table(columns, option) + SINK + "INSERT INTO out SELECT * FROM n EMIT CHANGES;"
    (query,) = (insert.query for insert in parse_job(text).inserts)
    assert [output.name for output in query.outputs] == ["k", "v", "id"]
    rows = [{"k": 1, "meta": {"n": n, "id": 7}, "v": 3} for n in (1, -1)]
    came, went = outputs(text, rows[:1], rows[1:])
    assert came == Counter([repr({"k": 1, "v": 3, "id": 7, "_diff": 1, "_tick": 1})])
    assert went == Counter([repr({"k": 1, "v": 3, "id": 7, "_diff": -1, "_tick": 2})])


def test_the_state_goes_by_what_keys_and_changes_are_computed_of() -> None:
    def fingerprint(columns: str, query: str = "SELECT id, v FROM n") -> object:
        return plan_job(parse_job(table(columns, BY_KEY) + query)).queries[0].fingerprint

    own = fingerprint(KEYED)
    assert own == fingerprint(
        KEYED.replace("id AS", "uid AS").replace("(id)", "(uid)"), "SELECT uid, v FROM n"
    )
    others = [("id AS meta.id", "id AS meta.id + 1"), ("upper(meta.op)", "meta.op"), ("at AS seq", "at AS v")]
    assert len({own, *(fingerprint(KEYED.replace(*other)) for other in others)}) == 4


def test_computed_key_is_retained_once_and_identifies_one_row() -> None:
    sink = "CREATE SINK out (id INT, v INT, PRIMARY KEY (id)) WITH ('connector' = 'postgres', "
    sink += "'url' = 'postgresql://h/d', 'table' = 't');"
    (query,) = plan_job(
        parse_job(table(KEYED, BY_KEY) + sink + "INSERT INTO out SELECT id, v FROM n WHERE id > 1;")
    ).queries
    assert query.key_rows is KeyRows.KNOWN
    (node,) = query.nodes
    assert {*node.side.kept} == {"v", "id", "at"}  # type: ignore[attr-defined]


def test_a_key_is_computed_of_columns_that_are_inferred() -> None:
    text = "CREATE TABLE n (id AS meta.id, PRIMARY KEY (id), seq AS meta.ts) WITH ('connector' = 'file',"
    text += " 'path' = 'in', 'sequence.by' = 'seq'); SELECT * FROM n EMIT CHANGES;"
    columns = [Column("meta", sql_type("STRUCT<ts: TIMESTAMP, id: INT>"))]
    job = parse_job(text, infer=lambda source, clauses: columns)
    (source,) = job.inserts[0].query.inputs[0].sources
    assert source.primary_key is not None
    assert source.primary_key.named == ("id", "seq")


def test_what_is_computed_of_records_is_explained() -> None:
    job = parse_job(table(KEYED, BY_KEY) + "SELECT id, v FROM n EMIT CHANGES;")
    assert "computed of its records: id AS meta.id, at AS seq, op AS UPPER(meta.op)" in explain(plan_job(job))


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        (table("k INT, k AS 1"), "duplicate-column", "declared twice"),
        (table("k INT, x AS"), "syntax", 'what "x" is computed of'),
        (table("k INT, x AS nope"), "unknown-column", '"nope"'),
        (table("k INT, x AS *"), "not-supported", '"x" AS more than one'),
        (table("k INT, x AS k AS y"), "not-supported", '"x" AS more than one'),
        (table("k INT, x INT AS k"), "not-supported", 'AS after column "x"'),
        (table("k INT, x AS y, y AS k"), "unknown-column", '"y"'),
        (table("k INT, x AS rand()"), "nondeterministic", "rand()"),
        (table("k INT, x AS now()"), "not-supported", "now()"),
        (table("k INT, x AS count(k)"), "not-supported", "the aggregate count(k)"),
        (table("k INT, x AS proctime()"), "not-supported", "PROCTIME()"),
        (table("k INT, x AS CAST(k AS STRING), WATERMARK FOR x"), "wrong-type", '"x" is STRING'),
        (table("op STRING, k INT, x AS op", ", 'op.column' = 'op'"), "unknown-column", '"op"'),
        (table(f"{STRUCT}, m AS meta, PRIMARY KEY (m)"), "primary-key", '"m" is STRUCT'),
        (table("k INT, x AS k + 1 PRIMARY KEY NOT ENFORCED"), "not-supported", "PRIMARY KEY after the comp"),
        (table("k INT, x AS rand(), PRIMARY KEY (x)"), "nondeterministic", "rand()"),
        (table(f"k INT, {STRUCT}, op AS meta.ts", OP), "bad-option", '"op" is TIMESTAMP and cannot tell'),
        (table(f"{STRUCT}, op AS meta.op, x AS op, PRIMARY KEY (x)", OP), "unknown-column", '"op"'),
        (table(f"{STRUCT}, op AS meta.op", OP), "not-supported", "there is no other column"),
        (table(f"{STRUCT}, op AS meta.op, x AS meta", OP), "not-supported", '"x" is computed from meta,'),
        (table(f"{STRUCT}, x AS upper(meta.op), op AS meta.op", OP), "not-supported", "from meta.op,"),
        (table("m MAP<STRING, INT>, x AS m['x'], n AS m['n']", DIFF), "not-supported", "from m,"),
        (table(f"k INT, {STRUCT}, n AS meta.id, PRIMARY KEY (k)", DIFF), "primary-key", "counts rows"),
        (
            table(f"{STRUCT}, id AS meta.id, PRIMARY KEY (id)", UPSERT),
            "not-supported",
            "upsert-json identifies",
        ),
        (
            table(f"{STRUCT}, id AS meta.id, PRIMARY KEY (id)", DEBEZIUM),
            "not-supported",
            "debezium-json identifies",
        ),
        (
            table(f"k INT, at BIGINT, op AS {OF_TIME}, WATERMARK FOR at", OP),
            "not-supported",
            "from the event time at",
        ),
        (
            table("k INT, at BIGINT, n AS at * 2, WATERMARK FOR at", DIFF),
            "not-supported",
            "from the event time at",
        ),
        (
            table("k INT, v INT, s AS v, PRIMARY KEY (k)", f"{DEBEZIUM}, 'sequence.by' = 's'"),
            "not-supported",
            "'sequence.by' uses \"s\", which is computed, but deletes in debezium-json contain only"
            " their key",
        ),
        ("CREATE SINK s (a INT, b AS a) WITH ('connector' = 'console');", "bad-option", "is a sink"),
    ],
)
def test_what_cannot_be_computed_is_refused(text: str, code: str, message: str) -> None:
    error = refusal(
        f"{text} SELECT * FROM n;" if "SINK" not in text else f"{table('k INT')} {text} SELECT * FROM n;"
    )
    assert error.code == code
    assert message in error.message


@pytest.mark.parametrize(
    "query",
    [
        "SELECT {0} FROM n",
        "SELECT n.{0} FROM n",
        "SELECT n.k FROM n JOIN m ON n.k = m.k WHERE {0} > 0",
        "SELECT k FROM (SELECT k, {0} FROM n)",
        "SELECT k FROM IMPOSE_ORDER(TABLE n, DESCRIPTOR({0}), INTERVAL '1' SECOND)",
        "SELECT count(*) FROM TABLE(TUMBLE(TABLE n, DESCRIPTOR({0}), 10)) GROUP BY window_start",
    ],
)
def test_query_on_operation_columns_is_refused_with_a_hint(query: str) -> None:
    declared = table("k INT, amount INT, op AS IF(amount < 0, 'D', 'I')", OP) + table("k INT", name="m")
    error = refusal(f"{declared} {query.format('amount')};")
    assert error.code == "unknown-column"
    assert error.hint is not None
    assert 'compute op from another column: op tells inserts from deletes in "n"' in error.hint
    error = refusal(f"{declared} {query.format('OP')};")
    assert error.hint == 'remove op: it tells inserts from deletes in "n" and is not part of its rows'
