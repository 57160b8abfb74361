"""Groups of one row come to what grouping makes of them, bit by bit: whatever the hashes have in common."""

import random
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from tests.kernel.test_partial import INF, NAN, asked, random_rows
from tests.support.effort import at_effort
from watersmeet.errors import EngineError
from watersmeet.kernel import groups
from watersmeet.kernel.aggregate import AggregateCall, AggregateColumn, aggregate_groups, partials_of
from watersmeet.kernel.batches import batch_of
from watersmeet.kernel.groups import aggregate_by_hash
from watersmeet.kernel.slots import hash_columns


def bits(table):
    """Its rows as a bag: -0.0 is not 0.0."""
    return sorted(map(repr, table.to_pylist()))


def rows_with_keys(count):
    """Nearly each with a key of its own, NaN, NULL and both zeros among them; a float key and a text."""
    rows = random_rows(count)
    numbers = [float(n) for n in range(count)]
    for value in (NAN, None, 0.0, -0.0, 3.0):
        numbers[random.randrange(count)] = value
    texts = [random.choice("ab") for _ in range(count)]
    rows = rows.drop_columns(["k"]).add_column(0, "k", pa.array(numbers, pa.float64()))
    return batch_of(rows.append_column("text", pa.array(texts)))


def hashes_of(rows, keys, kept_bits):
    hashes = hash_columns([rows.column(key) for key in keys], rows.num_rows)
    return hashes & np.int64(-1 << (64 - kept_bits))


@pytest.mark.parametrize("kept_bits", [64, 6])
def test_rows_alone_in_their_group_give_what_grouping_gives(seed, kept_bits):
    """Every function over every type, FILTERs, NULLs; hashes that only equal keys share, and few ones."""
    random.seed(f"{seed} {kept_bits}")
    keys = ["k", "text"]
    for _ in range(at_effort(quick=1, full=3)):
        rows = rows_with_keys(random.randint(5, 60))
        infinite = pa.array([random.choice([INF, -INF, NAN, -0.0, 1.5]) for _ in range(rows.num_rows)])
        rows = rows.append_column("v99", infinite)
        partials = partials_of(asked(rows.schema))
        for step in (partials.make, partials.combine, partials.finish):
            table = pa.Table.from_batches([rows])
            expected = aggregate_groups(table, keys, step)
            for in_order in (True, False):
                found = aggregate_by_hash(
                    rows, keys, step, hashes_of(rows, keys, kept_bits), in_order=in_order
                )
                assert found.schema == expected.schema
                assert bits(found) == bits(expected)
            if step is partials.make:
                rows = batch_of(pa.concat_tables([expected, aggregate_groups(table.slice(0, 4), keys, step)]))


def rows_of(keys, values=None):
    return pa.record_batch({"k": pa.array(keys), "v": pa.array(values or [1] * len(keys), pa.int64())})


TOTAL = AggregateColumn("s", 'sum("v")', pa.int64(), '"v"')


def test_rows_that_are_alone_are_not_grouped(monkeypatch):
    given = []
    monkeypatch.setattr(
        groups,
        "aggregate_groups",
        lambda rows, *a, **b: given.append(rows) or aggregate_groups(rows, *a, **b),
    )
    rows = rows_of([5, 3, 4, 3, 9], [1, 2, 3, 4, 5])
    found = aggregate_by_hash(rows, ["k"], [TOTAL], hashes_of(rows, ["k"], 64))
    assert found.to_pydict() == {"k": [5, 4, 9, 3], "s": [1, 3, 5, 6]}, "in order, others behind them"
    assert [table.column("k").to_pylist() for table in given] == [[3, 3]]


def test_where_most_rows_are_not_alone_all_are_grouped():
    keys = [1, 2, 1, 2, 3, 4, 2]
    rows = rows_of(keys)
    found = aggregate_by_hash(rows, ["k"], [TOTAL], hashes_of(rows, ["k"], 64))
    assert found.column("k").to_pylist() == [1, 2, 3, 4], "in the order of their first rows"


def test_what_has_no_text_for_one_row_is_grouped():
    rows = rows_of([1, 2])
    plain = AggregateColumn("s", 'sum("v")', pa.int64())
    assert aggregate_by_hash(rows, ["k"], [plain], np.array([1, 2])).column("s").to_pylist() == [1, 1]


def test_no_row():
    rows = rows_of([1]).slice(1)
    assert aggregate_by_hash(rows, ["k"], [TOTAL], np.empty(0, dtype=np.int64)).num_rows == 0


def test_a_sum_of_one_partial_row_may_be_too_great_and_others_must_not_be():
    kind = pa.int64()
    partials = partials_of([AggregateCall("s", "sum", ("v",), (kind,))])
    great = Decimal(2**63)
    column = partials.make[1].name

    def finished(keys, totals):
        kept = pa.record_batch(
            {
                "k": keys,
                "__ws_rows": pa.array([2] * len(keys), pa.int64()),
                column: pa.array(totals, pa.decimal128(38, 0)),
            }
        )
        return aggregate_by_hash(kept, ["k"], partials.finish, hashes_of(kept, ["k"], 64))

    assert finished([1, 2, 3, 4, 4], [Decimal(7)] * 3 + [great, Decimal(-1)]).column("s").to_pylist() == [
        7, 7, 7, 2**63 - 1,
    ]  # fmt: skip
    with pytest.raises(EngineError, match="an aggregate failed"):
        finished([1, 2], [Decimal(7), great])
