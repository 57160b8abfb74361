"""Sources whose records say what becomes of rows: what is declared, and what is refused."""

from __future__ import annotations

import pytest

import watersmeet
from watersmeet.errors import EngineError, WatersmeetError
from watersmeet.plan.explain import explain
from watersmeet.spec.change_kinds import ChangeColumn
from watersmeet.spec.model import Job

TABLE = "CREATE TABLE c (k BIGINT, v STRING, op STRING, n INT) WITH ('connector' = 'memory'{}); "
JOINED = """SET output_mode = changelog;
    CREATE TABLE o (k BIGINT, d SMALLINT) WITH ('connector' = 'memory', 'diff.column' = 'D');
    INSERT INTO out SELECT c.*, o.k AS ok FROM c JOIN o ON c.k = o.k;"""
SINK = "CREATE SINK out WITH ('connector' = 'memory'); "


def read(options: str, columns: str | None = None, connector: str = "memory") -> Job:
    table = TABLE.format(options).replace("memory", connector)
    if columns is not None:
        table = table.replace("k BIGINT, v STRING, op STRING, n INT", columns)
    return watersmeet.parse_job(SINK + table + JOINED)


def test_the_column_that_says_it_is_none_of_the_rows() -> None:
    job = read(", 'op.column' = 'OP', 'op.insert' = 'new, again', 'op.delete' = 'old'")
    query = job.inserts[0].query
    assert [column.name for column in query.inputs[0].columns] == ["k", "v", "n"]
    assert [output.name for output in query.outputs] == ["k", "v", "n", "ok"]
    sources = [i.sources[0] for i in query.inputs]
    assert sources[0].change_column == ChangeColumn("op", ("new", "again"), ("old",))
    assert sources[1].change_column == ChangeColumn("d")
    assert all(source.changes and source.is_table for source in sources)
    text = explain(watersmeet.plan_job(job))
    assert "changes: op says insert (new, again) or delete (old)" in text
    assert "changes: d says how many times a row is added (below zero: removed)" in text


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (", 'op.column' = 'opp'", 'names the column "opp", which is not declared'),
        (", 'op.column' = 'op', 'diff.column' = 'n'", "cannot be used together"),
        (", 'op.insert' = 'I'", "needs 'op.column'"),
        (", 'diff.column' = 'v'", "a diff column needs an integer type"),
        (", 'diff.column' = 'n', 'op.delete' = 'D'", "need 'op.column'"),
        (", 'op.column' = 'op', 'op.insert' = 'D,x'", "'D' is listed both as an insert and as a delete"),
        (", 'op.column' = 'op', 'op.delete' = 'D,'", "option 'op.delete' has an empty entry: 'D,'"),
        (", 'op.column' = 'op', 'op.insert' = ''", "option 'op.insert' has an empty entry: ''"),
        (", 'op.column' = 'n'", "'I' in 'op.insert' is not a possible value of \"n\", which is INT"),
        (", 'op.column' = 'n', 'op.insert' = '1'", "'D' in 'op.delete' is not a possible value"),
        (
            ", 'op.column' = 'n', 'op.insert' = '+1', 'op.delete' = '-1'",
            "'+1' in 'op.insert' is not a possible",
        ),
        (
            ", 'op.column' = 'op', 'refresh' = '1 minute', 'path' = 'x', 'format' = 'json'",
            "never read completely",
        ),
        (", 'op.colum' = 'op', 'path' = 'x', 'format' = 'json'", "op.column"),
    ],
)
def test_what_cannot_be_is_refused(options: str, words: str) -> None:
    with pytest.raises(WatersmeetError) as caught:
        watersmeet.plan_job(read(options, connector="file" if "path" in options else "memory"))
    assert words in str(caught.value)


def test_other_columns_that_cannot_say_it() -> None:
    for columns, words in [
        ("op STRING", "there is no other column"),
        ("k BIGINT, op DOUBLE", "cannot tell inserts from deletes"),
        ("k BIGINT, t TIMESTAMP, op BIGINT, WATERMARK FOR op AS op", "so this cannot be an event time"),
    ]:
        with pytest.raises(WatersmeetError) as caught:
            read(", 'op.column' = 'op', 'op.insert' = '1', 'op.delete' = '2'", columns)
        assert words in str(caught.value)


