"""Tables as sinks, in this process: ticks that come twice, other runs, others who write, lost answers."""

from __future__ import annotations

import uuid
from pathlib import Path

import pyarrow as pa
import pytest

from tests.sinks.lake.lake_runs import (
    COLUMNS,
    LAST,
    batch,
    compute_expected_rows,
    identity,
    rows_of,
    stage_in_two_tasks,
)
from tests.sinks.lake.lake_tables import Delta, Iceberg
from watersmeet.errors import EngineError, SpecError
from watersmeet.sinks.lake import commits, table_sink
from watersmeet.sinks.part_mark import Resumed
from watersmeet.sinks.registry import make_sink
from watersmeet.spec.model import Column
from watersmeet.spec.model import Sink as SinkSpec
from watersmeet.types.parser import sql_type

TABLES = [Delta, Iceberg]


@pytest.fixture(params=TABLES, ids=lambda made: made.connector)
def table(request, tmp_path):
    return request.param(tmp_path)


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch):
    monkeypatch.setattr(commits.time, "sleep", lambda seconds: None)


def sink_of(
    table, committed=0, *, keyed=False, owner="job-1", pending=False, inserts=("a",), parts=None, **options
):
    """A run that goes on after the tick ``committed``."""
    options = {**table.options, **options}
    sink = make_sink(SinkSpec("out", table.connector, options, COLUMNS, ("k",) if keyed else ()))
    sink.prepare(COLUMNS, owner)
    known = {i: (committed, identity(committed)) for i in inserts} if parts is None and committed else parts
    sink.resume(list(inserts), Resumed(committed, pending, known))
    return sink


def stage(sink, tick, insert="a", *, keyed=False, attempt=None):
    attempt = attempt or uuid.uuid4().hex
    stage_in_two_tasks(sink, insert, tick, attempt, rows_of(insert, tick, keyed), keyed)
    return attempt


def publish_tick(sink, tick, insert="a", *, keyed=False, made_from=None):
    attempt = stage(sink, tick, insert, keyed=keyed)
    sink.check(insert, tick, made_from or identity(tick))
    return sink.publish(insert, tick, attempt, made_from or identity(tick))


def catch_engine_error(call):
    with pytest.raises(EngineError) as raised:
        call()
    assert raised.value.hint
    return raised.value


@pytest.mark.parametrize("keyed", [False, True])
def test_ticks_come_out_once(table, keyed):
    sink = sink_of(table, keyed=keyed)
    assert [publish_tick(sink, tick, keyed=keyed) for tick in range(1, LAST + 1)] == [True, True, False, True]
    assert table.rows() == compute_expected_rows(["a"], keyed)
    assert sink.has_part("a", LAST)
    assert not sink.has_part("a", LAST + 1)
    assert publish_tick(sink, LAST, keyed=keyed)
    sink = sink_of(table, LAST - 1, keyed=keyed, pending=True, parts={"a": (2, identity(2))})
    assert publish_tick(sink, LAST, keyed=keyed)
    assert table.rows() == compute_expected_rows(["a"], keyed)


def test_nothing_is_seen_before_it_is_published(table):
    sink = sink_of(table)
    attempt = stage(sink, 1)
    assert table.rows() == []
    assert table.files() == 3
    sink.discard(attempt)
    assert table.files() == 0
    assert publish_tick(sink, 1)
    sink.discard(attempt)
    assert table.rows() == compute_expected_rows(["a"], False, 1)


def test_another_identity_of_a_tick_is_refused(table):
    publish_tick(sink_of(table), 1)
    sink = sink_of(table, pending=True)
    other = {"clock": "c1", "rows": "others"}
    error = catch_engine_error(lambda: publish_tick(sink, 1, made_from=other))
    assert error.code == "sink-of-another-tick"
    assert "rows" in error.message
    assert "clock" not in error.message
    attempt = stage(sink, 1)
    assert catch_engine_error(lambda: sink.publish("a", 1, attempt, other)).code == "sink-of-another-tick"
    assert table.rows() == compute_expected_rows(["a"], False, 1)


