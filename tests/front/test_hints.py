"""BROADCAST hints: which input they mark, and that they hold for their own SELECT."""

from __future__ import annotations

import pytest

from watersmeet.errors import SeveralErrors, SqlError
from watersmeet.parser.statements import parse_job
from watersmeet.spec.model import Query

DECLARED = """
    CREATE TABLE o (id BIGINT, t BIGINT, WATERMARK FOR t AS t - 5) TYPE Memory;
    CREATE TABLE d (id BIGINT, t BIGINT, WATERMARK FOR t AS t - 5) TYPE Memory;
    CREATE VIEW late AS SELECT id, t FROM d WHERE id > 7;
    CREATE VIEW od AS SELECT /*+ BROADCAST(d) */ o.id, o.t FROM o JOIN d ON d.id = o.id;
    CREATE VIEW counted AS SELECT window_end, id, count(*) AS n
      FROM TABLE(TUMBLE(TABLE d, DESCRIPTOR(t), 10)) GROUP BY window_start, window_end, id;
"""


def query(sql: str) -> Query:
    return parse_job(DECLARED + sql).inserts[0].query


def list_broadcast_aliases(sql: str) -> list[str]:
    return [i.alias for i in query(sql).inputs if i.broadcast]


@pytest.mark.parametrize(
    "hint",
    [
        "/*+ BROADCAST(d) */",
        "/*+BROADCASTJOIN(`d`)*/",
        "/*+ mapjoin(D) */",
        '/*+\n  MAPJOIN ( "d" )\n*/',
        "/*+ BROADCAST(d, d), MAPJOIN(d) */",
    ],
)
def test_it_is_written_as_in_spark(hint: str) -> None:
    assert list_broadcast_aliases(f"SELECT {hint} o.id FROM o JOIN d ON d.t = o.t") == ["d"]


def test_several_inputs_of_several_joins() -> None:
    sql = " x.id FROM o x JOIN o y ON y.t = x.t LEFT JOIN d z ON z.t = x.t"
    sql += " FULL JOIN (d v JOIN o w ON v.t = w.t) ON x.t = v.t"
    assert list_broadcast_aliases(f"SELECT /*+ BROADCAST(y, z) */ {sql}") == ["y", "z"]
    assert list_broadcast_aliases(f"SELECT /*+ BROADCAST(y) */ /*+ BROADCAST(w), MAPJOIN(z) */ {sql}") == [
        "y",
        "z",
        "w",
    ]
    assert list_broadcast_aliases(f"SELECT /*+ BROADCAST(y) */ -- a\n /* b */ /*+ MAPJOIN(z) */ {sql}") == [
        "y",
        "z",
    ]


@pytest.mark.parametrize("view", ["late", "counted", "(SELECT t, id FROM d UNION ALL SELECT t, id FROM o)"])
def test_a_view_that_is_one_input_is_one_side(view: str) -> None:
    time = "window_end" if view == "counted" else "t"
    assert list_broadcast_aliases(
        f"SELECT /*+ BROADCAST(x) */ o.id FROM o JOIN {view} x ON x.{time} = o.t"
    ) == ["x"]


def test_it_holds_inside_of_a_view_wherever_that_is_used() -> None:
    assert list_broadcast_aliases("SELECT x.id FROM od x JOIN d ON d.t = x.t") == ["x.d"]
    assert list_broadcast_aliases("SELECT /*+ BROADCAST(d) */ x.id FROM od x JOIN d ON d.t = x.t") == [
        "x.d",
        "d",
    ]
    assert list_broadcast_aliases(
        "WITH c AS (SELECT /*+ BROADCAST(o) */ o.t FROM o JOIN d ON d.t = o.t) SELECT c.t FROM c"
    ) == ["c.o"]
    union = query("SELECT /*+ BROADCAST(x) */ o.id FROM o JOIN d x ON o.t = x.t UNION ALL SELECT id FROM d")
    (stage,) = union.inputs[0].stages
    assert [i.alias for i in stage.inputs if i.broadcast] == ["x"]
    assert "/*+ BROADCAST(x) */" in stage.sql
    (stage,) = query("SELECT o.id, o.t FROM o UNION ALL SELECT id, t FROM od").inputs[0].stages
    assert [i.alias for i in stage.inputs if i.broadcast] == ["od.d"]


def test_semi_joins_and_exists() -> None:
    assert list_broadcast_aliases("SELECT /*+ BROADCAST(d) */ o.id FROM o LEFT ANTI JOIN d ON d.t = o.t") == [
        "d"
    ]
    exists = "SELECT {}o.id FROM o WHERE NOT EXISTS (SELECT {}1 FROM d WHERE d.t = o.t)"
    assert list_broadcast_aliases(exists.format("", "/*+ BROADCAST(d) */ ")) == ["d"]
    assert list_broadcast_aliases(exists.format("/*+ BROADCAST(o) */ ", "")) == ["o"]
    with pytest.raises(SqlError, match="both sides of a join"):
        query(exists.format("/*+ BROADCAST(o) */ ", "/*+ BROADCAST(d) */ "))


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT /*+ BROADCAST(e) */ o.id FROM o JOIN d ON d.t = o.t", "unknown input"),
        ("SELECT /*+ BROADCAST(x) */ x.id FROM od x JOIN d ON d.t = x.t", r"is itself a join \(x.o, x.d\)"),
        (
            "SELECT /*+ BROADCAST(o) */ x.id FROM od x JOIN d ON d.t = x.t",
            '"x.o" is an input of another SELECT',
        ),
        (
            "WITH c AS (SELECT /*+ BROADCAST(o) */ * FROM (SELECT o.id FROM o JOIN d ON o.t = d.t))"
            " SELECT id FROM c",
            '"o" is an input of another SELECT',
        ),
        ("SELECT /*+ SHUFFLE_HASH(o) */ o.id FROM o JOIN d ON d.t = o.t", "SHUFFLE_HASH is not supported"),
    ],
)
def test_invalid_hints_are_refused(sql: str, message: str) -> None:
    with pytest.raises(SqlError, match=message):
        query(sql)


def test_all_invalid_hints_are_reported_together() -> None:
    with pytest.raises(SeveralErrors) as caught:
        query("SELECT /*+ BROADCAST(e), MERGE(o), BROADCAST(f) */ o.nosuch FROM o JOIN d ON d.t = o.t")
    assert len(caught.value.errors) == 4
