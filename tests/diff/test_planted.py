"""Random jobs in this process: their output differs from the batch answer for known reasons alone, and what
the test plants in it is found, with nothing else."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute
import pytest

from tests.diff.played import Played
from tests.support.effort import at_effort
from tests.support.random_cases import random_case
from tests.support.random_multiway import random_multiway_case
from tests.support.random_unions import random_union_case
from watersmeet.diff.bags import EXTRA, LATE, MISSING, NOT_DUE, UNEXPLAINED, open_database
from watersmeet.diff.dialect import UnsupportedInDialect
from watersmeet.errors import WatersmeetError

CASES = at_effort(quick=3, full=40)
Draw = Callable[..., dict[str, Any]]
DRAWS = [pytest.param(random_case, id="two"), pytest.param(random_multiway_case, id="many")]
UNIONS = pytest.param(random_union_case, id="unions")


@pytest.fixture(scope="module")
def db(tmp_path_factory) -> Iterator[Any]:
    connection = open_database(str(tmp_path_factory.mktemp("diff")))
    yield connection
    connection.close()


def drawn(seed: int, draw: Draw) -> Iterator[tuple[int, Played]]:
    """Random jobs of which DuckDB can give the answer."""
    while True:
        seed += 1
        try:
            played = Played(draw(seed))
        except WatersmeetError:  # the plan is refused, or the job fails, as some are to
            continue
        if played.output is not None and not played.changes:
            yield seed, played


@pytest.mark.parametrize("draw", [*DRAWS, UNIONS])
def test_what_differs_has_a_reason(db: Any, seed: int, draw: Draw) -> None:
    seen: Counter[tuple[str, str]] = Counter()
    compared = 0
    for number, played in drawn(seed, draw):
        try:
            found = played.compared(db, played.output)
        except (UnsupportedInDialect, duckdb.OutOfRangeException):  # the ends of BIGINT
            continue
        assert found.unexplained == 0, (number, found)
        assert found.put_out == played.output.num_rows
        seen.update(found.counts)
        compared += 1
        if compared == CASES:
            break
    assert at_effort(quick=any, full=all)(seen[MISSING, why] for why in (LATE, NOT_DUE)), seen


def plant_difference(table: pa.Table, rng: random.Random) -> tuple[pa.Table, int, int, bool]:
    """Return the output with a row dropped, doubled or changed; how many are missing now, how many extra, and
    whether the row was padded."""
    row = rng.randrange(table.num_rows)
    times = [name for name in table.column_names if name.endswith("_t")]
    is_padded = any(table[name][row].as_py() is None for name in times)
    without = pa.concat_tables([table.slice(0, row), table.slice(row + 1)])
    doubled = pa.concat_tables([table, table.slice(row, 1)])
    return (*rng.choice([(without, 1, 0), (doubled, 0, 1), (_change_value(table, row), 1, 1)]), is_padded)


def _change_value(table: pa.Table, row: int) -> pa.Table:
    """With another number in a column that no row has."""
    place = next(n for n, field in enumerate(table.schema) if pa.types.is_integer(field.type))
    values = table.column(place).to_pylist()
    values[row] = 99 if values[row] is None else 101
    return table.set_column(place, table.schema[place], pa.array(values, table.schema[place].type))


@pytest.mark.parametrize("draw", DRAWS)
def test_what_is_planted_is_found(db: Any, seed: int, draw: Draw) -> None:
    rng = random.Random(seed)
    tried = excused = 0
    for number, played in drawn(seed, draw):
        table = played.output
        if not table.num_rows or not any(pa.types.is_integer(field.type) for field in table.schema):
            continue
        try:
            before = played.compared(db, table)
        except (UnsupportedInDialect, duckdb.OutOfRangeException):
            continue
        if any(side == EXTRA for side, _ in before.counts):
            continue  # to drop or change a row that is extra already would add no difference
        other, missing, extra, is_padded = plant_difference(table, rng)
        found = played.compared(db, other)
        more = Counter(found.counts)
        more.subtract(before.counts)
        sides = {side: sum(n for (of, _), n in more.items() if of == side) for side in (MISSING, EXTRA)}
        if before.counts and (missing, extra) == (0, 1) and sides == {MISSING: -1, EXTRA: 0}:
            continue  # the doubled row equals one that was missing: a changed one has a value of its own
        assert sides == {MISSING: missing, EXTRA: extra}, (number, before.counts, found)
        if not played.facts.late_inputs and draw is random_case:
            not_due = more[MISSING, NOT_DUE] if is_padded else 0  # it may match nothing, which is not judged
            unexplained = more[MISSING, UNEXPLAINED] + more[EXTRA, UNEXPLAINED]
            assert unexplained + not_due == missing + extra, (number, found)
            excused += not_due
        tried += 1
        if tried == CASES:
            break
    assert excused <= max(1, CASES // 10), excused


def test_a_lost_row_is_not_called_late_because_another_is(db: Any) -> None:
    """The right row of tick 2 came in time: behind the one before it, and less than the lag."""
    ticks = [[("l", 50, 0), ("r", 50, 1)], [("r", 49, 2)], [("l", 99, 3), ("r", 99, 4)], [("r", 40, 5)]]
    stream = {"columns": {"t": "BIGINT", "n": "BIGINT"}, "time": {"t": {"lag": 2}}}
    played = Played(
        {
            "case": "lost",
            "streams": {"l": stream, "r": stream},
            "query": "SELECT l.n AS l, r.n AS r FROM l JOIN r ON r.t BETWEEN l.t - 20 AND l.t + 20",
            "steps": [{"rows": [[of, {"t": t, "n": n}] for of, t, n in tick]} for tick in ticks],
        }
    )
    late = {(MISSING, LATE, 1, (0, 5))}
    assert {*played.compared(db, played.output).rows} == late
    left = played.output.filter(pa.compute.not_equal(played.output["r"], 2))
    assert {*played.compared(db, left).rows} == {*late, (MISSING, UNEXPLAINED, 1, (0, 2))}