def test_ticks_that_the_state_has_not_come_to_are_refused(table):
    sink = sink_of(table)
    for tick in (1, 2):
        publish_tick(sink, tick)
    assert catch_engine_error(lambda: sink_of(table, 1)).code == "sink-ahead"
    assert catch_engine_error(lambda: sink_of(table, 0, pending=True)).code == "sink-ahead"
    made = make_sink(SinkSpec("out", table.connector, table.options, COLUMNS))
    made.prepare(COLUMNS, "job-1")
    error = catch_engine_error(lambda: made.resume(["a"], Resumed(1, set_aside=True)))
    assert error.code == "sink-ahead"
    assert "cannot be removed from a table" in error.message
    parts = {"a": (2, {"clock": "of another history"})}
    assert catch_engine_error(lambda: sink_of(table, 2, parts=parts)).code == "sink-of-another-history"
    sink_of(table, 2)


def test_two_runs_of_one_job_commit_a_tick_once(table):
    one, other = sink_of(table), sink_of(table)
    attempts = [stage(one, 1), stage(other, 1)]
    assert catch_engine_error(lambda: one.publish("a", 1, attempts[0], identity(1))).code == "sink-taken"
    assert table.rows() == []
    assert other.publish("a", 1, attempts[1], identity(1))
    assert publish_tick(one, 1)
    assert table.rows() == compute_expected_rows(["a"], False, 1)
    publish_tick(other, 2)
    assert catch_engine_error(lambda: publish_tick(one, 1)).code == "sink-taken"


@pytest.mark.parametrize("keyed", [False, True])
def test_a_run_that_was_overtaken_while_it_committed(table, keyed, monkeypatch):
    """Between its look at the table and its commit another run commits the same tick."""
    one = sink_of(table, keyed=keyed)
    attempt = stage(one, 1, keyed=keyed)
    look = one.table.look

    def late(writer):
        seen = look(writer)
        monkeypatch.setattr(one.table, "look", look)
        assert publish_tick(sink_of(table, keyed=keyed, pending=True), 1, keyed=keyed)
        return seen

    monkeypatch.setattr(one.table, "look", late)
    assert one.publish("a", 1, attempt, identity(1))
    assert table.rows() == compute_expected_rows(["a"], keyed, 1)


def test_run_whose_staged_files_were_deleted_commits_nothing(table):
    """It has staged and is slow; the next run begins, and takes its files for those of a dead one."""
    zombie = sink_of(table)
    attempt = stage(zombie, 1)
    sink = sink_of(table, pending=True)
    assert table.files() == 0
    assert catch_engine_error(lambda: zombie.publish("a", 1, attempt, identity(1))).code == "sink-taken"
    assert table.rows() == []
    assert publish_tick(sink, 1)
    assert table.rows() == compute_expected_rows(["a"], False, 1)


def test_files_of_others_and_of_older_ticks_stay(table):
    sink = sink_of(table, inserts=("a", "b"))
    for tick in (1, 2):
        publish_tick(sink, tick)
    publish_tick(sink, 2, "b")
    for one in (sink_of(table, owner="job-2"), sink):
        stage_in_two_tasks(one, "a", 3, uuid.uuid4().hex, rows_of("a", 4, False), False)
    before = table.files()
    sink_of(table, 2, inserts=("a", "b"))
    assert table.files() == before - 3 == 12
    assert table.rows() == sorted(
        compute_expected_rows(["a"], False, 2) + [(k, v) for k, v, _ in rows_of("b", 2, False)]
    )


@pytest.mark.parametrize("keyed", [False, True])
def test_others_write_in_between(table, keyed, monkeypatch):
    sink = sink_of(table, keyed=keyed)
    publish_tick(sink, 1, keyed=keyed)
    method = "merge" if keyed else "append"
    commit, written = getattr(sink.table, method), []

    def overtaken(*args):
        if len(written) < 3:
            written.append(1000 + len(written))
            table.append_foreign(written[-1])
        return commit(*args)

    monkeypatch.setattr(sink.table, method, overtaken)
    assert publish_tick(sink, 2, keyed=keyed)
    assert table.rows() == sorted(compute_expected_rows(["a"], keyed, 2) + [(n, "foreign") for n in written])


