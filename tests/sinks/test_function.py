"""A user's function as a sink, without Spark."""

from __future__ import annotations

import json
import random
import sys

import pyarrow as pa
import pytest

from tests.sinks import given_functions
from tests.sinks.function_frames import COLUMNS, identity_of, prepare_sink, sink_of, stage
from tests.sinks.given_functions import CALLS
from tests.support.columns import column
from watersmeet.errors import EngineError, SpecError, StateError
from watersmeet.sinks import staging
from watersmeet.sinks.base import KeyedRows
from watersmeet.sinks.function import FunctionSink
from watersmeet.sinks.part_mark import Resumed
from watersmeet.spec.model import Sink
from watersmeet.state.store import LocalStore

ROWS = [(f"k{n}", None if n % 4 == 0 else f"v{n}") for n in range(10)]


@pytest.fixture(autouse=True)
def no_calls():
    CALLS.clear()


def publish_tick(sink, tick, rows, partitions):
    attempt = stage(sink, tick, rows, partitions)
    sink.check("q", tick, identity_of(tick))
    return sink.publish("q", tick, attempt, identity_of(tick))


def list_calls():
    return [(part.tick, part.number, part.parts, table.to_pydict()) for part, table in CALLS]


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({}, "missing-option"),
        ({"function": "  "}, "missing-option"),
        ({"function": "module.name"}, "wrong-option"),
        ({"function": "module:"}, "wrong-option"),
        ({"function": "mod-ule:name"}, "wrong-option"),
        ({"function": "os:getcwd()"}, "wrong-option"),
        ({"function": "os:getcwd", "functions": "x"}, "unknown-option"),
        ({"function": "no_such_module_at_all:put"}, "no-function"),
        ({"function": "tests.sinks.given_functions:kep"}, "no-function"),
        ({"function": "tests.sinks.given_functions:NUMBER"}, "no-function"),
        ({"function": "tests.sinks.given_functions:one"}, "no-function"),
        ({"function": "tests.sinks.given_functions:waits"}, "no-function"),
        ({"function": "tests.sinks.given_functions:yields"}, "no-function"),
    ],
)
def test_refused_when_it_is_made(options, code):
    with pytest.raises(SpecError, match=code):
        FunctionSink(Sink("out", "function", options))


def test_a_misspelt_option_is_not_missing_too():
    with pytest.raises(SpecError, match='has no option "functions"') as caught:
        FunctionSink(Sink("out", "function", {"functions": "x"}))
    assert (caught.value.code, caught.value.hint) == ("unknown-option", 'did you mean "function"?')


def test_misspelled_function_suggests_the_nearest_name():
    with pytest.raises(SpecError, match='did you mean "keep"'):
        sink_of("kep")


