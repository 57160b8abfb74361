"""Tables of PostgreSQL that are not the job's alone: replaced, emptied, guarded by policies, and with
triggers and rules that do something else without an error.
"""

from __future__ import annotations

import json
import logging

import pyarrow as pa
import pytest

from tests.sinks.test_postgres import (
    NUMBER,
    ORIGIN,
    numbers,
    prepare_sink,
    publish_rows,
    read_table_rows,
    stage,
    write_keyed,
)
from watersmeet import run
from watersmeet.errors import EngineError, SpecError
from watersmeet.sinks.part_mark import Resumed
from watersmeet.sinks.postgres.publishing import REFUSED

pytestmark = pytest.mark.postgres

AFTER_1 = Resumed(1, last_parts={"q": (1, ORIGIN)})


@pytest.fixture
def table(postgres):
    return f"target{next(NUMBER)}"


def run_once(postgres, table):
    sink = prepare_sink(postgres, table, {"n": "BIGINT"})
    publish_rows(sink, numbers(1), 1)
    sink.close()


@pytest.mark.parametrize(
    "change",
    [
        "DROP TABLE {t}",
        "ALTER TABLE {t} RENAME TO {t}_old",
        "DROP TABLE {t}; CREATE TABLE {t} (n bigint)",
        "DROP TABLE {t}; CREATE VIEW {t} AS SELECT 'of others' AS more",
        "UPDATE _watersmeet_sinks SET written_to = '1/2/3' WHERE target = '{t}'",
    ],
    ids=["dropped", "renamed", "recreated", "a view", "restored elsewhere"],
)
def test_another_table_is_refused_however_often_it_is_tried(postgres, table, change):
    run_once(postgres, table)
    postgres.run(change.format(t=table))
    there = read_table_rows(postgres, "pg_class", "relname", "1")
    for _ in range(2):
        with pytest.raises(EngineError, match="is not the one that this job wrote to") as caught:
            prepare_sink(postgres, table, {"n": "BIGINT"})
        assert caught.value.code == "sink-replaced"
        assert caught.value.hint.endswith("--accept-target out")
    made = set(read_table_rows(postgres, "pg_class", "relname", "1")) - set(there)
    assert table not in made


def test_accepted_replacement_table_belongs_to_the_job(postgres, table):
    run_once(postgres, table)
    postgres.run(f"ALTER TABLE {table} RENAME TO {table}_old")
    sink = prepare_sink(postgres, table, {"n": "BIGINT"}, accepts=True)
    assert sink.resume(["q"], AFTER_1) == []
    publish_rows(sink, numbers(2), 2)
    sink.close()
    sink = prepare_sink(postgres, table, {"n": "BIGINT"})
    publish_rows(sink, numbers(3), 3)
    sink.close()
    assert read_table_rows(postgres, table) == ["2", "3"]
    postgres.run(f"DROP TABLE {table}; ALTER TABLE {table}_old RENAME TO {table}")
    with pytest.raises(EngineError, match="is not the one"):
        prepare_sink(postgres, table, {"n": "BIGINT"})


def test_what_leaves_a_table_the_same(postgres, table):
    run_once(postgres, table)
    postgres.run(f"ALTER TABLE {table} ADD more text, SET UNLOGGED")
    postgres.run(f"VACUUM FULL {table}")
    sink = prepare_sink(postgres, table, {"n": "BIGINT"})
    publish_rows(sink, numbers(2), 2)
    assert read_table_rows(postgres, table, "n") == ["1", "2"]


def test_a_ledger_of_earlier_versions_gets_the_identity_with_the_next_run(postgres, table):
    run_once(postgres, table)
    postgres.run("ALTER TABLE _watersmeet_sinks DROP written_to")
    sink = prepare_sink(postgres, table, {"n": "BIGINT"})
    publish_rows(sink, numbers(2), 2)
    sink.close()
    postgres.run(f"DROP TABLE {table}")
    with pytest.raises(EngineError, match="is not the one"):
        prepare_sink(postgres, table, {"n": "BIGINT"})


def test_table_emptied_by_others_is_reported_once(postgres, table, caplog):
    caplog.set_level(logging.WARNING)
    said = f'the table "public"."{table}" has no rows before tick'
    sink = prepare_sink(postgres, table, {"n": "BIGINT"})
    for tick in (1, 2):
        publish_rows(sink, numbers(tick), tick)
    postgres.run(f"VACUUM FULL {table}")
    publish_rows(sink, numbers(3), 3)
    assert said not in caplog.text
    postgres.run(f"TRUNCATE {table}")
    for tick in (4, 5):
        publish_rows(sink, numbers(tick), tick)
    assert caplog.text.count(said) == 1
    sink.close()
    postgres.run(f"DELETE FROM {table}")
    sink = prepare_sink(postgres, table, {"n": "BIGINT"})
    sink.resume(["q"], Resumed(5, last_parts={"q": (5, ORIGIN)}))
    publish_rows(sink, numbers(6), 6)
    assert caplog.text.count(said) == 2