@pytest.mark.parametrize("keyed", [False, True])
def test_the_answer_of_a_commit_is_lost(table, keyed, monkeypatch):
    sink = sink_of(table, keyed=keyed)
    method = "merge" if keyed else "append"
    commit = getattr(sink.table, method)
    calls = []

    def lose_answer(*args):
        calls.append(args)
        if len(calls) > 1:
            commit(*args)
        raise ConnectionError("timed out")

    monkeypatch.setattr(sink.table, method, lose_answer)
    assert publish_tick(sink, 1, keyed=keyed)
    assert len(calls) == 2
    assert table.rows() == compute_expected_rows(["a"], keyed, 1)


def test_a_table_that_cannot_be_reached_fails_the_tick(table, monkeypatch):
    sink = sink_of(table)
    attempt = stage(sink, 1)

    def away(*args):
        raise ConnectionError("nobody there")

    with monkeypatch.context() as patched:
        patched.setattr(sink.table, "append", away)
        error = catch_engine_error(lambda: sink.publish("a", 1, attempt, identity(1)))
    assert error.code == "sink-failed"
    assert "nobody there" in error.message
    sink = sink_of(table, pending=True)
    assert publish_tick(sink, 1)
    assert table.rows() == compute_expected_rows(["a"], False, 1)


@pytest.mark.parametrize("keyed", [False, True])
def test_ticks_are_known_after_maintenance(table, keyed):
    """Checkpoints of the log, compaction, vacuum, snapshots that expire."""
    sink = sink_of(table, keyed=keyed)
    publish_tick(sink, 1, keyed=keyed)
    publish_tick(sink, 2, keyed=keyed)
    table.append_foreign(1000)
    table.maintain()
    sink = sink_of(table, 1, keyed=keyed, pending=True)
    assert publish_tick(sink, 2, keyed=keyed)
    assert table.rows() == [*compute_expected_rows(["a"], keyed, 2), (1000, "foreign")]
    other = {"clock": "another"}
    assert (
        catch_engine_error(lambda: publish_tick(sink, 2, keyed=keyed, made_from=other)).code
        == "sink-of-another-tick"
    )


def test_attempts_of_tasks_that_do_not_count_are_not_committed(table):
    sink = sink_of(table)
    attempt = stage(sink, 1)
    part = sink.arrow_part(None, "a", 1, attempt)
    part.write(0, batch([], False).schema, iter([batch([(9, "zombie", False)], False)]))
    assert sink.publish("a", 1, attempt, identity(1))
    assert table.rows() == compute_expected_rows(["a"], False, 1)


def test_a_key_that_is_added_leaves_files_that_the_table_has(table):
    """The run before wrote without one, and its files are the table's."""
    sink = sink_of(table)
    for tick in (1, 2):
        publish_tick(sink, tick)
    sink = sink_of(table, 2, keyed=True)
    assert table.rows() == compute_expected_rows(["a"], False, 2)
    publish_tick(sink, 4, keyed=True)
    assert (3, "a4") in table.rows()


def test_files_that_a_table_names_stay_whatever_it_says_of_ticks(table, monkeypatch):
    sink = sink_of(table)
    publish_tick(sink, 1)
    monkeypatch.setattr(sink.table, "look", lambda writer: commits.TableWriter(None, None))
    monkeypatch.setattr(sink.table, "fence", lambda writer, number: None)
    monkeypatch.setattr(table_sink, "randbits", lambda bits: None)  # the fence that is there
    sink.resume(["a"], Resumed(1))
    assert table.rows() == compute_expected_rows(["a"], False, 1)


def test_a_merge_that_changes_nothing_is_a_tick_that_the_table_has(table):
    """Keys go that are not there."""
    sink = sink_of(table, keyed=True)
    publish_tick(sink, 1, keyed=True)
    attempt = uuid.uuid4().hex
    stage_in_two_tasks(sink, "a", 2, attempt, [(99, "gone", True)], True)
    assert sink.publish("a", 2, attempt, identity(2))
    assert sink.has_part("a", 2)
    sink = sink_of(table, 2, keyed=True)
    assert publish_tick(sink, 4, keyed=True)


