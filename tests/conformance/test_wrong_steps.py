"""Steps that speak of what is not there are refused before any is played, all problems at once."""

from __future__ import annotations

import pytest

from watersmeet.engine.local import replay_case

STREAM = {"columns": {"t": "BIGINT", "k": "STRING"}, "time": {"t": {"lag": None}}, "partitions": ["p0"]}


def replayed(*steps):
    case = {"case": "c", "streams": {"l": STREAM, "unused": STREAM}, "query": "SELECT t FROM l"}
    return replay_case({**case, "steps": list(steps)})


@pytest.mark.parametrize(
    ("step", "words"),
    [
        ({"rowz": []}, 'unknown entry "rowz"\nHint: did you mean "rows"?'),
        ({"rows": [["r", {"t": 1}]]}, 'unknown stream "r"'),
        ({"rows": [["l", {"tt": 1}]]}, 'unknown column of "l": "tt"\nHint: did you mean "t"?'),
        ({"idle": ["r/p0"]}, 'unknown stream "r"'),
        ({"advance": {"l.x": 1}}, 'unknown column of "l": "x"'),
        ({"advance": {"r.t": 1}}, 'unknown stream "r"'),
    ],
)
def test_a_step_with_an_unknown_name_is_refused(step, words):
    (line,) = replayed({"rows": [["l", {"t": 1}]]}, step)
    assert f"step 1: {words}" in line["error"]


def test_all_problems_are_told_at_once():
    (line,) = replayed({"rowz": []}, {"idle": ["r"]}, {"rows": [["l", {"tt": 1}], ["l", {"tt": 2}]]})
    assert line["error"].count("bad-case") == 3


def test_what_is_there_is_not_refused():
    row = {"t": 1, "k": "a", "_partition": "p0"}
    lines = replayed(
        {
            "rows": [["l", row], ["unused", row]],
            "idle": ["l/p0", "unused"],
            "advance": {"l.t": 5},
            "clock": 1,
        },
        {"restart": True},
        {"rescale": 2},
        {"end": True},
    )
    assert [line.get("error") for line in lines] == [None] * 4
