"""Rows that a table of PostgreSQL refuses, put aside: on a real server, without Spark."""

from __future__ import annotations

import contextlib
import json
import random
from collections import Counter

import pyarrow as pa
import pytest

from tests.sinks.test_postgres import (
    NUMBER,
    OWNER,
    numbers,
    prepare_sink,
    publish_rows,
    read_table_rows,
    sink_of,
    stage,
)
from tests.support.columns import column
from watersmeet.errors import EngineError, SpecError
from watersmeet.names import SHOWN_DIFF
from watersmeet.sinks.part_mark import Resumed
from watersmeet.sinks.postgres import copy, publishing
from watersmeet.sinks.postgres.sink import PostgresSink, publish_together

pytestmark = pytest.mark.postgres
ORIGIN = {"rows": "of one tick"}


@pytest.fixture
def table(postgres):
    return f"refusing{next(NUMBER)}"


def aside(postgres, table, columns="tick, record::text"):
    return read_table_rows(
        postgres, f"_watersmeet_refused WHERE target = '{table}'", columns, "tick, record::text"
    )


def test_rejected_rows_are_dead_lettered_and_others_are_written(postgres, table, seed, caplog):
    """Against a plain reading of the constraints; each tick in parts of two tasks, and a constraint that is
    looked at only when a transaction ends."""
    draw = random.Random(seed)
    postgres.run(
        f"CREATE TABLE other{table} (n bigint PRIMARY KEY); INSERT INTO other{table}"
        f" SELECT * FROM generate_series(0, 999); CREATE TABLE {table} (n bigint REFERENCES other{table} (n)"
        " DEFERRABLE INITIALLY DEFERRED CHECK (n % 7 <> 3), s varchar(3))"
    )
    sink = prepare_sink(postgres, table, {"n": "BIGINT", "s": "STRING"}, on_rejected="dead_letter")
    taken, kept, tick = [], [], 0
    for tick in range(1, 6):
        share = draw.choice([0, 0.001, 0.1, 0.6])
        rows = [
            (draw.randrange(1000, 1010), "far") if draw.random() < share
            else (draw.randrange(1000), draw.choice(["abc", None, "abcd"]) if draw.random() < share else "ab")
            for _ in range(draw.choice([0, 1, 300]))
        ]  # fmt: skip
        publish_rows(sink, pa.table({"n": pa.array([n for n, _ in rows], pa.int64()),
                            "s": pa.array([s for _, s in rows], pa.string())}), tick)  # fmt: skip
        for n, s in rows:
            is_fine = n < 1000 and n % 7 != 3 and len(s or "") <= 3
            (taken if is_fine else kept).append((n, s) if is_fine else (tick, {"n": n, "s": s}))
    sink.close()
    assert sorted(read_table_rows(postgres, table, "n, s")) == sorted(f"{n}|{s or ''}" for n, s in taken)
    there = [line.split("|", 1) for line in aside(postgres, table)]
    found = Counter((int(at), *json.loads(row).items()) for at, row in there)
    assert found == Counter((at, *row.items()) for at, row in kept)
    assert f"{len(kept):,} in this run" in caplog.messages[-1] or not kept
    ledger = postgres.run(f"SELECT sum(rows) FROM _watersmeet_ticks WHERE target = '{table}'").strip()
    assert int(ledger or 0) == len(taken)


def test_dead_letter_row_states_the_reason(postgres, table):
    postgres.run(f"CREATE TABLE {table} (n bigint, CONSTRAINT small CHECK (n < 5))")
    sink = prepare_sink(postgres, table, {"n": "BIGINT"}, on_rejected="dead_letter")
    publish_rows(sink, numbers(1, 7, 2), 4)
    (line,) = aside(postgres, table, "insert_name, tick, sqlstate, constraint_name, record->>'n', reason")
    assert line.startswith("q|4|23514|small|7|")
    assert 'violates check constraint "small"' in line
    sink.close()


