"""CREATE INDEX and DROP INDEX: what they make of a job, and what is refused, where it stands."""

from __future__ import annotations

import pytest

import watersmeet
from watersmeet.errors import WatersmeetError
from watersmeet.spec.model import Job

TABLES = """CREATE TABLE c (id BIGINT, name STRING, d INT) WITH ('connector' = 'memory', 'diff.column' = 'd');
CREATE TABLE o (Number BIGINT PRIMARY KEY NOT ENFORCED, customer BIGINT, `order` STRING)
    WITH ('connector' = 'memory');
CREATE TABLE s (t BIGINT, k BIGINT, WATERMARK FOR t AS t - 5) WITH ('connector' = 'memory');
CREATE TABLE m (id BIGINT PRIMARY KEY NOT ENFORCED, ms MAP<STRING, INT>, nested STRUCT<a: MAP<STRING, INT>>)
    WITH ('connector' = 'memory');
CREATE VIEW v AS SELECT id, upper(name) AS big FROM c WHERE id > 0;
CREATE VIEW j AS SELECT c.id FROM c JOIN o ON o.customer = c.id;
CREATE VIEW g AS SELECT name, count(*) AS n FROM c GROUP BY name;
CREATE SINK out WITH ('connector' = 'memory');
"""


def parse_job_text(text: str) -> Job:
    return watersmeet.parse_job(TABLES + text)


@pytest.mark.parametrize(
    ("text", "keys", "columns"),
    [
        ("CREATE INDEX x ON c (id);", (("id",),), "id name"),
        ("create index if not exists x on C (ID)", (("id",),), "id name"),
        ("CREATE INDEX x ON o (number), (customer)", (("Number",), ("customer",)), "Number customer order"),
        ("CREATE INDEX x ON o (number, customer)", (("Number", "customer"),), "Number customer order"),
        ("CREATE INDEX x ON o (`order`) INCLUDE (customer)", (("order",),), "customer order"),
        ("CREATE INDEX x ON v (id) WHERE big <> 'A'", (("id",),), "id big"),
        ("CREATE INDEX x ON c (id); CREATE OR REPLACE INDEX X ON c (name)", (("name",),), "id name"),
        ("CREATE INDEX x ON c (id); CREATE INDEX IF NOT EXISTS x ON nothing (name)", (("id",),), "id name"),
        ("CREATE INDEX y ON c (id); DROP INDEX Y; CREATE INDEX x ON c (id);", (("id",),), "id name"),
        ("DROP INDEX IF EXISTS x; CREATE INDEX x ON c (id);", (("id",),), "id name"),
        ("INSERT INTO out SELECT id FROM c; CREATE INDEX x ON c (id);", (("id",),), "id name"),
    ],
)
def test_an_index_is_a_query_of_the_job(text: str, keys: object, columns: str) -> None:
    job = parse_job_text(text)
    index = job.inserts[0]
    assert [insert.is_index for insert in job.inserts] == [True] + [False] * (len(job.inserts) - 1)
    assert index.name.lower() == "index x"
    assert index.query.indexed_by == keys
    assert " ".join(output.name for output in index.query.outputs) == columns
    assert watersmeet.plan_job(job).queries[0].is_index


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        ("CREATE INDEX x ON c (id); CREATE INDEX X ON c (name)", "duplicate-name", 'the index "X" already'),
        ("DROP INDEX x", "unknown-index", 'no index "x"'),
        ("CREATE INDEX orders ON o (number); DROP INDEX order", "unknown-index", '"orders"'),
        ("CREATE INDEX x ON c (nam)", "unknown-column", "name"),
        ("CREATE INDEX x ON o (number) INCLUDE (d)", "unknown-column", 'has no column "d"'),
        ("CREATE INDEX x ON c (id) INCLUDE (id)", "not-supported", "remove it"),
        ("CREATE INDEX x ON c (id) WHERE id > 1 UNION ALL SELECT * FROM c", "syntax", "nothing after it"),
        ("CREATE INDEX x ON c (id) WHERE id > 1 GROUP BY name", "syntax", "nothing after it"),
        ("CREATE INDEX x ON c (id) WHERE id > 1 LIMIT 3", "syntax", "nothing after it"),
        ("CREATE INDEX `` ON c (id)", "syntax", "empty"),
        ("CREATE INDEX x ON c (id, ID)", "duplicate-column", "twice"),
        ("CREATE INDEX x ON c (id, name), (name, id)", "duplicate-column", "same columns"),
        ("CREATE INDEX x ON b (id)", "unknown-table", '"b"'),
        ("CREATE INDEX x ON s (k)", "not-supported", "stream"),
        ("CREATE INDEX x ON j (id)", "not-supported", "index the tables"),
        ("CREATE INDEX x ON g (name)", "not-supported", "index the tables"),
        ("CREATE INDEX x ON c (upper(name))", "not-supported", "in a view"),
        ("CREATE INDEX x ON c (id DESC)", "not-supported", "hash"),
        ("CREATE INDEX x ON c USING btree (id)", "not-supported", "hash"),
        ("CREATE UNIQUE INDEX x ON c (id)", "not-supported", "PRIMARY KEY"),
        ("CREATE INDEX x ON m (ms)", "not-supported", "that = compares"),
        ("CREATE INDEX x ON m (id), (nested)", "not-supported", "that = compares"),
        ("CREATE INDEX x ON c ()", "syntax", "a column"),
        ("CREATE INDEX x ON c", "syntax", "( and columns"),
        ("CREATE INDEX ON c (id)", "syntax", "ON"),
        ("CREATE INDEX x (id)", "syntax", "ON table"),
        ("CREATE INDEX x ON c (id) more", "syntax", "end of the statement"),
        ("CREATE INDEX x ON c (id) WHERE nothing > 1", "unknown-column", "nothing"),
        ("CREATE INDEX x ON c (id) WHERE", "syntax", ""),
        ("DROP INDEX", "syntax", "index's name"),
        ("DROP TABLE c", "not-supported", "DROP INDEX"),
        ("CREATE INDX x ON c (id)", "syntax", "INDEX"),
    ],
)
def test_what_is_refused(text: str, code: str, says: str) -> None:
    with pytest.raises(WatersmeetError) as caught:
        watersmeet.plan_job(parse_job_text(text + ";"))
    assert caught.value.code == code, caught.value
    assert says in f"{caught.value.message} {caught.value.hint}"
    if code != "duplicate-column":
        assert caught.value.location is not None
        assert caught.value.location.line > TABLES.count("\n")


def test_a_sink_is_not_called_as_an_index_is() -> None:
    text = "CREATE INDEX x ON c (id); CREATE SINK `Index X` WITH ('connector' = 'memory');"
    with pytest.raises(WatersmeetError, match='the sink "Index X" has the name'):
        parse_job_text(text + "INSERT INTO `Index X` SELECT id FROM c;")
