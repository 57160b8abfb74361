"""The public contract of sinks: the built-in ones keep it, and each way of breaking it is seen."""

from __future__ import annotations

import duckdb
import pytest

from watersmeet.errors import SpecError
from watersmeet.sinks.memory import MemorySink
from watersmeet.sinks.registry import make_sink
from watersmeet.spec.model import Sink
from watersmeet.testing.sink_contract import CHECKS, SinkContract


def rows_in_memory(target):
    return [(row["id"], row["name"]) for row in MemorySink.rows(target)]


def in_memory(kind):
    return SinkContract(lambda target: kind(Sink(target, "memory")), rows_in_memory)


@pytest.fixture(autouse=True)
def nothing_stored():
    MemorySink.clear()
    yield
    MemorySink.clear()


@pytest.mark.parametrize("check", CHECKS)
def test_the_memory_sink_keeps_the_contract(check):
    in_memory(MemorySink).check(check)


@pytest.mark.parametrize("check", CHECKS)
def test_the_file_sink_keeps_the_contract(check, tmp_path):
    def read(target):
        files = [str(file) for file in (tmp_path / target).glob("*.parquet")]
        return duckdb.read_parquet(files).fetchall() if files else []

    SinkContract(lambda target: make_sink(Sink("out", "file", {"path": str(tmp_path / target)})), read).check(
        check
    )


class RepeatsTicks(MemorySink):
    def publish(self, insert, tick, attempt, identity):
        rows = self._staged.get((insert, tick, attempt), [])
        parts = self._published.setdefault(self._name, {})
        there = parts.get((insert, tick), (identity, []))
        parts[insert, tick] = (identity, [*there[1], *rows])
        return True


class ShowsStaged(MemorySink):
    def write(self, frame, insert, tick, attempt):
        super().write(frame, insert, tick, attempt)
        self.publish(insert, tick, attempt, {})
        self._staged[insert, tick, attempt] = list(frame.collect())


class ForgetsTicks(MemorySink):
    def has_part(self, insert, tick, owner=None):
        return False


class TakesAnyIdentity(MemorySink):
    def check(self, insert, tick, identity):
        """Accept it."""


class TakesAnyHistory(MemorySink):
    def resume(self, inserts, resumed):
        return []


class TakesAnyJob(TakesAnyIdentity, TakesAnyHistory):
    def publish(self, insert, tick, attempt, identity):
        rows = self._staged.pop((insert, tick, attempt), [])
        parts = self._published.setdefault(self._name, {})
        if rows:
            parts[insert, tick] = (identity, rows)
        return True


class RefusesEmptyTicks(MemorySink):
    def publish(self, insert, tick, attempt, identity):
        assert self._staged.get((insert, tick, attempt)), "rows are missing"
        return super().publish(insert, tick, attempt, identity)


@pytest.mark.parametrize(
    ("kind", "check"),
    [
        (RepeatsTicks, "repeated_tick"),
        (ShowsStaged, "kill_before_publish"),
        (ForgetsTicks, "lost_answer"),
        (RepeatsTicks, "lost_answer"),
        (TakesAnyIdentity, "other_identity"),
        (TakesAnyJob, "other_job"),
        (RefusesEmptyTicks, "empty_tick"),
        (TakesAnyHistory, "tick_order"),
    ],
)
def test_a_sink_that_breaks_the_contract_is_seen(kind, check):
    with pytest.raises(AssertionError):
        in_memory(kind).check(check)


def test_an_unknown_check_is_refused():
    with pytest.raises(SpecError, match="no check") as caught:
        in_memory(MemorySink).check("repeated_tik")
    assert "repeated_tick" in caught.value.hint


def test_a_sink_that_runs_code_in_tasks_is_refused():
    contract = SinkContract(
        lambda target: make_sink(Sink(target, "function", {"function": "operator:add"})), rows_in_memory
    )
    with pytest.raises(SpecError, match="without Spark"):
        contract.check("repeated_tick")
