"""`replay`: lines, checks and exit statuses; the engine is a fake, so that only the command is tested."""

from __future__ import annotations

import json
import sys
from types import ModuleType

import pytest

GOOD = {"case": "good", "query": "SELECT 1", "steps": [{}], "expect": [{"rows": [{"a": 1}]}]}
REFUSED = {"case": "refused", "query": "SELECT 1", "steps": [], "expect": {"error": "without limit"}}
LINE = {"case": "good", "step": 0, "rows": [{"a": 1}], "watermarks": {}, "late": [], "state": {}}


@pytest.fixture
def engines(monkeypatch):
    """Outputs per case name; and which engine was asked, with how many partitions."""
    outputs = {"good": [LINE], "refused": [{"case": "refused", "error": "state would grow without limit"}]}
    asked = []
    for name in ("watersmeet.runtime.local", "watersmeet.runtime.spark.replay"):

        def replay_case(case, partitions=1, name=name):
            asked.append((name, partitions))
            return outputs[case["case"]]

        module = ModuleType(name)
        module.replay_case = replay_case
        monkeypatch.setitem(sys.modules, name, module)
    return outputs, asked


@pytest.fixture
def case_file(tmp_path):
    def write(*cases):
        file = tmp_path / "case.json"
        file.write_text(json.dumps(list(cases) if len(cases) > 1 else cases[0]))
        return file

    return write


def test_one_line_per_case_and_step(watersmeet, engines, case_file):
    found = watersmeet("replay", case_file(GOOD))
    assert found.status == 0
    assert [json.loads(line) for line in found.out.splitlines()] == [LINE]


def test_a_refused_case_is_one(watersmeet, engines, case_file):
    found = watersmeet("replay", case_file(REFUSED))
    assert found.status == 1
    assert json.loads(found.out) == {"case": "refused", "error": "state would grow without limit"}


def test_a_refused_case_that_was_expected_passes_the_check(watersmeet, engines, case_file):
    found = watersmeet("replay", case_file(GOOD, REFUSED), "--check")
    assert found.status == 0
    assert "2 of 2 cases as expected" in found.err


def test_a_difference_is_printed_and_one(watersmeet, engines, case_file):
    engines[0]["good"] = [{**LINE, "rows": [{"a": 2}]}]
    found = watersmeet("replay", case_file(GOOD), "--check")
    assert found.status == 1
    assert 'missing: {"a": 1}' in found.err
    assert "0 of 1 cases as expected" in found.err


def test_engine_and_partitions_are_passed_on(watersmeet, engines, case_file):
    watersmeet("replay", case_file(GOOD), "--engine", "spark", "--partitions", "3")
    watersmeet("replay", case_file(GOOD))
    assert engines[1] == [("watersmeet.runtime.spark.replay", 3), ("watersmeet.runtime.local", 1)]