def test_similar_insert_names_do_not_collide(table):
    """One is called as what a table knows of the other."""
    names = ("a", "a/identity", "a/attempt", "a/fence")
    sink = sink_of(table, inserts=names)
    for tick in (1, 2):
        for insert in names:
            assert publish_tick(sink, tick, insert)
    assert all(sink._look(insert).last.tick == 2 for insert in names)
    assert all(sink._look(insert).last.identity == commits.number_of(identity(2)) for insert in names)


@pytest.mark.parametrize("keyed", [False, True])
def test_runs_on_two_copies_of_a_checkpoint(table, keyed, monkeypatch):
    """Both at tick 2. The one commits the next tick, which in the other has no rows; the tick after it would
    have the same input as the one that is there."""
    monkeypatch.setattr(table_sink, "randbits", lambda bits: 7)  # one fence, as if both had begun at once
    one = sink_of(table, keyed=keyed)
    publish_tick(one, 1, keyed=keyed)
    publish_tick(one, 2, keyed=keyed)
    other = sink_of(table, 2, keyed=keyed)
    attempt = uuid.uuid4().hex
    stage_in_two_tasks(one, "a", 3, attempt, rows_of("a", 4, keyed), keyed)
    assert one.publish("a", 3, attempt, identity(3))
    before = table.rows()
    assert catch_engine_error(lambda: publish_tick(other, 4, keyed=keyed)).code == "sink-taken"
    attempt = uuid.uuid4().hex
    stage_in_two_tasks(other, "a", 4, attempt, [], keyed)
    assert catch_engine_error(lambda: other.publish("a", 4, attempt, identity(4))).code == "sink-taken"
    assert table.rows() == before


def test_a_run_that_begins_stops_those_before_it(table):
    """Even where none of them has left any files."""
    older = sink_of(table)
    publish_tick(older, 1)
    newer = sink_of(table, 1)
    assert catch_engine_error(lambda: publish_tick(older, 2)).code == "sink-taken"
    assert publish_tick(newer, 2)
    assert table.rows() == compute_expected_rows(["a"], False, 2)
    # Nobody restored a checkpoint: what it makes of the tick now is another run's already.
    other = {"clock": "another"}
    assert catch_engine_error(lambda: older.check("a", 2, other)).code == "sink-taken"
    assert catch_engine_error(lambda: publish_tick(older, 2, made_from=other)).code == "sink-taken"
    assert catch_engine_error(lambda: newer.check("a", 2, other)).code == "sink-of-another-tick"
    assert table.rows() == compute_expected_rows(["a"], False, 2)


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("step", ["look", "named"])
def test_a_run_that_sleeps_as_it_begins_takes_no_files_of_the_next_one(table, keyed, monkeypatch, step):
    """Between its fence and its removals another one begins, and stages its rows."""
    others, killed = [], sink_of(table, keyed=keyed)
    done = getattr(type(killed.table), step)

    def slept(self, *arguments):
        seen = done(self, *arguments)
        is_fenced = step == "named" or (seen.fence or 0) == 7
        if not others and is_fenced:
            others.append(None)
            other = sink_of(table, keyed=keyed)
            others[0] = other, stage(other, 1, keyed=keyed)
        return seen

    stage(killed, 1, keyed=keyed)
    with monkeypatch.context() as patches:
        patches.setattr(type(killed.table), step, slept)
        numbers = iter([7])
        patches.setattr(table_sink, "randbits", lambda bits: next(numbers, 8))
        sink_of(table, keyed=keyed)
    ((other, attempt),) = others
    assert other.publish("a", 1, attempt, identity(1))
    assert table.rows() == compute_expected_rows(["a"], keyed, last=1)