def test_it_is_not_read_as_of_a_time_nor_in_append_mode() -> None:
    stream = """CREATE TABLE s (k BIGINT, t TIMESTAMP, WATERMARK FOR t AS t) WITH ('connector' = 'memory');
        CREATE TABLE c (k BIGINT, op STRING) WITH ('connector' = 'memory', 'op.column' = 'op');"""
    as_of = "SELECT s.k FROM s JOIN c FOR SYSTEM_TIME AS OF PROCTIME() ON s.k = c.k"
    with pytest.raises(WatersmeetError, match="whose records are changes"):
        watersmeet.parse_job(stream + as_of)
    both = "CREATE TABLE d (k BIGINT, op STRING) WITH ('connector' = 'memory', 'op.column' = 'op');"
    with pytest.raises(WatersmeetError, match="EMIT FINAL is not possible"):
        watersmeet.plan_job(
            watersmeet.parse_job(stream + both + "SELECT c.k FROM c JOIN d ON c.k = d.k EMIT FINAL")
        )


def test_append_mode_refuses_changes_in_a_union_with_a_join() -> None:
    streams = "".join(
        f"CREATE TABLE {name} (t INT, op STRING, WATERMARK FOR t AS t) WITH ('connector' = 'memory'{says});"
        for name, says in (("c", ", 'op.column' = 'op'"), ("l", ""), ("r", ""))
    )
    for joined, alone, words in (("l", "c", 'rows of "u" can'), ("c", "l", r'rows of "u\.1\.a" can')):
        union = f"SELECT a.t FROM {joined} AS a JOIN r ON a.t = r.t UNION ALL SELECT e.t FROM {alone} AS e"
        query = f"SELECT u.t FROM ({union}) u JOIN r ON u.t = r.t"
        with pytest.raises(WatersmeetError, match=words):
            watersmeet.plan_job(watersmeet.parse_job("SET output_mode = append;" + streams + query))


@pytest.mark.parametrize(
    "call", ["uuid()", "1 + rand()", "monotonically_increasing_id()", "shuffle(array(1))"]
)
def test_retracted_rows_require_deterministic_expressions(call: str) -> None:
    tables = """CREATE TABLE c (k BIGINT, op STRING) WITH ('connector' = 'memory', 'op.column' = 'op');
        CREATE TABLE d (k BIGINT, op STRING) WITH ('connector' = 'memory', 'op.column' = 'op');"""
    query = "SELECT c.k, {} AS x FROM c JOIN d ON c.k = d.k"
    changelog = "SET output_mode = changelog;" + tables
    with pytest.raises(WatersmeetError, match=r'in the column "x" returns a different value each time'):
        watersmeet.plan_job(watersmeet.parse_job(changelog + query.format(call)))
    assert watersmeet.plan_job(watersmeet.parse_job(changelog + query.format("hash(c.k)")))
    stream = tables.replace("op STRING)", "WATERMARK FOR k AS k)").replace(", 'op.column' = 'op'", "")
    assert watersmeet.plan_job(watersmeet.parse_job(stream + query.format(call)))


