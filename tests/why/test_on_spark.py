"""Random joins run on Spark, from files: `why` gives every row the fate that a nested-loop oracle sees."""

from __future__ import annotations

import asyncio
import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

from tests.support.fates import ROW, fates
from tests.why.test_random_fates import ALL, differences
from watersmeet.cli.main import main
from watersmeet.cli.why.command import answer_question
from watersmeet.page.questions import JobReference, QuestionRunner
from watersmeet.why.question import Question

pytestmark = pytest.mark.spark

QUERIES, TICKS = 10, 4
COLUMNS = {"t": "BIGINT", "k": "STRING", "v": "BIGINT", ROW: "BIGINT"}
KINDS = ("FULL JOIN", "LEFT ANTI JOIN", "JOIN", "LEFT SEMI JOIN", "LEFT JOIN", "RIGHT JOIN")


def random_query(rng: random.Random, number: int) -> str:
    kind = KINDS[number % len(KINDS)]
    low, high = sorted(rng.sample(range(-6, 9), 2))
    conditions = [f"r.t BETWEEN l.t + {low} AND l.t + {high}".replace("+ -", "- ")]
    conditions += rng.sample(["l.k = r.k", "l.v + r.v > 3", "r.v > 0", "l.v <> r.v"], rng.randint(0, 2))
    columns = f"l.{ROW} AS x" if "SEMI" in kind or "ANTI" in kind else f"l.{ROW} AS x, r.{ROW} AS y"
    return f"SELECT {columns} FROM l {kind} r ON {' AND '.join(conditions)}"


def random_ticks(rng: random.Random) -> list[dict[str, list[dict[str, Any]]]]:
    """Per tick the rows of both streams: out of order, some late, some without a time or a key."""
    ticks, number = [], 0
    for tick in range(TICKS):
        rows: dict[str, list[dict[str, Any]]] = {"l": [], "r": []}
        for name in rows:
            for _ in range(8):
                is_timeless = number == 0 or rng.random() < 0.05
                time = None if is_timeless else 8 * tick + rng.randint(-9, 6)
                key = None if rng.random() < 0.1 else rng.choice("ab")
                rows[name].append({"t": time, "k": key, "v": rng.randint(0, 4), ROW: number})
                number += 1
        ticks.append(rows)
    return ticks


@pytest.mark.full
def test_why_gives_rows_of_random_joins_the_fate_that_the_oracle_sees(
    spark: Any, tmp_path: Path, monkeypatch: Any, seed: int
) -> None:
    rng = random.Random(seed)
    lags = {"l": rng.choice([0, 2, 4]), "r": rng.choice([0, 2, 4])}
    queries = [random_query(rng, number) for number in range(QUERIES)]
    ticks = random_ticks(rng)
    text = ""
    for name, lag in lags.items():
        (tmp_path / name).mkdir()
        columns = ", ".join(f"{column} {kind}" for column, kind in COLUMNS.items())
        text += f"CREATE MAPPING {name} ({columns}, WATERMARK FOR t AS t - {lag}) TYPE File OPTIONS ("
        text += f"'path' = '{name}', 'format' = 'json', 'maxFilesPerTrigger' = '1');\n"
        for at, tick in enumerate(ticks):
            file = tmp_path / name / f"{at}.json"
            file.write_text("".join(json.dumps(row) + "\n" for row in tick[name]))
            os.utime(file, (1_700_000_000 + at, 1_700_000_000 + at))
    for number, query in enumerate(queries):
        text += f"CREATE SINK q{number} WITH ('connector' = 'file', 'path' = 'out/q{number}', "
        text += f"'format' = 'json');\nINSERT INTO q{number} {query};\n"
    (tmp_path / "job.sql").write_text(text)
    monkeypatch.chdir(tmp_path)
    assert main(["run", "job.sql", "--json", "--until-caught-up"]) == 0

    got = {
        (answer.query, alias): answer
        for alias in lags
        for answer in answer_question(
            text, Path("job.sql"), Question(alias, most=ALL), None, Path(".watersmeet/job")
        )
    }
    asker = QuestionRunner(JobReference(text, "job.sql", ".watersmeet/job"))
    by_page = asyncio.run(asker.told({"input": "L", "query": "Q3"}, asyncio.Event().wait))["answers"]
    (answer,) = answer_question(
        text, Path("job.sql"), Question("l", query="q3"), None, Path(".watersmeet/job")
    )
    assert by_page == json.loads(json.dumps([answer.document()]))
    seen = set()
    for number, query in enumerate(queries):
        streams = {name: {"columns": COLUMNS, "time": {"t": {"lag": lag}}} for name, lag in lags.items()}
        steps = [{"rows": [[name, row] for name in lags for row in tick[name]]} for tick in ticks]
        known = fates({"case": f"q{number}", "streams": streams, "query": query, "steps": steps})
        for alias, other in (("l", "r"), ("r", "l")):
            answer = got[f"q{number}", alias]
            assert answer.ticks == (1, TICKS)
            assert not answer.notes
            assert len(answer.fates) == sum(len(tick[alias]) for tick in ticks)
            for fate in answer.fates:
                problems = differences(fate, known[alias, fate.row[ROW]], other)
                assert not problems, (query, alias, fate, known[alias, fate.row[ROW]], problems)
                seen.add(fate.what)
    assert {"joined", "padded", "late", "retained", "met", "null_time"} <= seen