def test_a_table_that_is_older_than_the_checkpoint(table, tmp_path):
    for name, last in (("recreated", 0), ("older", 1)):
        older = type(table)(tmp_path / name)
        if last:
            publish_tick(sink_of(older), last)
        parts = {"a": (4, identity(4))}
        error = catch_engine_error(lambda t=older, p=parts: sink_of(t, 5, parts=p))
        assert error.code == "sink-behind"
        assert "'begins_after_tick' = '4'" in error.hint
        assert catch_engine_error(lambda t=older, p=parts: sink_of(t, 5, parts=p, begins_after_tick="3"))
        sink = sink_of(older, 5, parts=parts, begins_after_tick="4")
        stage_in_two_tasks(sink, "a", 6, "x", rows_of("a", 4, False), False)
        assert sink.publish("a", 6, "x", identity(6))
        sink_of(older, 6, parts={"a": (6, identity(6))})


def test_a_table_that_loses_its_ticks_while_a_job_runs(table, monkeypatch):
    sink = sink_of(table)
    publish_tick(sink, 1)
    first = sink._look("a")
    publish_tick(sink, 2)
    monkeypatch.setattr(sink.table, "look", lambda writer: first)
    assert catch_engine_error(lambda: publish_tick(sink, 4)).code == "sink-behind"


@pytest.mark.parametrize("is_running", [True, False])
@pytest.mark.parametrize("keyed", [False, True])
def test_rows_deleted_by_others_are_reported_once(table, keyed, is_running, caplog):
    """The table still knows that it had the ticks."""
    sink = sink_of(table, keyed=keyed)

    def publish_next_tick(tick, last):
        nonlocal sink
        if not is_running:
            sink = sink_of(table, tick - 1, keyed=keyed, parts={"a": (last, identity(last))})
        publish_tick(sink, tick, keyed=keyed)

    publish_tick(sink, 1, keyed=keyed)
    table.append_foreign(500)
    table.delete("k = 500")
    publish_next_tick(2, 1)
    assert caplog.messages == []
    table.go_back()
    publish_next_tick(4, 2)
    (message,) = caplog.messages
    assert f"{'RESTORE' if table.connector == 'delta' else 'a rollback to before tick 2'} (" in message
    assert "goes on with tick 4" in message
    caplog.clear()
    table.delete(None)
    for tick in (5, 6):
        publish_next_tick(tick, tick - 1)
    (message,) = caplog.messages
    assert ("DELETE (" if table.connector == "delta" else "a deletion of all rows (") in message


def test_deletes_before_the_first_rows_of_the_job_are_not_reported(table, caplog):
    publish_tick(sink_of(table, owner="job-0"), 1)
    table.delete(None)
    publish_tick(sink_of(table), 1)
    assert caplog.messages == []


@pytest.mark.parametrize("last", [0, 1, 2])
def test_recreated_table_stops_the_running_job(table, last):
    """Nobody is told that another run has begun, which there is not."""
    sink = sink_of(table)
    for tick in range(1, last + 1):
        publish_tick(sink, tick)
    table.recreate()
    error = catch_engine_error(lambda: publish_tick(sink, last + 1 if last < 2 else LAST))
    assert error.code == "sink-behind"
    assert "recreated" in error.message
    assert not table.rows()


@pytest.mark.parametrize("keyed", [False, True])
def test_staged_files_that_others_remove(table, keyed):
    """As VACUUM does that retains nothing: a commit would name files that are not there."""
    sink = sink_of(table, keyed=keyed)
    publish_tick(sink, 1, keyed=keyed)
    attempt = stage(sink, 2, keyed=keyed)
    staged_last = Path(sink._staged["a", 2, attempt][-1]["path"])  # there are those of a second attempt, too
    staged_last.unlink()
    error = catch_engine_error(lambda: sink.publish("a", 2, attempt, identity(2)))
    assert (error.code, staged_last.name in error.message) == ("staged-rows-gone", True)
    assert table.rows() == compute_expected_rows(["a"], keyed, last=1)
    sink = sink_of(table, 1, keyed=keyed, pending=True)
    assert publish_tick(sink, 2, keyed=keyed)
    assert table.rows() == compute_expected_rows(["a"], keyed, last=2)