@pytest.mark.parametrize("change", ["DROP TABLE {t}", "ALTER TABLE {t} RENAME TO {t}_old"])
def test_a_table_that_goes_while_the_job_runs(postgres, table, change):
    sink = prepare_sink(postgres, table, {"n": "BIGINT"})
    publish_rows(sink, numbers(1), 1)
    stage(sink, numbers(2), 2)
    postgres.run(change.format(t=table))
    with pytest.raises(EngineError) as caught:
        sink.publish("q", 2, "a", ORIGIN)
    assert caught.value.code == "sink-replaced"


def test_database_older_than_the_checkpoint_is_accepted_on_request(postgres, table):
    run_once(postgres, table)
    known = Resumed(5, last_parts={"q": (5, {"tick": "5"})})
    sink = prepare_sink(postgres, table, {"n": "BIGINT"})
    with pytest.raises(EngineError, match="no longer has"):
        sink.resume(["q"], known)
    sink.close()
    sink = prepare_sink(postgres, table, {"n": "BIGINT"}, accepts=True)
    sink.resume(["q"], known)
    publish_rows(sink, numbers(6), 6)
    assert read_table_rows(postgres, table) == ["1", "6"]


def test_who_may_not_ask_for_the_servers_identifier_knows_the_table_all_the_same(postgres, table):
    run_once(postgres, table)
    user = guest(postgres, table, "SELECT, INSERT, UPDATE, DELETE")
    postgres.run("REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC")
    try:
        sink = prepare_sink(postgres, table, {"n": "BIGINT"}, url=user)
        publish_rows(sink, numbers(2), 2)
        sink.close()
        publish_rows(prepare_sink(postgres, table, {"n": "BIGINT"}), numbers(3), 3)
    finally:
        postgres.run("GRANT EXECUTE ON FUNCTION pg_control_system() TO PUBLIC")
    assert read_table_rows(postgres, table) == ["1", "2", "3"]


def test_who_may_insert_alone_goes_on_after_a_restart(postgres, table):
    run_once(postgres, table)
    sink = prepare_sink(postgres, table, {"n": "BIGINT"}, url=guest(postgres, table, "INSERT"))
    sink.resume(["q"], AFTER_1)
    publish_rows(sink, numbers(2), 2)
    assert read_table_rows(postgres, table) == ["1", "2"]


def guest(postgres, table, rights):
    """Return the URL of a user with these rights on the table, and all on the tables beside it."""
    user = f"guest_{table}"
    postgres.run(
        f"CREATE ROLE {user} LOGIN PASSWORD 'guest'; GRANT ALL ON SCHEMA public TO {user};"
        f" GRANT ALL ON _watersmeet_sinks, _watersmeet_ticks TO {user}; GRANT {rights} ON {table} TO {user}"
    )
    return f"postgresql://{user}:guest@127.0.0.1:{postgres.port}/postgres"