@pytest.mark.parametrize("text", ["raise SystemExit(2)", "1 / 0", "import not_there_at_all", "def put(:"])
def test_a_module_that_cannot_be_imported(tmp_path, monkeypatch, text):
    (tmp_path / "broken_module.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "broken_module", raising=False)
    with pytest.raises(SpecError, match="its module cannot be imported") as caught:
        sink_of("broken_module:put")
    assert "\n" not in caught.value.message
    if text == "1 / 0":
        assert "ZeroDivisionError: division by zero" in caught.value.message
        assert "broken_module.py, line 1" in caught.value.message


def test_a_method_of_a_class_is_found(tmp_path):
    assert publish_tick(prepare_sink(sink_of("Writer.put"), tmp_path), 1, ROWS, 1)
    assert len(CALLS) == 1


def test_columns_are_checked():
    sink = sink_of("keep", ("id",))
    assert sink.keyed == KeyedRows(("id",))
    with pytest.raises(SpecError, match='PRIMARY KEY of function sink "out": the result has no column "id"'):
        sink.prepare(COLUMNS)
    with pytest.raises(SpecError, match="reserved-name"):
        sink.prepare([column("id", "INT"), column("_deleted", "INT")])
    sink_of("keep").prepare([column("id", "INT"), column("_deleted", "INT")])
    with pytest.raises(SpecError, match="two columns named"):
        sink_of("keep").prepare([column("a", "INT"), column("A", "INT")])


def test_it_gets_parts_with_their_rows(tmp_path):
    sink = prepare_sink(sink_of("keep"), tmp_path)
    assert publish_tick(sink, 3, ROWS, 3)
    parts = [part for part, _ in CALLS]
    assert [(p.job, p.insert, p.tick, p.number, p.parts) for p in parts] == [
        ("the job", "q", 3, number, 3) for number in range(3)
    ]
    assert [p.rows for p in parts] == [table.num_rows for _, table in CALLS]
    assert [p.schema for p in parts] == [table.schema for _, table in CALLS]
    rows = [(row["k"], row["v"]) for _, table in CALLS for row in table.to_pylist()]
    assert rows == ROWS


def test_a_tick_without_rows_is_none_for_it(tmp_path):
    sink = prepare_sink(sink_of("keep"), tmp_path)
    assert not publish_tick(sink, 1, [], 2)
    assert not CALLS
    assert not sink.has_part("q", 1)


def test_a_repeated_tick_has_the_same_parts_with_the_same_rows(tmp_path):
    """By another run, cut into other tasks, whose rows come in another order."""
    store = LocalStore(tmp_path)
    assert publish_tick(prepare_sink(sink_of("keep"), store), 1, ROWS, 3)
    first = list_calls()
    CALLS.clear()
    again = prepare_sink(sink_of("keep"), store)
    again.resume(["q"], Resumed(0, pending=True))
    assert again.has_part("q", 1)
    assert publish_tick(again, 1, ROWS[::-1], 2)
    assert list_calls() == first
    ran_twice = len(store.names("work")) - 3
    assert ran_twice == 3 + 2, "of the second attempt only what Spark told nobody of is left"


def test_a_run_that_failed_in_the_middle_is_repeated_so(tmp_path):
    with pytest.raises(EngineError, match="function-failed"):
        publish_tick(prepare_sink(sink_of("fails"), tmp_path), 1, ROWS, 4)
    assert publish_tick(prepare_sink(sink_of("keep"), tmp_path), 1, ROWS, 1)
    assert [(number, parts) for _, number, parts, _ in list_calls()] == [(n, 4) for n in range(4)]


def test_an_attempt_that_is_discarded_after_it_went_out_leaves_its_parts(tmp_path):
    sink = prepare_sink(sink_of("fails"), tmp_path)
    attempt = stage(sink, 1, ROWS, 2)
    with pytest.raises(EngineError):
        sink.publish("q", 1, attempt, identity_of(1))
    sink.discard(attempt)
    assert publish_tick(prepare_sink(sink_of("keep"), tmp_path), 1, ROWS, 1)
    assert len(CALLS) == 2


def test_another_tick_of_the_number_is_refused(tmp_path):
    publish_tick(prepare_sink(sink_of("keep"), tmp_path), 1, ROWS, 3)
    CALLS.clear()
    sink = prepare_sink(sink_of("keep"), tmp_path)
    attempt = stage(sink, 1, ROWS, 2)
    with pytest.raises(EngineError, match="sink-of-another-tick"):
        sink.check("q", 1, {"rows": "others"})
    with pytest.raises(EngineError, match="sink-of-another-tick"):
        sink.publish("q", 1, attempt, {"rows": "others"})
    assert not CALLS


def test_a_run_that_slept_goes_by_what_another_one_recorded(tmp_path):
    """Both have staged the tick, each in its own way."""
    slept, other = prepare_sink(sink_of("keep"), tmp_path), prepare_sink(sink_of("keep"), tmp_path)
    attempt = stage(slept, 1, ROWS, 5)
    assert publish_tick(other, 1, ROWS, 2)
    first = list_calls()
    CALLS.clear()
    assert slept.publish("q", 1, attempt, identity_of(1))
    assert list_calls() == first


def test_a_run_that_slept_while_the_tick_was_ended_gives_nothing_out(tmp_path):
    """By then nothing is left of how it was cut."""
    slept, other = prepare_sink(sink_of("keep"), tmp_path), prepare_sink(sink_of("keep"), tmp_path)
    attempt = stage(slept, 1, ROWS, 5)
    assert publish_tick(other, 1, ROWS, 2)
    CALLS.clear()
    store = LocalStore(tmp_path)
    store.delete_all(store.names("parts"))
    slept.call_in(slept._tasks, lambda tick: tick <= 1)
    with pytest.raises(EngineError, match="sink-taken"):
        slept.publish("q", 1, attempt, identity_of(1))
    assert not CALLS


def test_each_insert_has_parts_of_its_own(tmp_path):
    sink = prepare_sink(sink_of("keep"), tmp_path)
    for insert, rows in (("q", ROWS[:2]), ("other", ROWS[:1])):
        stage(sink, 1, rows, 1, insert, attempt="one of both")
    for insert in ("q", "other"):
        assert sink.publish(insert, 1, "one of both", identity_of(1))
    assert [(part.insert, table.num_rows) for part, table in CALLS] == [("q", 2), ("other", 1)]


def test_rows_that_are_left_are_noticed(tmp_path):
    with pytest.raises(EngineError, match="after reading 0 of 5 rows") as caught:
        publish_tick(prepare_sink(sink_of("first_batch"), tmp_path), 1, ROWS, 2)
    assert caught.value.code == "function-left-rows"


def test_it_may_say_that_it_has_them(tmp_path):
    assert publish_tick(prepare_sink(sink_of("skips"), tmp_path), 1, ROWS, 2)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("fails", r"failed at tick 1 of \"q\", part 1 of 2: KeyError: 'no\\nsuch thing' "),
        ("exits", r"part 0 of 2: SystemExit: 3 "),
        ("impolite", r"part 0 of 2: Impolite: \(it does not say what\) "),
    ],
)
def test_function_error_fits_in_one_line(tmp_path, name, said):
    with pytest.raises(EngineError, match=said) as caught:
        publish_tick(prepare_sink(sink_of(name), tmp_path), 1, ROWS, 2)
    assert caught.value.code == "function-failed"
    assert f"{given_functions.__file__}, line " in caught.value.message
    assert caught.value.message.endswith(f"in {name})")
    assert "\n" not in caught.value.message