def test_a_tick_is_looked_for_before_the_sink_is_prepared(table, monkeypatch):
    """By who owns the state: a query that fails every time at its sink may be corrected."""
    made = make_sink(SinkSpec("out", table.connector, table.options, COLUMNS))
    assert not made.has_part("a", 1, "job-1")
    assert made.has_part("a", 1)
    publish_tick(sink_of(table), 1)
    assert made.has_part("a", 1, "job-1")
    assert not made.has_part("a", 2, "job-1")
    assert not made.has_part("a", 1, "job-2")


def test_wrong_numbers_of_ticks_are_refused(table):
    for value in ("", "-1", "x", "1e3"):
        with pytest.raises(SpecError, match="begins_after_tick"):
            make_sink(SinkSpec("out", table.connector, {**table.options, "begins_after_tick": value}))


def broken(texts):
    """An array of texts, as other programs may hand them over: these bytes."""
    offsets = pa.array([0, *(sum(map(len, texts[: n + 1])) for n in range(len(texts)))], pa.int32())
    return pa.Array.from_buffers(
        pa.string(), len(texts), [None, offsets.buffers()[1], pa.py_buffer(b"".join(texts))]
    )


NESTED = {
    "plain": lambda texts: texts,
    "struct": lambda texts: pa.StructArray.from_arrays([texts], ["x"]),
    "list": lambda texts: pa.ListArray.from_arrays(range(len(texts) + 1), texts),
    "map": lambda texts: pa.MapArray.from_arrays(range(len(texts) + 1), ["m"] * len(texts), texts),
}


@pytest.mark.parametrize("nested", NESTED)
def test_texts_that_are_not_utf8_are_refused(table, nested):
    """A table with one would take no merge any more."""
    sink = sink_of(table)
    part = sink.arrow_part(None, "a", 1, "x")
    texts = NESTED[nested](broken([b"a", b"b", "ä".encode(), b"\xff\xfe", b"c"]))
    rows = pa.record_batch({"k": [1, 2, 3, 4711, 5], "v": texts})
    right = rows.slice(0, 3).take(pa.array([0, 1, 2]))
    assert part.write(0, rows.schema, iter([right]))["rows"] == 3
    with pytest.raises(EngineError) as raised:
        part.write(0, rows.schema, iter([right, rows]))
    assert raised.value.code == "sink-refused-row"
    assert "k: 4711" in raised.value.message
    assert '"v"' in raised.value.message


def test_two_inserts_with_other_columns(table):
    """What the table takes is checked for both, whenever it has changed."""
    sink = make_sink(SinkSpec("out", table.connector, table.options, COLUMNS))
    for columns in ((*COLUMNS, Column("gone", sql_type("INT"))), COLUMNS):
        sink.prepare(columns, "job-1")
    sink.check("a", 1, identity(1))
    table.recreate()
    with pytest.raises(SpecError, match="gone"):
        sink.check("a", 1, identity(1))


def test_errors_of_commits_show_no_secrets(table, monkeypatch):
    table.options = {
        **table.options,
        **({"catalog.token": "hunter2"} if table.connector == "iceberg" else {}),
    }
    sink = sink_of(table)
    attempt = stage(sink, 1)

    def away(*args):
        raise ConnectionError(
            "https://me:hunter2@host/x said no" + (" to hunter2" * (table.connector == "iceberg"))
        )

    monkeypatch.setattr(sink.table, "append", away)
    error = catch_engine_error(lambda: sink.publish("a", 1, attempt, identity(1)))
    assert "said no" in error.message
    assert "hunter2" not in error.message


def test_a_tick_that_is_larger_than_the_memory_is_not_merged(table, monkeypatch):
    sink = sink_of(table, keyed=True)
    monkeypatch.setattr(table_sink, "memory_of_machine", lambda: 100)
    attempt = stage(sink, 1, keyed=True)
    error = catch_engine_error(lambda: sink.publish("a", 1, attempt, identity(1)))
    assert error.code == "tick-too-large"
    assert table.rows() == []
