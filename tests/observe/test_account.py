"""The account adds up, and says so when it does not."""

from __future__ import annotations

import io
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from watersmeet.observe import row_accounting as account_module
from watersmeet.observe.reports import released_words
from watersmeet.observe.row_accounting import LABELS, PLACES, Account, InputAccount, LatenessCounts
from watersmeet.parser.statements import parse_job
from watersmeet.plan.planner import plan_job


def text_of(account: Account, width: int = 100) -> str:
    out = io.StringIO()
    for table in account.tables(width):
        Console(file=out, width=width).print(table)
    return out.getvalue()


def test_every_place_counts_once():
    counts = {place: 2**n for n, place in enumerate(PLACES)}
    retained = counts.pop("retained")
    row = InputAccount.of("o", {**counts, "in": sum(counts.values()) + retained}, retained)
    assert row.adds_up()
    assert {place: getattr(row, place) for place in PLACES} == {**counts, "retained": retained}


def test_what_is_written_of_the_account_names_every_place_once():
    docs = Path(__file__).resolve().parents[2] / "docs"
    labels = sorted(LABELS.get(place, place) for place in PLACES)
    for text in ((docs / "internals" / "state.md").read_text(), account_module.__doc__):
        sums = re.search(r"in = ([\w\s+]+)", text)[1].split("\n\n")[0]
        assert sorted(" ".join(place.split()) for place in sums.split("+")) == labels
    table = (docs / "users" / "guarantees.md").read_text().split("| outcome |")[1].split("\n\n")[0]
    assert sorted(re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE)) == labels


def test_counters_that_are_no_places_do_not_count():
    assert InputAccount.of("o", {"in": 1, "beneath": 7, "kept": 1, "matched": 1}, 0).adds_up()


@pytest.mark.parametrize(("rows_in", "difference"), [(11, 1), (9, -1)])
def test_a_lost_or_doubled_row_is_seen(rows_in, difference):
    account = Account((InputAccount("o", rows_in, matched=10),))
    assert not account.adds_up()
    assert account.inputs[0].difference == difference
    assert f"NO: {difference:+,} rows unaccounted" in text_of(account)


def test_table_has_the_words_and_leaves_out_what_never_happened():
    text = text_of(Account((InputAccount("o", 1234, matched=1000, null_time=234), InputAccount("d", 0))))
    assert "1,234" in text
    assert "NULL time" in text
    assert "adds up" in text
    assert "ahead" not in text


def test_account_splits_wide_inputs_over_several_tables():
    inputs = [InputAccount(f"query{n}.input", 1_000_000 + n, matched=1_000_000 + n) for n in range(9)]
    inputs.append(InputAccount("q.lost", 7))
    text = text_of(Account(tuple(inputs)), width=60)
    for row in inputs:
        assert row.input in text
        assert f"{row.rows_in:,}" in text
    assert "NO: +7 rows unaccounted" in text
    assert max(map(len, text.splitlines())) <= 60
    assert len(Account(tuple(inputs)).tables(60)) == 4
    assert len(Account(tuple(inputs)).tables(10_000)) == 1


def test_as_dict_is_for_json():
    found = Account((InputAccount("o", 1, matched=1),)).as_dict()
    assert found["adds_up"] is True
    assert found["inputs"][0]["input"] == "o"
    assert found["changed_files"] == {}
    found = Account((), {"s": (7, ("/in/1.json",))}).as_dict()
    assert found["changed_files"] == {"s": {"files": 7, "names": ["/in/1.json"]}}


def test_how_late_rows_were_is_a_line_per_input():
    times = {"t": LatenessCounts({"<1s": 3, "<10s": 9, "<1m": 2}, 42_000_000)}
    both = {"t": LatenessCounts({"<1s": 1}, 900_000), "n": LatenessCounts({"<100": 1200}, 99, integer=True)}
    found = Account(
        (
            InputAccount("o", 20, late=14, late_by=times),
            InputAccount("d", 3),
            InputAccount("x", 9, late=1201, late_by=both),
        )
    )
    assert found.late_lines() == [
        "o: 14 late (<1s 3, <10s 9, <1m 2), at most 42 s",
        "x: 1,201 late t (<1s 1), at most 900 ms; n (<100 1,200), at most 99",
    ]
    assert found.as_dict()["inputs"][0]["late_by"]["t"]["counts"] == {"<1s": 3, "<10s": 9, "<1m": 2}


def test_deletes_of_rows_that_were_not_there_have_a_line():
    counts = {"in": 1204, "matched": 1, "deleted": 2, "missing_deletes": 1200}
    found = Account((InputAccount.of("o", counts, retained=1),))
    assert found.adds_up()
    assert found.late_lines() == ["o: 1,200 deletes of absent rows: not applied"]


def test_stale_changes_have_a_line():
    found = Account((InputAccount.of("c.c", {"in": 5, "deleted": 1, "stale": 3}, retained=1),))
    assert found.adds_up()
    assert found.late_lines() == ["c.c: 3 changes older than the last one of their primary key: dropped"]


def test_rows_that_go_at_the_end_are_named_by_their_input():
    """Unused rows of the right side of an ASOF join are no results that are missing."""
    text = """
        CREATE TABLE s (id BIGINT, t BIGINT, WATERMARK FOR t AS t - 0) WITH ('connector' = 'memory');
        CREATE TABLE p (id BIGINT, t BIGINT, WATERMARK FOR t AS t - 0) WITH ('connector' = 'memory');
        SELECT s.id FROM s LEFT ASOF JOIN p MATCH_CONDITION (s.t >= p.t) ON p.id = s.id"""
    counts = {"s": {"padded": 1}, "p": {"released_unmatched": 2, "matched": 3}}
    last = SimpleNamespace(queries={"console": SimpleNamespace(counts=counts)})
    plan = plan_job(parse_job(text))
    assert released_words(last, plan) == (": 1 remaining row emitted with NULLs, 2 unused rows of p dropped")
    counts = {"s": {"released_unmatched": 1}, "#1": {"released_unmatched": 1}, "p": {}}
    last.queries["console"].counts = counts
    assert released_words(last, plan) == (
        ": 1 row of s dropped without a match, 1 row of join 1 dropped without a match"
    )
    last.queries.clear()
    assert released_words(last, plan) == ""