def test_a_long_message_is_cut(tmp_path, monkeypatch):
    def raise_long_error(part, rows):
        raise ValueError("x" * 100_000)

    monkeypatch.setattr(given_functions, "keep", raise_long_error)
    with pytest.raises(EngineError, match="xxx…") as caught:
        publish_tick(prepare_sink(sink_of("keep"), tmp_path), 1, ROWS, 2)
    assert len(caught.value.message) < 2_000


@pytest.mark.parametrize("name", ["keep", "swallows"])
def test_missing_staged_rows_are_not_blamed_on_the_function(tmp_path, name):
    sink = prepare_sink(sink_of(name), tmp_path)
    attempt = stage(sink, 1, ROWS, 1)
    ((file, rows),) = sink._staged["q", 1, attempt]
    store = LocalStore(tmp_path)
    whole = bytes(store.read(file))
    store.delete(file)
    with pytest.raises(StateError, match="state-missing"):
        sink.publish("q", 1, attempt, identity_of(1))
    store.write(file, whole)
    (record,) = store.names("parts")
    told = json.loads(bytes(store.read(record)))
    store.delete(record)
    assert store.create(record, json.dumps({**told, "parts": [[file, rows + 1]]}).encode())
    with pytest.raises(EngineError, match="staged-rows-gone"):
        sink.publish("q", 1, attempt, identity_of(1))


def test_wide_rows_are_cut_into_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(staging, "MAX_FILE_BYTES", 1 << 20)
    wide = [(f"k{n}", "x" * 400_000) for n in range(7)]
    sink = prepare_sink(sink_of("keep"), tmp_path)
    assert publish_tick(sink, 1, wide, 1)
    assert [row["k"] for _, table in CALLS for row in table.to_pylist()] == [key for key, _ in wide]
    assert len(CALLS) == 2
    assert all(table.nbytes < 2 << 20 for _, table in CALLS)


def test_a_function_that_sleeps_is_waited_for(tmp_path):
    assert publish_tick(prepare_sink(sink_of("slow"), tmp_path), 1, ROWS, 2)
    assert len(CALLS) == 2


def test_random_cuts(seed, tmp_path):
    """Whatever is repeated, and however often: parts are what they were."""
    draw = random.Random(seed)
    seen = {}
    for tick in range(1, 30):
        rows = [(f"{n}", str(draw.random())) for n in range(draw.randrange(0, 12))]
        for _ in range(draw.randrange(1, 4)):
            CALLS.clear()
            sink = prepare_sink(sink_of("keep"), tmp_path)
            draw.shuffle(rows)
            assert publish_tick(sink, tick, rows, draw.randrange(1, 6)) == bool(rows)
            assert seen.setdefault(tick, list_calls()) == list_calls()
        assert sorted(k for *_, t in seen[tick] for k in t["k"]) == sorted(k for k, _ in rows)


def test_arrows_types_stay(tmp_path):
    sink = prepare_sink(sink_of("keep"), tmp_path)
    table = pa.table({"t": pa.array([0], pa.timestamp("us", tz="UTC")), "l": [[1, None]], "b": [b"\x00"]})
    files, folder = sink._there(), "work/passing-1-a-"
    said = staging.RowsPart(files, folder, lasting=True).write(0, table.schema, iter(table.to_batches()))
    sink.take_parts("q", 1, "a", [said])
    assert sink.publish("q", 1, "a", identity_of(1))
    assert CALLS[0][1].equals(table)