@pytest.mark.parametrize(
    ("says", "state"),
    [
        ("RAISE EXCEPTION 'no fives'", "P0001"),
        ("ASSERT NEW.n <> 5, 'no fives'", "P0004"),  # which a handler of OTHERS does not see
        ("RAISE EXCEPTION 'no fives' USING ERRCODE = 'BR001'", "BR001"),
        ("RAISE EXCEPTION 'no fives' USING ERRCODE = '45000'", "45000"),
    ],
)
def test_a_trigger_may_say_no_in_any_words(postgres, table, says, state):
    """By an error of its own, too: classes of SQLSTATE that are none of the server's are users'."""
    postgres.run(
        f"CREATE TABLE {table} (n bigint); CREATE FUNCTION {table}() RETURNS trigger LANGUAGE plpgsql AS $$"
        f" BEGIN IF NEW.n = 5 THEN {says}; END IF; RETURN NEW; END $$; CREATE TRIGGER {table} BEFORE INSERT"
        f" ON {table} FOR EACH ROW EXECUTE FUNCTION {table}()"
    )
    sink = prepare_sink(postgres, table, {"n": "BIGINT"}, on_rejected="dead_letter")
    publish_rows(sink, numbers(1, 5, 7), 1)
    assert read_table_rows(postgres, table, "n") == ["1", "7"]
    (line,) = aside(postgres, table, "sqlstate, record->>'n', reason")
    assert line == f"{state}|5|no fives"
    sink.close()


def test_first_of_conflicting_rows_is_written(postgres, table):
    postgres.run(f"CREATE TABLE {table} (n bigint UNIQUE, m bigint)")
    sink = prepare_sink(postgres, table, {"n": "BIGINT", "m": "BIGINT"}, on_rejected="dead_letter")
    publish_rows(sink, pa.table({"n": [1, 2], "m": [0, 0]}), 1)
    publish_rows(sink, pa.table({"n": [2, 3, 3, 4], "m": [1, 2, 3, 4]}), 2)
    there = set(read_table_rows(postgres, table, "n, m"))
    assert len(there) == 4
    assert there > {"1|0", "2|0", "4|4"}
    assert len(aside(postgres, table)) == 2
    sink.close()


@pytest.mark.parametrize("nested", [False, True])
def test_texts_that_cannot_be_staged(postgres, table, nested):
    sink = prepare_sink(postgres, table, {"n": "BIGINT", "s": "ARRAY<STRING>" if nested else "STRING"},
                    on_rejected="dead_letter")  # fmt: skip
    raw = [b"fine", b"a\0b", b"c\xffd", b"good", None]
    texts = pa.array(raw, pa.binary()).cast(pa.string(), safe=False)
    rows = pa.table({
        "n": [1, 2, 3, 4, 5],
        "s": pa.ListArray.from_arrays([0, 1, 2, 3, 4, 5], texts) if nested else texts,
    })  # fmt: skip
    made = sink.arrow_part(rows.schema, "q", 1, "a")
    sink.take_parts("q", 1, "a", [made.write(0, rows.schema, iter(rows.to_batches()))])
    assert sink.staged_rows("q", 1, "a") == 5
    assert sink.publish("q", 1, "a", ORIGIN)
    assert read_table_rows(postgres, table, "n") == ["1", "4", "5"]
    found = [json.loads(line.split("|", 1)[1]) for line in aside(postgres, table)]
    values = [["a\0b"], ["c\ufffdd"]] if nested else ["a\0b", "c\ufffdd"]
    assert found == [{"n": 2, "s": values[0]}, {"n": 3, "s": values[1]}]
    reasons = postgres.run(f"SELECT reason FROM _watersmeet_refused WHERE target = '{table}'")
    assert "NUL character" in reasons
    assert "invalid byte sequence" in reasons
    sink.close()


def test_tick_with_only_rejected_rows_is_published_once(postgres, table):
    postgres.run(f"CREATE TABLE {table} (n bigint CHECK (n < 5))")
    sink = prepare_sink(postgres, table, {"n": "BIGINT"}, on_rejected="dead_letter")
    assert publish_rows(sink, numbers(7, 8), 1)
    assert sink.has_part("q", 1)
    assert publish_rows(sink, numbers(7, 8), 1, "again")  # it is there: nothing is put aside a second time
    assert read_table_rows(postgres, table) == []
    assert len(aside(postgres, table)) == 2
    sink.close()


def test_a_commit_whose_answer_is_lost_puts_nothing_aside_twice(postgres, table, monkeypatch):
    from watersmeet import postgres_server as client

    postgres.run(f"CREATE TABLE {table} (n bigint CHECK (n < 5))")
    sink = prepare_sink(postgres, table, {"n": "BIGINT"}, on_rejected="dead_letter")
    stage(sink, numbers(1, 7), 1)
    once, lost = client.Server.run_once, []

    def answer_is_lost(self, work):
        result = once(self, work)
        if work.__name__ == "show" and not lost:
            lost.append(True)
            raise client.client().OperationalError("server closed the connection", status_code=_io())
        return result

    monkeypatch.setattr(client.Server, "run_once", answer_is_lost)
    assert sink.publish("q", 1, "a", ORIGIN)
    assert lost
    assert (read_table_rows(postgres, table), len(aside(postgres, table))) == (["1"], 1)
    sink.close()