WRONG = {
    "empty.json": ("", "is not JSON"),
    "text.json": ("SELECT 1", "is not JSON"),
    "bytes.json": (b"\xff\xfe\x00PAR1", "it is not UTF-8 text"),
    "deep.json": ("[" * 100_000, "it is nested too deeply"),
    "none.json": ("[]", "has no cases: its list is empty"),
    "null.json": ("null", "it is null, not an object"),
    "number.json": ("7", "it is a number or a truth, not an object"),
    "lists.json": ("[[]]", "case 1 is a list, not an object"),
    "other.json": ('{"name": "x"}', "it: case: is missing; query: is missing; steps: is missing"),
    "second.json": (json.dumps([GOOD, {**GOOD, "steps": {}}]), 'case "good": steps: '),
    "query.json": (json.dumps({**GOOD, "query": ["SELECT 1"]}), 'case "good": query: '),
    "row.json": (json.dumps({**GOOD, "steps": [{}, {"rows": [["l"]]}]}), "steps[1].rows[0]"),
    "diff.json": (json.dumps({**GOOD, "steps": [{"rows": [["l", {}, "x"]]}]}), "steps[0].rows[0][2]"),
    "lag.json": (
        json.dumps({**GOOD, "streams": {"l": {"columns": {"t": "INT"}, "time": ["t"]}}}), "streams.l.time: "
    ),
    "expect.json": (json.dumps({**GOOD, "expect": [{"rows": {}}]}), "expect[0].rows: "),
    "misspelt.json": (
        json.dumps({**GOOD, "expect": [{"row": []}, {"watermark": {}}]}),
        "expect[0].row: there is no such entry; expect[1].watermark: there is no such entry",
    ),
    "late.json": (
        json.dumps({**GOOD, "expect": [{"late": [{"stream": "l", "row": {}, "at": 1}]}]}),
        "expect[0].late[0].at: ",
    ),
    "refused.json": (json.dumps({**REFUSED, "expect": {"error": "x", "code": "y"}}), "expect.code: "),
    "step.json": (json.dumps({**GOOD, "steps": [{"advanced": {}}]}), "steps[0].advanced: there is no"),
    "clock.json": ('{"case": "c", "query": "q", "steps": [{"clock": 1e999}]}', "steps[0].clock"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("flags", [[], ["--check"], ["--trace"]], ids=" ".join)
def test_invalid_case_file_is_rejected_with_a_hint(watersmeet, tmp_path, name, flags):
    text, said = WRONG[name]
    (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    found = watersmeet("replay", tmp_path / name, *flags)
    assert (found.status, found.out) == (2, "")
    first, hint = found.err.splitlines()
    assert first.startswith("SpecError[")
    assert name in first
    assert said in first
    assert hint.startswith("Hint: ")


def test_a_directory_is_no_case_file(watersmeet, tmp_path):
    found = watersmeet("replay", tmp_path)
    assert found.status == 2
    assert f'cannot read "{tmp_path}": Is a directory' in found.err


def test_broken_files_are_messages(watersmeet, tmp_path):
    (tmp_path / "x.json").write_text("{")
    for name in ("x.json", "absent.json"):
        found = watersmeet("replay", tmp_path / name)
        assert found.status == 2
        assert "Traceback" not in found.err


def test_check_distinguishes_waiting_cases_from_failures(watersmeet, engines, case_file):
    """By the code of the refusal alone, and only where rows are expected."""
    waiting = {**GOOD, "case": "waiting"}
    engines[0]["waiting"] = [{"case": "waiting", "error": "PlanError[not-yet]: no such join\nHint: later"}]
    found = watersmeet("replay", case_file(GOOD, waiting), "--check")
    assert found.status == 0
    assert "waiting: waiting: no such join" in found.err
    assert "1 of 2 cases as expected, 1 waiting for what is not there yet" in found.err
    assert watersmeet("replay", case_file(GOOD, waiting)).status == 1, "without --check it is refused"
    for error in (
        "PlanError[unbounded-state]: something [not-yet]: is not bounded",
        "PlanError[not-yet]: no such join\nPlanError[unbounded-state]: nor is it bounded",
    ):
        engines[0]["waiting"] = [{"case": "waiting", "error": error}]
        assert watersmeet("replay", case_file(waiting), "--check").status == 1
    engines[0]["waiting"] = [{**LINE, "error": "EngineError[not-yet]: in a step"}]
    assert watersmeet("replay", case_file(waiting), "--check").status == 1
    engines[0]["refused"] = [{"case": "refused", "error": "PlanError[not-yet]: no such join"}]
    assert watersmeet("replay", case_file(REFUSED), "--check").status == 1


@pytest.mark.parametrize(
    ("expect", "steps", "said"),
    [
        ([{"rows": [{"a": 1}]}], 1, None),
        ([{"rows": [{"a": 1}]}, {}], 2, None),
        ([{}, {}], 2, "without expectations"),
        ([{"rows": [{"a": 1}]}], 2, "without expectations"),
        ([], 2, "without expectations"),
        (None, 2, "without expectations"),
    ],
)
def test_cases_that_may_differ_unseen_are_counted(watersmeet, engines, case_file, expect, steps, said):
    engines[0]["good"] = [{**LINE, "step": step} for step in range(steps)]
    found = watersmeet("replay", case_file({**GOOD, "steps": [{}] * steps, "expect": expect}), "--check")
    more = " (1 without expectations for all steps)" if said else ""
    assert (found.status, found.err) == (0, f"1 of 1 cases as expected{more}\n")


@pytest.mark.parametrize("expect", [[], None, [{"rows": [{"a": 1}]}]])
def test_a_failure_that_nothing_is_expected_of_is_a_difference(watersmeet, engines, case_file, expect):
    case = {**GOOD, "steps": [{}, {}], "expect": expect}
    engines[0]["good"] = [LINE, {"case": "good", "step": 1, "error": "EngineError[x]: no"}]
    found = watersmeet("replay", case_file(case), "--check")
    assert (found.status, "good, step 1: failed: EngineError[x]: no" in found.err) == (1, True)
    engines[0]["good"] = [{"case": "good", "error": "PlanError[x]: no"}]
    assert watersmeet("replay", case_file(case), "--check").status == 1
