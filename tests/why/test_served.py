"""What the page's questions are answered with, as far as it needs no run."""

from __future__ import annotations

import io
import json
import os
import resource
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from watersmeet.cli.why import page_answers
from watersmeet.why.answer import Answer, Fate

TEXT = """
CREATE TABLE a (t BIGINT, k STRING, WATERMARK FOR t AS t - 5) WITH ('connector' = 'memory');
CREATE TABLE b (t BIGINT, k STRING, WATERMARK FOR t AS t - 5) WITH ('connector' = 'memory');
CREATE SINK out WITH ('connector' = 'memory');
INSERT INTO out SELECT x.t FROM a x JOIN b ON upper(x.k) = b.k AND b.t BETWEEN x.t AND x.t + 9;
"""


def build_request(folder: Path, question: dict[str, Any] | None, text: str = TEXT) -> dict[str, Any]:
    return {
        "question": question,
        "text": text,
        "named": "job.sql",
        "checkpoint": str(folder),
        "overrides": {},
        "most_s": 60,
        "most_bytes": 1 << 31,
    }


def test_inputs_are_listed_with_their_key_names(tmp_path: Path) -> None:
    told = page_answers.answer_request(build_request(tmp_path, None))["inputs"]
    assert [(one["query"], one["input"], one["keys"]) for one in told] == [
        ("out", "x", ["UPPER(k)"]),
        ("out", "b", ["k"]),
    ]
    assert told[0]["columns"] == ["t", "k"]
    assert told[0]["times"] == ["t"]


@pytest.mark.parametrize(
    ("question", "text", "said"),
    [
        ({"input": "x"}, TEXT, "there is no state in"),
        ({"input": "y"}, TEXT, 'no query has an input "y"'),
        ({"input": "x", "keys": ["1", "2"]}, TEXT, "does not match a key"),
        ({"input": "x"}, "SELEC", "SELEC"),
        (None, "SET trigger = '1s';", "there is nothing to run"),
    ],
)
def test_problems_use_the_messages_of_the_command(
    tmp_path: Path, question: Any, text: str, said: str
) -> None:
    assert said in page_answers.answer_request(build_request(tmp_path, question, text))["problem"]


def test_what_is_quoted_of_rows_is_cut(monkeypatch: Any, tmp_path: Path) -> None:
    row = {"k": "x" * 1_000_000, "s": "a\x00\x1b[1m</script>", "n": None, "f": 1.5, "l": ["y" * 501]}
    fate = Fate(row, "a", "here", "late", "late")
    monkeypatch.setattr(page_answers, "answer_question", lambda *given: [Answer("q", "x", (1, 2), [fate])])
    (answer,) = page_answers.answer_request(build_request(tmp_path, {"input": "x"}))["answers"]
    told = answer["rows"][0]["row"]
    assert told["k"] == "x" * 500 + "… (999,500 more characters)"
    assert told["l"] == ["y" * 500 + "… (1 more character)"]
    assert told["s"] == "a\\x00\\x1b[1m</script>"
    assert (told["n"], told["f"]) == (None, 1.5)


def test_the_process_is_limited_and_says_nothing_but_the_answer(monkeypatch: Any, tmp_path: Path) -> None:
    """Its calls are looked at here: they would limit the tests."""
    limits: dict[str, Any] = {}
    monkeypatch.setattr(os, "nice", lambda by: limits.update(nice=by))
    monkeypatch.setattr(signal, "alarm", lambda seconds: limits.update(seconds=seconds))
    monkeypatch.setattr(resource, "setrlimit", lambda what, most: limits.update({what: most}))
    monkeypatch.setattr(Path, "write_text", lambda path, text: limits.update({str(path): text}))
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(build_request(tmp_path, None))))
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    page_answers.main()
    assert len(json.loads(out.getvalue())["inputs"]) == 2
    assert limits == {
        "nice": 10,
        "seconds": 65,
        resource.RLIMIT_DATA: (1 << 31, 1 << 31),
        "/proc/self/oom_score_adj": "1000",
    }
    monkeypatch.setattr(page_answers, "answer_question", _no_memory)
    assert page_answers.answer_request(build_request(tmp_path, {"input": "x"})) == {"no_memory": True}


def _no_memory(*_: Any) -> list[Answer]:
    raise MemoryError
