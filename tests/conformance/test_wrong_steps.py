"""Steps that speak of what is not there are refused before any is played, all problems at once."""

from __future__ import annotations

import pytest

from watersmeet.runtime.local import replay_case

STREAM = {"columns": {"t": "BIGINT", "k": "STRING"}, "time": {"t": {"lag": None}}, "partitions": ["p0"]}


def replay_steps(*steps):
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
    (line,) = replay_steps({"rows": [["l", {"t": 1}]]}, step)
    assert f"step 1: {words}" in line["error"]


@pytest.mark.parametrize(
    ("at", "said"), [("l", '"l" is not a valid time'), ("2024-07-01T10:00:00+02:00", None)]
)
def test_an_advance_is_a_time(at, said):
    stream = {"columns": {"t": "TIMESTAMP"}, "time": {"t": {"lag": None}}}
    case = {"case": "c", "streams": {"l": stream}, "query": "SELECT t FROM l"}
    (line,) = replay_case({**case, "steps": [{"advance": {"l.t": at}}]})
    if said is None:
        assert line["watermarks"] == {"l.t": "2024-07-01T08:00:00"}
    else:
        assert said in line["error"]


def test_parts_of_values_come_back():
    """Of ARRAYs, MAPs and STRUCTs; a MAP is an array of [key, value]."""
    columns = {"t": "BIGINT", "a": "ARRAY<DATE>", "m": "MAP<STRING, DECIMAL(3,1)>", "s": "STRUCT<x: INT>"}
    case = {"case": "c", "streams": {"l": {"columns": columns, "time": {"t": {"lag": 0}}}}}
    row = {"t": 1, "a": ["2024-07-01", None], "m": {"k": "1.5"}, "s": {"x": 7}}
    for options in ({}, {"output_mode": "changelog"}):
        case |= {"query": "SELECT a, m, s, s.x AS x FROM l", "options": options}
        (line,) = replay_case({**case, "steps": [{"rows": [["l", row]]}]})
        (found,) = line["rows"]
        found.pop("_diff", None)
        assert found == {"a": ["2024-07-01", None], "m": [["k", "1.5"]], "s": {"x": 7}, "x": 7}


def test_problems_of_all_steps_are_reported_at_once():
    (line,) = replay_steps({"rowz": []}, {"idle": ["r"]}, {"rows": [["l", {"tt": 1}], ["l", {"tt": 2}]]})
    assert line["error"].count("bad-case") == 3


def test_what_is_there_is_not_refused():
    row = {"t": 1, "k": "a", "_partition": "p0"}
    lines = replay_steps(
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