def test_changes_in_process() -> None:
    job = watersmeet.LocalJob(watersmeet.plan_job(read(", 'op.column' = 'op'")), watersmeet.MemoryStore())

    def tick(**rows: list[dict[str, object]]) -> list[tuple[object, ...]]:
        output = job.tick({name: [(row, 1) for row in given] for name, given in rows.items()})
        return sorted(tuple(row.values()) for row in output.rows["out"])

    row = {"k": 1, "v": "a", "n": 5}
    assert tick(c=[{**row, "op": "c"}], o=[{"k": 1, "d": 2}]) == [(1, "a", 5, 1, 2, 1)]
    assert tick(o=[{"k": 1, "d": -1}]) == [(1, "a", 5, 1, -1, 2)]
    assert tick(c=[{**row, "op": "d"}, {**row, "v": "b", "op": "c"}]) == [
        (1, "a", 5, 1, -1, 3),
        (1, "b", 5, 1, 1, 3),
    ]
    for wrong in ({"k": 1, "d": None}, {"k": 1, "d": 2 * 10**9}, {"k": 1, "d": "two"}, {"k": 1, "d": 1.5}):
        with pytest.raises(EngineError, match=r"neither an insert nor a delete|is not a valid SMALLINT"):
            tick(o=[wrong])
    with pytest.raises(EngineError, match="use I, i, c"):
        tick(c=[{**row, "op": "u"}])
    assert tick(o=[{"k": 1, "d": -1}]) == [(1, "b", 5, 1, -1, 4)]


KEYED = "k BIGINT PRIMARY KEY NOT ENFORCED, v STRING, op STRING, n INT"


@pytest.mark.parametrize("word", ["u", "U", "UPDATE", "update"])
def test_an_update_by_a_key_is_an_upsert(word: str) -> None:
    job = watersmeet.LocalJob(
        watersmeet.plan_job(read(", 'op.column' = 'op'", KEYED)), watersmeet.MemoryStore()
    )

    def tick(*rows: dict[str, object], **others: list[dict[str, object]]) -> list[tuple[object, ...]]:
        given = {"c": list(rows), **others}
        output = job.tick({name: [(row, 1) for row in of] for name, of in given.items()})
        return sorted((row["v"], row["_diff"]) for row in output.rows["out"])

    row = {"k": 1, "n": 5}
    assert tick({**row, "v": "a", "op": "c"}, o=[{"k": 1, "d": 1}]) == [("a", 1)]
    assert tick({**row, "v": "b", "op": word}) == [("a", -1), ("b", 1)]
    assert tick({**row, "op": "d"}) == [("b", -1)]
    assert tick({**row, "v": "c", "op": word}) == [("c", 1)]


def test_a_word_for_deletes_is_none_for_updates() -> None:
    job = read(", 'op.column' = 'op', 'op.delete' = 'D,U'", KEYED)
    change = job.inserts[0].query.inputs[0].sources[0].change_column
    assert change is not None
    assert "U" not in change.inserts
    assert {"u", "UPDATE"} <= set(change.inserts)
    with pytest.raises(WatersmeetError, match="'U' is listed both as an insert and as a delete"):
        read(", 'op.column' = 'op', 'op.insert' = 'U', 'op.delete' = 'U'", KEYED)


def test_a_state_from_before_updates_counted_goes_on() -> None:
    """The words that say so are those of before, as far as it is the usual ones."""
    plans = [
        watersmeet.plan_job(read(f", 'op.column' = 'op'{more}", KEYED))
        for more in ("", ", 'op.insert' = 'I, i, c, r, +I, +U, INSERT, insert'", ", 'op.insert' = 'c, u'")
    ]
    usual, before, others = (plan.queries[0].fingerprint for plan in plans)
    assert usual == before != others


@pytest.mark.parametrize(
    "table", ["c", "(SELECT c.k FROM c JOIN c AS d ON c.k = d.k UNION ALL SELECT k FROM c)"]
)
def test_stream_joined_with_changing_tables_is_refused_with_a_hint(table: str) -> None:
    job = f"""SET output_mode = changelog;
        CREATE TABLE s (k BIGINT, t TIMESTAMP, WATERMARK FOR t AS t) WITH ('connector' = 'memory');
        CREATE TABLE c (k BIGINT, op STRING) WITH ('connector' = 'memory', 'op.column' = 'op');
        SELECT s.k FROM s JOIN {table} AS u ON s.k = u.k"""
    with pytest.raises(WatersmeetError) as caught:
        watersmeet.plan_job(watersmeet.parse_job(job))
    assert caught.value.code == "unbounded-state"
    assert "declare s as changing tables, too" in (caught.value.hint or "")