def _io():
    from adbc_driver_manager import AdbcStatusCode

    return AdbcStatusCode.IO


def test_a_tick_that_is_repeated_by_another_run(postgres, table):
    postgres.run(f"CREATE TABLE {table} (n bigint CHECK (n < 5))")
    sink = prepare_sink(postgres, table, {"n": "BIGINT"}, on_rejected="dead_letter")
    publish_rows(sink, numbers(1, 7), 1)
    sink.close()
    again = prepare_sink(postgres, table, {"n": "BIGINT"}, on_rejected="dead_letter")
    again.resume(["q"], Resumed(0, (1, ORIGIN), {}))
    publish_rows(again, numbers(1, 7), 1)
    again.close()
    assert (read_table_rows(postgres, table), len(aside(postgres, table))) == (["1"], 1)


def test_too_many_stop_the_job(postgres, table, monkeypatch):
    monkeypatch.setattr(publishing, "MAX_REJECTED_ROWS", 3)
    monkeypatch.setattr(copy, "MAX_REJECTED_ROWS", 3)
    postgres.run(f"CREATE TABLE {table} (n bigint CHECK (n < 5), s text)")
    sink = prepare_sink(postgres, table, {"n": "BIGINT", "s": "STRING"}, on_rejected="dead_letter")
    publish_rows(sink, pa.table({"n": [7, 8, 9, 1], "s": ["a"] * 4}), 1)
    stage(sink, pa.table({"n": [6, 7, 8, 9, 1], "s": ["a"] * 5}), 2)
    with pytest.raises(EngineError, match=r"rejects more than 3 rows of \"q\", tick 2") as caught:
        sink.publish("q", 2, "a", ORIGIN)
    assert caught.value.code == "sink-refused-row"
    assert not sink.has_part("q", 2)
    assert (read_table_rows(postgres, table, "n"), len(aside(postgres, table))) == (["1"], 3)
    with pytest.raises(EngineError, match="NUL"):
        stage(sink, pa.table({"n": range(10), "s": ["\0"] * 10}), 3)
    sink.close()


def test_what_a_trigger_drops_still_stops_the_job(postgres, table):
    postgres.run(
        f"CREATE TABLE {table} (n bigint CHECK (n < 5)); CREATE FUNCTION drops_{table}() RETURNS trigger"
        " LANGUAGE plpgsql AS $$ BEGIN IF NEW.n = 3 THEN RETURN NULL; END IF; RETURN NEW; END $$;"
        f" CREATE TRIGGER t BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION drops_{table}()"
    )
    sink = prepare_sink(postgres, table, {"n": "BIGINT"}, on_rejected="dead_letter")
    stage(sink, numbers(1, 3, 7), 1)
    with pytest.raises(EngineError, match="a trigger or rule of the table"):
        sink.publish("q", 1, "a", ORIGIN)
    assert (read_table_rows(postgres, table), aside(postgres, table)) == ([], [])
    sink.close()


def test_missing_staged_dead_letters_fail_the_publish(postgres, table):
    sink = prepare_sink(postgres, table, {"s": "STRING"}, on_rejected="dead_letter")
    stage(sink, pa.table({"s": ["a\0", "b"]}), 1)
    (staging,) = sink._stages.tables.values()
    postgres.run(f"DELETE FROM {staging.unstaged_sql}")
    with pytest.raises(EngineError, match="has only 0 of 1 staged rows"):
        sink.publish("q", 1, "a", ORIGIN)
    sink.close()
    assert postgres.run(f"SELECT relname FROM pg_class WHERE relname = '{staging.unstaged}'").strip() == ""


def test_tables_that_get_their_rows_together(postgres, table):
    """One sink puts aside and one does not, in one transaction; and what the other refuses stops the job."""
    postgres.run(
        f"CREATE TABLE {table} (n bigint CHECK (n < 5)); CREATE TABLE {table}b (n bigint CHECK (n < 9))"
    )
    sinks = [prepare_sink(postgres, table, {"n": "BIGINT"}, on_rejected="dead_letter"),
             prepare_sink(postgres, f"{table}b", {"n": "BIGINT"})]  # fmt: skip
    named = [(sink, name) for sink, name in zip(sinks, "qr", strict=True)]
    for sink, name in named:
        stage(sink, numbers(1, 7), 1, insert=name)
    done = publish_together(named, 1, "a", ORIGIN, lambda cursor, inserts: inserts)
    assert done == ["q", "r"]
    assert read_table_rows(postgres, table) == ["1"]
    assert read_table_rows(postgres, f"{table}b") == ["1", "7"]
    for sink, name in named:
        stage(sink, numbers(2, 9), 2, insert=name)
    with pytest.raises(EngineError, match=f'"{table}b" rejects a row'):
        publish_together(named, 2, "a", ORIGIN, lambda cursor, inserts: inserts)
    assert read_table_rows(postgres, table) == ["1"]
    assert len(aside(postgres, table)) == 1
    for sink in sinks:
        sink.close()