@pytest.mark.parametrize("ddl", ["(n bigint)", "(n bigint) PARTITION BY RANGE (n)"])
def test_truncated_table_is_reported_in_the_next_tick(postgres, table, ddl, caplog):
    caplog.set_level(logging.WARNING)
    postgres.run(f"CREATE TABLE {table} {ddl}")
    if "PARTITION" in ddl:
        postgres.run(f"CREATE TABLE {table}_1 PARTITION OF {table} FOR VALUES FROM (0) TO (100)")
    sink = prepare_sink(postgres, table, {"n": "BIGINT"})
    publish_rows(sink, numbers(1), 1)
    postgres.run(f"TRUNCATE {table}")
    publish_rows(sink, numbers(2), 2)
    assert "has no rows before tick 2" in caplog.text


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
    "another key by a trigger": (
        "CREATE FUNCTION no_{t}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.k := NEW.k + 1000;"
        " RETURN NEW; END $$;"
        " CREATE TRIGGER no BEFORE INSERT ON {t} FOR EACH ROW EXECUTE FUNCTION no_{t}()",
        (5, 7, False),
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
    sink = prepare_sink(postgres, table, KEYED, ("k",))
    change(sink, 1, (1, 1, False), (2, 2, False))
    postgres.run(ddl.format(t=table))
    with pytest.raises(EngineError, match=r"ignored some inserts or deletes") as caught:
        change(sink, 2, (3, 3, True), row)
    assert caught.value.code == "sink-refused-row"
    assert read_table_rows(postgres, table) == ["1|1", "2|2"]


@pytest.mark.parametrize("columns", [("k",), ("k", "v")], ids=["values beside the key", "all is key"])
def test_rows_that_come_and_go_again_are_no_mistake(postgres, table, columns):
    sink = prepare_sink(postgres, table, KEYED, columns)
    change(sink, 1, (1, 1, False), (2, 2, False))
    change(sink, 2, (1, 1, False), (2, 2, True), (3, 3, True), (4, 4, False))
    change(sink, 3, (9, 9, True))
    assert read_table_rows(postgres, table) == ["1|1", "4|4"]


def test_truncated_keyed_table_is_reported(postgres, table, caplog):
    caplog.set_level(logging.WARNING)
    sink = prepare_sink(postgres, table, KEYED, ("k",))
    change(sink, 1, (1, 1, False))
    change(sink, 2, (1, 1, True))
    change(sink, 3, (2, 2, False))
    assert "has no rows" not in caplog.text
    postgres.run(f"TRUNCATE {table}")
    change(sink, 4, (3, 3, False))
    assert "has no rows before tick 4" in caplog.text


def test_a_trigger_that_passes_over_what_is_there_as_it_is(postgres, table):
    sink = prepare_sink(postgres, table, KEYED, ("k",))
    change(sink, 1, (1, 1, False), (2, None, False))
    postgres.run(
        f"CREATE TRIGGER same BEFORE UPDATE ON {table} FOR EACH ROW EXECUTE FUNCTION"
        " suppress_redundant_updates_trigger()"
    )
    change(sink, 2, (1, 1, False), (2, None, False), (3, 3, False))
    assert read_table_rows(postgres, table) == ["1|1", "2|", "3|3"]


@pytest.fixture
def restricted_user_url(postgres, table):
    """Make a table with row-level security; return the URL of a user to whom it applies."""
    postgres.run(
        f"CREATE TABLE {table} (k bigint PRIMARY KEY, v bigint);"
        f" ALTER TABLE {table} ENABLE ROW LEVEL SECURITY;"
        f" CREATE POLICY seen ON {table} USING (true) WITH CHECK (v < 100)"
    )
    prepare_sink(postgres, f"{table}_ledger", {"n": "BIGINT"}, on_rejected="dead_letter").close()
    url = guest(postgres, table, "ALL")
    postgres.run(f"GRANT ALL ON {REFUSED} TO guest_{table}")
    return url


def test_rows_denied_by_a_policy_reach_the_dead_letter_table(postgres, table, restricted_user_url):
    sink = prepare_sink(postgres, table, KEYED, on_rejected="dead_letter", url=restricted_user_url)
    publish_rows(sink, pa.table({"k": [1, 2, 3], "v": [1, 100, 3]}), 1)
    assert read_table_rows(postgres, table) == ["1|1", "3|3"]
    (row,) = read_table_rows(postgres, f"{REFUSED} WHERE target = '{table}'", "sqlstate, reason, record")[-1:]
    assert row.startswith("42501|new row violates row-level security policy")
    assert json.loads(row.rpartition("|")[2]) == {"k": 2, "v": 100}


def test_a_row_that_a_policy_does_not_allow_is_named(postgres, table, restricted_user_url):
    sink = prepare_sink(postgres, table, KEYED, url=restricted_user_url)
    stage(sink, pa.table({"k": [1, 2], "v": [1, 100]}), 1)
    with pytest.raises(EngineError, match=r"row-level security policy.*the row: k: '2', v: '100'") as caught:
        sink.publish("q", 1, "a", ORIGIN)
    assert caught.value.code == "sink-refused-row"


def test_keys_in_a_table_that_gets_policies_later_are_refused_then(postgres, table):
    prepare_sink(postgres, table, KEYED, ("k",)).close()
    sink = prepare_sink(postgres, table, KEYED, ("k",), url=guest(postgres, table, "ALL"))
    change(sink, 1, (150, 1, False), (1, 1, False))
    postgres.run(
        f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY; CREATE POLICY few ON {table} USING (k < 100)"
    )
    with pytest.raises(EngineError, match="row-level security policy") as caught:
        change(sink, 2, (150, 1, True))
    assert "BYPASSRLS" in (caught.value.hint or "")


def test_keys_in_a_table_of_which_rows_may_be_hidden_are_refused(postgres, table, restricted_user_url):
    postgres.run(
        f"REVOKE INSERT ON {table} FROM guest_{table}; GRANT INSERT (k, v) ON {table} TO guest_{table}"
    )
    with pytest.raises(SpecError, match="row-level security may hide rows") as caught:
        prepare_sink(postgres, table, KEYED, ("k",), url=restricted_user_url)
    assert "BYPASSRLS" in (caught.value.hint or "")


def test_a_sink_that_remembers_no_target_cannot_accept_one(tmp_path):
    (tmp_path / "a").mkdir()
    path = tmp_path / "a"
    job = f"""CREATE TABLE a (n BIGINT) WITH ('connector' = 'file', 'format' = 'json', 'path' = '{path}');
        CREATE SINK out WITH ('connector' = 'memory');
        INSERT INTO out SELECT n FROM a"""
    with pytest.raises(SpecError, match="--accept-target out: the job has no postgres sink") as caught:
        run(job, {"checkpoint": str(tmp_path / "state")}, accept_target=["out"])
    assert caught.value.code == "wrong-option"
