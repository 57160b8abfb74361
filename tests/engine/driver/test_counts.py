"""What a tick says of its rows as a whole: read from sources, and gone to the sink."""

from __future__ import annotations

import pytest

import watersmeet
from tests.support.ticks import arriving
from watersmeet.runtime.local import LocalJob
from watersmeet.state.store import MemoryStore

SOURCES = """
CREATE MAPPING s (i BIGINT, t BIGINT) TYPE File OPTIONS ('path' = 's', 'format' = 'json');
CREATE MAPPING r (i BIGINT, t BIGINT) TYPE File OPTIONS ('path' = 'r', 'format' = 'json');
CREATE VIEW l AS SELECT * FROM TABLE(IMPOSE_ORDER(TABLE s, DESCRIPTOR(t), 0));
CREATE VIEW m AS SELECT * FROM TABLE(IMPOSE_ORDER(TABLE r, DESCRIPTOR(t), 0));
CREATE VIEW few AS SELECT * FROM TABLE(IMPOSE_ORDER((SELECT * FROM s WHERE i > 3), DESCRIPTOR(t), 0));
CREATE MAPPING one TYPE Memory;
CREATE MAPPING two TYPE Memory;
"""
JOIN = "{} x JOIN {} y ON x.i = y.i AND y.t BETWEEN x.t AND x.t + 5"
ROWS = [{"i": number, "t": number} for number in range(6)]
LATE = {"i": None, "t": -100}


@pytest.mark.parametrize(
    "inserts",
    [
        [f"SELECT x.i FROM {JOIN.format('l', 'm')}"] * 2,
        [f"SELECT x.i FROM {JOIN.format('l', 'l')}", "SELECT i FROM m"],
        ["SELECT i FROM few", f"SELECT x.i FROM {JOIN.format('few', 'm')}"],
        [
            "SELECT u.i FROM (SELECT * FROM few UNION ALL SELECT * FROM l UNION ALL SELECT * FROM l) u, m"
            " WHERE u.i = m.i AND m.t BETWEEN u.t AND u.t + 5"
        ],
        [
            f"SELECT u.i FROM (SELECT x.i AS i, x.t AS t FROM {JOIN.format('l', 'm')}"
            f" UNION ALL SELECT x.i AS i, x.t AS t FROM {JOIN.format('few', 'm')}) u"
        ],
        [
            "SELECT window_start, count(*) AS n FROM TABLE(TUMBLE((SELECT x.t AS t FROM"
            f" {JOIN.format('l', 'm')}), DESCRIPTOR(t), 3)) GROUP BY window_start"
        ],
    ],
    ids=["two inserts", "itself", "filters beneath", "union", "union of joins", "windows over a join"],
)
def test_a_row_of_a_source_is_read_once_however_many_inputs_take_it(inserts):
    text = SOURCES + "".join(
        f"INSERT INTO {name} {query};" for name, query in zip(("one", "two"), inserts, strict=False)
    )
    job = LocalJob(watersmeet.plan_job(watersmeet.parse_job(text)), MemoryStore(), partitions=2)
    assert job.tick(arriving(s=ROWS, r=ROWS[:2])).result.rows_in == {"s": 6, "r": 2}
    assert job.tick(arriving(s=[*ROWS[:1], LATE])).result.rows_in == {"s": 2, "r": 0}
    assert job.tick({}, end=True).result.rows_in == {"s": 0, "r": 0}


LEFT_JOIN = JOIN.format("l", "m").replace(" JOIN", " LEFT JOIN")


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        (
            "SELECT window_start, count(*) AS n FROM TABLE(TUMBLE(TABLE l, DESCRIPTOR(t), 4))"
            " GROUP BY window_start HAVING count(*) > 2",
            1,
        ),
        (f"SELECT x.i FROM {LEFT_JOIN} WHERE y.i IS NULL", 4),
        (f"SELECT x.i FROM {LEFT_JOIN}", 6),
    ],
    ids=["having", "where", "plain"],
)
def test_rows_out_are_those_that_go_to_the_sink(query, rows):
    text = f"{SOURCES} INSERT INTO one {query};"
    job = LocalJob(watersmeet.plan_job(watersmeet.parse_job(text)), MemoryStore(), partitions=2)
    found = [job.tick(arriving(s=ROWS, r=ROWS[:2])), job.tick({}, end=True)]
    assert [tick.result.queries["one"].rows_out for tick in found] == [
        len(tick.rows["one"]) for tick in found
    ]
    assert found[-1].result.queries["one"].total_rows_out == rows