def test_several_tables_dead_letter_rows_in_one_transaction(postgres, table):
    names = [table, f"{table}b"]
    for name in names:
        postgres.run(f"CREATE TABLE {name} (n bigint CHECK (n < 5))")
    sinks = [prepare_sink(postgres, name, {"n": "BIGINT"}, on_rejected="dead_letter") for name in names]
    named = [(sink, insert) for sink, insert in zip(sinks, "qr", strict=True)]
    for tick in (1, 2):
        for sink, insert in named:
            stage(sink, numbers(tick, 7), tick, insert=insert)
        done = publish_together(named, tick, "a", ORIGIN, lambda cursor, inserts: inserts)
        assert done == ["q", "r"]
    for name in names:
        assert read_table_rows(postgres, name) == ["1", "2"]
        assert aside(postgres, name) == ['1|{"n":7}', '2|{"n":7}']
    for sink in sinks:
        sink.close()


@pytest.mark.parametrize("deferred", ["", "DEFERRABLE INITIALLY DEFERRED"])
def test_rows_referencing_rows_of_the_same_tick_are_written(postgres, table, deferred):
    """Whichever comes first: a chain of rows, each of which refers to the one that was staged after it."""
    postgres.run(f"CREATE TABLE {table} (n bigint PRIMARY KEY, m bigint REFERENCES {table} (n) {deferred})")
    sink = prepare_sink(postgres, table, {"n": "BIGINT", "m": "BIGINT"}, on_rejected="dead_letter")
    refers = [2, 3, 4, None, 99, 5]  # 5 refers to nothing that there is, and 6 to 5
    publish_rows(sink, pa.table({"n": [1, 2, 3, 4, 5, 6], "m": refers}), 1)
    sink.close()
    assert read_table_rows(postgres, table, "n") == ["1", "2", "3", "4"]
    assert sorted(json.loads(row.split("|", 1)[1])["n"] for row in aside(postgres, table)) == [5, 6]


def test_a_user_who_may_not_make_temporary_tables_is_refused_at_the_start(postgres, table):
    """And not with the first row that is refused, in weeks."""
    user = f"poor_{table}"
    postgres.run(
        f"CREATE TABLE {table} (n bigint); CREATE ROLE {user} LOGIN PASSWORD 'poor'; GRANT ALL ON {table} TO"
        f" {user}; GRANT ALL ON SCHEMA public TO {user}; GRANT ALL ON ALL TABLES IN SCHEMA public TO {user};"
        " REVOKE TEMPORARY ON DATABASE postgres FROM PUBLIC"
    )
    url = f"postgresql://{user}:poor@127.0.0.1:{postgres.port}/postgres"
    try:
        with pytest.raises(EngineError, match="may not create temporary tables") as refused_:
            prepare_sink(postgres, table, {"n": "BIGINT"}, on_rejected="dead_letter", url=url)
        assert "GRANT TEMPORARY" in str(refused_.value.hint)
    finally:
        postgres.run("GRANT TEMPORARY ON DATABASE postgres TO PUBLIC")
    sink = prepare_sink(postgres, table, {"n": "BIGINT"}, on_rejected="dead_letter", url=url)
    publish_rows(sink, numbers(1), 1)
    assert read_table_rows(postgres, table, "n") == ["1"]
    sink.close()


def test_what_it_does_not_go_with(postgres, table):
    with pytest.raises(SpecError, match="cannot be used with a PRIMARY KEY"):
        sink_of(postgres, table, ("n",), on_rejected="dead_letter")
    with pytest.raises(SpecError, match="option 'on_rejected' is 'dead'"):
        sink_of(postgres, table, on_rejected="dead")
    sink = sink_of(postgres, table, on_rejected="dead_letter")
    with pytest.raises(SpecError, match="cannot be used with a result of inserts"):
        sink.prepare([column("n", "BIGINT"), column(SHOWN_DIFF, "BIGINT")], OWNER)
    assert isinstance(sink, PostgresSink)
    with contextlib.suppress(EngineError):
        sink.close()
