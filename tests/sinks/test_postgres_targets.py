"""Tables of PostgreSQL that are not the job's alone: replaced, emptied, guarded by policies, and with
triggers and rules that do something else without an error.
"""

from __future__ import annotations

import json
import logging

import pyarrow as pa
import pytest

from tests.sinks.test_postgres import NUMBER, ORIGIN, numbers, prepared, put, stage, stored, write_keyed
from watersmeet import run
from watersmeet.errors import EngineError, SpecError
from watersmeet.sinks.part_mark import Resumed
from watersmeet.sinks.postgres.refused import REFUSED

pytestmark = pytest.mark.postgres

AFTER_1 = Resumed(1, last_parts={"q": (1, ORIGIN)})


@pytest.fixture
def table(postgres):
    return f"target{next(NUMBER)}"


def run_once(postgres, table):
    sink = prepared(postgres, table, {"n": "BIGINT"})
    put(sink, numbers(1), 1)
    sink.close()


@pytest.mark.parametrize(
    "change",
    [
        "DROP TABLE {t}",
        "ALTER TABLE {t} RENAME TO {t}_old",
        "DROP TABLE {t}; CREATE TABLE {t} (n bigint)",
        "UPDATE _watersmeet_sinks SET written_to = '1/2/3' WHERE target = '{t}'",
    ],
    ids=["dropped", "renamed", "made anew", "restored elsewhere"],
)
def test_another_table_is_refused_however_often_it_is_tried(postgres, table, change):
    run_once(postgres, table)
    postgres.run(change.format(t=table))
    there = stored(postgres, "pg_class", "relname", "1")
    for _ in range(2):
        with pytest.raises(EngineError, match="is not the table that this job has written to") as caught:
            prepared(postgres, table, {"n": "BIGINT"})
        assert caught.value.code == "sink-replaced"
        assert caught.value.hint.endswith("--accept-target out")
    made = set(stored(postgres, "pg_class", "relname", "1")) - set(there)
    assert table not in made


def test_another_table_is_taken_when_the_user_says_so_and_is_the_jobs_from_then_on(postgres, table):
    run_once(postgres, table)
    postgres.run(f"ALTER TABLE {table} RENAME TO {table}_old")
    sink = prepared(postgres, table, {"n": "BIGINT"}, accepts=True)
    assert sink.resume(["q"], AFTER_1) == []
    put(sink, numbers(2), 2)
    sink.close()
    sink = prepared(postgres, table, {"n": "BIGINT"})
    put(sink, numbers(3), 3)
    sink.close()
    assert stored(postgres, table) == ["2", "3"]
    postgres.run(f"DROP TABLE {table}; ALTER TABLE {table}_old RENAME TO {table}")
    with pytest.raises(EngineError, match="is not the table"):
        prepared(postgres, table, {"n": "BIGINT"})


def test_what_leaves_a_table_the_same(postgres, table):
    run_once(postgres, table)
    postgres.run(f"ALTER TABLE {table} ADD more text, SET UNLOGGED")
    postgres.run(f"VACUUM FULL {table}")
    sink = prepared(postgres, table, {"n": "BIGINT"})
    put(sink, numbers(2), 2)
    assert stored(postgres, table, "n") == ["1", "2"]


def test_a_ledger_of_earlier_versions_gets_the_identity_with_the_next_run(postgres, table):
    run_once(postgres, table)
    postgres.run("ALTER TABLE _watersmeet_sinks DROP written_to")
    sink = prepared(postgres, table, {"n": "BIGINT"})
    put(sink, numbers(2), 2)
    sink.close()
    postgres.run(f"DROP TABLE {table}")
    with pytest.raises(EngineError, match="is not the table"):
        prepared(postgres, table, {"n": "BIGINT"})


def test_a_table_that_others_empty_is_told_of_once(postgres, table, caplog):
    caplog.set_level(logging.WARNING)
    said = f'the table "public"."{table}" has no rows before tick'
    sink = prepared(postgres, table, {"n": "BIGINT"})
    for tick in (1, 2):
        put(sink, numbers(tick), tick)
    postgres.run(f"VACUUM FULL {table}")
    put(sink, numbers(3), 3)
    assert said not in caplog.text
    postgres.run(f"TRUNCATE {table}")
    for tick in (4, 5):
        put(sink, numbers(tick), tick)
    assert caplog.text.count(said) == 1
    sink.close()
    postgres.run(f"DELETE FROM {table}")
    sink = prepared(postgres, table, {"n": "BIGINT"})
    sink.resume(["q"], Resumed(5, last_parts={"q": (5, ORIGIN)}))
    put(sink, numbers(6), 6)
    assert caplog.text.count(said) == 2


KEYED = {"k": "BIGINT", "v": "BIGINT"}


def change(sink, tick, *rows):
    """Stage rows (k, v, whether the key has none any more), and publish them."""
    keys, values, gone = zip(*rows, strict=True)
    write_keyed(sink, pa.table({"k": keys, "v": values}), list(gone), tick)
    sink.publish("q", tick, "a", ORIGIN)


