"""The document that the page draws is what the history says, whatever has happened to that."""

from __future__ import annotations

import re
from itertools import product

import pytest

from watersmeet.history import segments
from watersmeet.history.points import Figures, subject_of
from watersmeet.history.reader import read
from watersmeet.history.segments import FOLDER, RunEnd, RunRecord, RunStart
from watersmeet.history.writer import HistoryWriter
from watersmeet.page.document import document_of, status_of
from watersmeet.page.html import static
from watersmeet.state.store import MemoryStore


def write_history(*ticks: dict[tuple[str, str], int]) -> MemoryStore:
    """A history with these levels, tick by tick."""
    store = MemoryStore()
    keeping = HistoryWriter(store, pytest.fail, pause_s=1e9)
    for number, levels in enumerate(ticks, 1):
        keeping.add(number, number * 1_000_000, Figures(levels=levels))
    keeping.close()
    return store


def test_rows_of_discarded_ticks_are_in_no_row_accounting():
    """After `state restore` an input may have less of a place than before, and none of another."""
    of = subject_of("input", "q", "a")
    before = {(of, "in"): 9, (of, "retained"): 5, (of, "late"): 4, (of, "late of t <1s"): 4}
    (told,) = document_of(read(write_history(before, {(of, "in"): 5, (of, "retained"): 5})), "job")["inputs"]
    assert told == {"name": "q.a", "query": "q", "input": "a", "in": 5, "places": {"retained": 5}, "late": {}}


def test_inputs_with_confusable_names_remain_distinct():
    named = [
        subject_of("input", "a/b", "c"),
        subject_of("input", "a", "b/c"),
        subject_of("input", "a%2Fb", "c"),
    ]
    assert len(set(named)) == 3
    document = document_of(read(write_history({(of, "retained"): n for n, of in enumerate(named, 1)})), "job")
    assert {one["name"]: one["places"] for one in document["inputs"]} == {
        "a/b.c": {"retained": 1},
        "a.b/c": {"retained": 2},
        "a%2Fb.c": {"retained": 3},
    }


def test_a_run_whose_end_cannot_be_read_is_there_without_it():
    store = MemoryStore()
    run = segments.begin(store, "0" * 8, RunStart(started_us=1_000_000, version="1", machine="here"))
    segments.end(store, run, RunEnd(ended_us=2_000_000, how="stopped"))
    (name,) = [name for name in store.names(FOLDER) if name.endswith("-ended.json")]
    data = bytes(store.read(name))
    store.delete(name)
    store.write(name, data[:-9])
    document = document_of(read(store), "job")
    assert [(run["started"], run["ended"]) for run in document["runs"]] == [(1.0, None)]
    (problem,) = document["problems"]
    assert name in problem


@pytest.mark.parametrize(
    ("how", "is_held", "status"),
    [
        (None, True, "running"),
        (None, False, "killed"),
        (None, None, "unknown"),
        ("stopped", False, "stopped"),
        ("stopped", None, "stopped"),
        ("failed", True, "starting"),
        ("no run", True, "starting"),
        ("no run", False, "not started"),
    ],
)
def test_a_run_is_what_it_wrote_and_whether_a_process_holds_its_checkpoint(how, is_held, status):
    begun = RunStart(started_us=1, version="1", machine="here")
    ended = None if how is None else RunEnd(ended_us=2, how=how)
    run = None if how == "no run" else RunRecord(id="a", begun=begun, ended=ended)
    assert status_of(run, is_held) == status


def test_a_run_that_wrote_no_end_and_was_followed_by_another_was_killed():
    store = MemoryStore()
    for number in (1, 2):
        segments.begin(store, str(number) * 8, RunStart(started_us=number, version="1", machine="here"))
    document = document_of(read(store), "job", is_held=True)
    assert [run["status"] for run in document["runs"]] == ["killed", "running"]


def test_colours_have_enough_contrast_with_their_background():
    """4.5 to 1 for texts, 3 to 1 for lines, as WCAG 2.1 has it."""
    css = static("page.css").decode()
    light, dark = (dict(re.findall(r"--(\w+): (#\w{6});", part)) for part in css.split("}")[:2])
    assert light.keys() == dark.keys()

    def luminance(colour):
        parts = (int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5))
        red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    for scheme, behind in product((light, dark), ("paper", "panel")):
        for name, colour in scheme.items():
            if name not in ("paper", "panel", "line"):
                least = 4.5 if name in ("ink", "faint", "link", "bad") else 3
                low, high = sorted((luminance(colour), luminance(scheme[behind])))
                assert (high + 0.05) / (low + 0.05) >= least, (name, colour, behind)