SWALLOWED = {
    "delete by a trigger": (
        "CREATE FUNCTION no_{t}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;"
        " CREATE TRIGGER no BEFORE DELETE ON {t} FOR EACH ROW EXECUTE FUNCTION no_{t}()",
        (1, 0, True),
    ),
    "delete by a rule": ("CREATE RULE no AS ON DELETE TO {t} DO INSTEAD NOTHING", (1, 0, True)),
    "update by a trigger": (
        "CREATE FUNCTION no_{t}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;"
        " CREATE TRIGGER no BEFORE UPDATE ON {t} FOR EACH ROW EXECUTE FUNCTION no_{t}()",
        (1, 7, False),
    ),
    "insert by a trigger": (
        "CREATE FUNCTION no_{t}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;"
        " CREATE TRIGGER no BEFORE INSERT ON {t} FOR EACH ROW EXECUTE FUNCTION no_{t}()",
        (5, 7, False),
    ),
}


@pytest.mark.parametrize("how", SWALLOWED)
def test_what_a_keyed_table_does_not_do_is_refused(postgres, table, how):
    ddl, row = SWALLOWED[how]
    sink = prepared(postgres, table, KEYED, ("k",))
    change(sink, 1, (1, 1, False), (2, 2, False))
    postgres.run(ddl.format(t=table))
    with pytest.raises(EngineError, match=r"did not take all rows .* or kept some") as caught:
        change(sink, 2, (3, 3, True), row)
    assert caught.value.code == "sink-refused-row"
    assert stored(postgres, table) == ["1|1", "2|2"]


@pytest.mark.parametrize("columns", [("k",), ("k", "v")], ids=["values beside the key", "all is key"])
def test_rows_that_come_and_go_again_are_no_mistake(postgres, table, columns):
    sink = prepared(postgres, table, KEYED, columns)
    change(sink, 1, (1, 1, False), (2, 2, False))
    change(sink, 2, (1, 1, False), (2, 2, True), (3, 3, True), (4, 4, False))
    change(sink, 3, (9, 9, True))
    assert stored(postgres, table) == ["1|1", "4|4"]


@pytest.fixture
def guarded(postgres, table):
    """Make a table with row-level security; return the URL of a user to whom it applies."""
    user = f"guest_{table}"
    postgres.run(
        f"CREATE TABLE {table} (k bigint PRIMARY KEY, v bigint);"
        f" ALTER TABLE {table} ENABLE ROW LEVEL SECURITY;"
        f" CREATE POLICY seen ON {table} USING (true) WITH CHECK (v < 100);"
        f" CREATE ROLE {user} LOGIN PASSWORD 'guest'; GRANT ALL ON {table} TO {user};"
        f" GRANT ALL ON SCHEMA public TO {user}"
    )
    prepared(postgres, f"{table}_ledger", {"n": "BIGINT"}, on_refused="aside").close()
    postgres.run(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {user}")
    return f"postgresql://{user}:guest@127.0.0.1:{postgres.port}/postgres"


def test_rows_that_a_policy_does_not_allow_are_put_aside(postgres, table, guarded):
    sink = prepared(postgres, table, KEYED, on_refused="aside", url=guarded)
    put(sink, pa.table({"k": [1, 2, 3], "v": [1, 100, 3]}), 1)
    assert stored(postgres, table) == ["1|1", "3|3"]
    (row,) = stored(postgres, f"{REFUSED} WHERE target = '{table}'", "sqlstate, reason, record")[-1:]
    assert row.startswith("42501|new row violates row-level security policy")
    assert json.loads(row.rpartition("|")[2]) == {"k": 2, "v": 100}


def test_a_row_that_a_policy_does_not_allow_is_named(postgres, table, guarded):
    sink = prepared(postgres, table, KEYED, url=guarded)
    stage(sink, pa.table({"k": [1, 2], "v": [1, 100]}), 1)
    with pytest.raises(EngineError, match=r"row-level security policy.*the row: k: '2', v: '100'") as caught:
        sink.publish("q", 1, "a", ORIGIN)
    assert caught.value.code == "sink-refused-row"


def test_keys_in_a_table_of_which_rows_may_be_hidden_are_refused(postgres, table, guarded):
    with pytest.raises(SpecError, match="row-level security may hide rows") as caught:
        prepared(postgres, table, KEYED, ("k",), url=guarded)
    assert "BYPASSRLS" in (caught.value.hint or "")


def test_a_sink_that_remembers_no_target_cannot_accept_one(tmp_path):
    (tmp_path / "a").mkdir()
    path = tmp_path / "a"
    job = f"""CREATE TABLE a (n BIGINT) WITH ('connector' = 'file', 'format' = 'json', 'path' = '{path}');
        CREATE SINK out WITH ('connector' = 'memory');
        INSERT INTO out SELECT n FROM a"""
    with pytest.raises(SpecError, match="--accept-target out: the job has no sink") as caught:
        run(job, {"checkpoint": str(tmp_path / "state")}, accept_target=["out"])
    assert caught.value.code == "wrong-option"
