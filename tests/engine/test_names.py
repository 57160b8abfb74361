"""Columns and inputs of users may be named like those of the engine once were: every query gives the rows
that it gives under plain names. The few names that are reserved are refused."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from tests.support.effort import at_effort
from watersmeet.errors import PlanError, SeveralErrors, SqlError
from watersmeet.parser.case_file import case_job
from watersmeet.parser.statements import parse_job
from watersmeet.plan.planner import plan_job
from watersmeet.runtime.local.replay import replay_case

NAMES = (
    "_flag", "_broken", "_diff", "_tick", "_control", "_tag", "_row", "_corrupt", "_parsed", "_0_0", "_id",
    "#slot",
    "#order:t", "#least:t", "#null:t", "#came", "#key1", "#expr1", "#rows", "#time", "#window", "#1",
    "n#decimal2", "a.b", "c0", "key", "value", "partition", "l/t", 'with "quotes"', "tick`s", "with space",
    "ünï", "x__ws_y", "alias", "select",
)  # fmt: skip

QUERIES = {
    "left": (
        "SELECT {l}.*, {r}.{n} AS m FROM {l} LEFT JOIN {r} ON upper({l}.{k}) = {r}.{k}"
        " AND {r}.{t} BETWEEN {l}.{t} AND {l}.{t} + 5 AND {l}.{n} * {r}.{n} < 40"
    ),
    "band": (
        "SELECT {l}.{s}, {r}.{t} AS u FROM {l} FULL JOIN {r} ON {r}.{t} BETWEEN {l}.{t} AND {l}.{t} + 5"
        " AND {r}.{n} BETWEEN {l}.{n} - 0.5 AND {l}.{n} + 1.25"
    ),
    "asof": (
        "SELECT {l}.{t}, {r}.{t} AS u, {r}.{s} AS v FROM {l} LEFT ASOF JOIN {r}"
        " MATCH_CONDITION ({l}.{t} >= {r}.{t}) ON {l}.{k} = {r}.{k}"
    ),
    "chain": (
        "SELECT {l}.{k}, {r}.{n} AS m, z.{t} AS w FROM {l} LEFT JOIN {r} ON {l}.{k} = {r}.{k}"
        " AND {r}.{t} BETWEEN {l}.{t} AND {l}.{t} + 5 LEFT JOIN r z ON z.{k} = {l}.{k}"
        " AND z.{t} BETWEEN {l}.{t} AND {l}.{t} + 7 AND z.{n} + {l}.{n} > 3"
    ),
    "windows": (
        "SELECT window_start, {k}, count(*) AS c, min_by({s}, {t}) AS f, sum({n}) AS x"
        " FROM TABLE(TUMBLE(TABLE {l}, DESCRIPTOR({t}), 4)) GROUP BY window_start, window_end, {k}"
    ),
    "union": (
        "SELECT x.{k}, {r}.{n} AS m FROM (SELECT {t}, {k}, {n} FROM {l} UNION ALL SELECT {t}, {k}, {n} + 1"
        " FROM {r}) x JOIN {r} ON {r}.{t} BETWEEN x.{t} AND x.{t} + 2"
    ),
}
PLAIN = {"t": "t", "k": "k", "n": "n", "s": "s", "l": "l", "r": "r"}


def quote_name(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def case_of(query: str, names: dict[str, str], *, changelog: bool = False) -> dict[str, Any]:
    types = {"t": "BIGINT", "k": "STRING", "n": "INT", "s": "STRING"}
    columns = {names[role]: kind for role, kind in types.items()}
    rows = [
        (1, "A", 3, "p"),
        (2, "b", 4, "q"),
        (4, "A", 3, "r"),
        (4, "B", 5, "s"),
        (9, "A", 2, "t"),
        (20, "A", 1, "u"),
    ]
    steps = [
        {
            "rows": [
                [side, dict(zip(columns, row, strict=True))]
                for row in rows[low : low + 2]
                for side in ("l", "r")
            ]
        }
        for low in (0, 2, 4)
    ]
    text = QUERIES[query].format(**{role: quote_name(name) for role, name in names.items()})
    for side in ("l", "r"):  # an input has the declared name, and the alias under test
        alias = quote_name(names[side])
        text = text.replace(f"FROM {alias} ", f"FROM {side} {alias} ").replace(
            f"JOIN {alias} ", f"JOIN {side} {alias} "
        )
        text = text.replace(f"TABLE {alias}", f"TABLE {side}").replace(f"FROM {alias})", f"FROM {side})")
    stream = {"columns": columns, "time": {names["t"]: {"lag": 0}}}
    options = {"output_mode": "changelog"} if changelog else {}
    return {
        "case": query,
        "streams": {"l": stream, "r": stream},
        "query": text,
        "options": options,
        "steps": [*steps, {"end": True}] if not changelog else steps,
    }


def replay_rows_by_step(case: dict[str, Any], **how: Any) -> list[Counter[str]]:
    """Per step the rows that come out, without the names of their columns."""
    outputs = replay_case(case, **how)
    assert not [output["error"] for output in outputs if "error" in output], case["query"]
    assert sum(len(output["rows"]) for output in outputs) > 2
    return [Counter(json.dumps(list(row.values())) for row in output["rows"]) for output in outputs]


STEP = at_effort(quick=6, full=1)
"""Six names are used at a time, so that quick effort uses each once per query."""


def hostile(place: int) -> dict[str, str]:
    """Six names, other ones for every place."""
    found = dict(zip(PLAIN, (NAMES[(place + step) % len(NAMES)] for step in range(6)), strict=True))
    return {role: f"{name}_" if role in "lr" and name == "#1" else name for role, name in found.items()}


@pytest.mark.parametrize("query", QUERIES)
def test_names_do_not_change_the_rows(query):
    plain = replay_rows_by_step(case_of(query, PLAIN))
    first = list(QUERIES).index(query) % STEP  # so that names have other roles in another query
    for place in range(first, len(NAMES), STEP):
        assert replay_rows_by_step(case_of(query, hostile(place)), partitions=2) == plain, hostile(place)


def test_names_do_not_change_the_rows_in_changelog_mode():
    plain = replay_rows_by_step(case_of("left", PLAIN, changelog=True))
    for place in range(0, len(NAMES), STEP):
        names = hostile(place)
        case = case_of("left", names, changelog=True)
        if {"_diff", "_tick"} & {names[role] for role in "tkns"}:
            with pytest.raises((PlanError, SeveralErrors), match=r'"_(diff|tick)".* is reserved'):
                plan_job(case_job(case))
        else:
            assert replay_rows_by_step(case) == plain, names


@pytest.mark.parametrize("name", ["__ws_flag", "__WS_x", "__ws_"])
def test_names_like_those_of_the_engine_are_refused(name):
    for role in PLAIN:
        with pytest.raises(SqlError, match="names that begin with __ws_ are reserved") as raised:
            case_job(case_of("left", {**PLAIN, role: name}))
        assert raised.value.code == "reserved-name"


def test_an_alias_like_that_of_a_join_is_refused():
    with pytest.raises(PlanError, match='alias "#1" is reserved'):
        plan_job(case_job(case_of("left", {**PLAIN, "r": "#1"})))


def test_columns_that_dots_make_one_are_refused():
    columns = "(t BIGINT, `b.k` INT, k INT, WATERMARK FOR t AS t) WITH ('connector' = 'memory');"
    job = parse_job(
        f"CREATE TABLE x {columns} CREATE TABLE y {columns}"
        "SELECT 1 AS one FROM x AS a JOIN y AS `a.b` ON a.t = `a.b`.t AND a.`b.k` = `a.b`.k"
    )
    with pytest.raises(PlanError, match=r'"b.k" of "a" and .*"k" of "a.b" both have the name'):
        plan_job(job)


JOB = """
CREATE TABLE l ({t} TIMESTAMP, {k} STRING, {n} INT, {s} STRING, WATERMARK FOR {t} AS {t})
  WITH ('connector' = 'file', 'path' = '{path}/l', 'format' = '{format}');
CREATE TABLE r ({t} TIMESTAMP, {k} STRING, {n} INT, {s} STRING, WATERMARK FOR {t} AS {t})
  WITH ('connector' = 'file', 'path' = '{path}/l', 'format' = '{format}');
CREATE TABLE out WITH ('connector' = 'memory');
INSERT INTO out SELECT {l}.*, {r}.{n} + 1 AS m FROM l {l} LEFT JOIN r {r} ON upper({l}.{k}) = {r}.{k}
  AND {r}.{t} BETWEEN {l}.{t} AND {l}.{t} + INTERVAL '5' SECOND AND {l}.{n} * {r}.{n} < 40 WHERE {l}.{n} > 0;
"""


@pytest.mark.full
@pytest.mark.spark
def test_names_say_nothing_on_spark(spark, tmp_path):
    from watersmeet.runtime.spark.job.run import build_outputs, run
    from watersmeet.runtime.spark.job.settings import RunSettings
    from watersmeet.sinks.memory import MemorySink

    def rows(names: dict[str, str], number: int, wanted: str) -> Counter[str]:
        folder = tmp_path / str(number)
        (folder / "l").mkdir(parents=True)
        at = "2024-03-01T00:00:0{}Z"
        records = [(at.format(2), "A", 3, "p"), (at.format(4), "a", 4, "q"), (at.format(5), "B", 5, "r")]
        given = [names[role] for role in "tkns"]
        lines = [json.dumps(dict(zip(given, record, strict=True)), ensure_ascii=False) for record in records]
        (folder / "l" / "1.json").write_text("\n".join(lines) + "\n")
        if wanted == "parquet":
            schema = ", ".join(
                f"{quote_name(name)} {kind}"
                for name, kind in zip(given, ("TIMESTAMP", "STRING", "INT", "STRING"), strict=True)
            )
            spark.read.schema(schema).json(str(folder / "l")).write.parquet(str(folder / "p"))
            (folder / "l").rename(folder / "j")
            (folder / "p").rename(folder / "l")
        MemorySink.clear()
        job = parse_job(
            JOB.format(path=folder, format=wanted, **{r: quote_name(name) for r, name in names.items()})
        )
        plan = plan_job(job)
        settings = RunSettings(str(folder / "state"), until_caught_up=True, finish=True, partitions=2)
        run(spark, plan, settings, build_outputs(job, plan, settings))
        return Counter(str(list(row.values())) for row in MemorySink.rows("out"))

    plain = rows(PLAIN, 0, "json")
    assert plain.total() == 3
    for number, place in enumerate(range(0, 24, 4), 1):
        assert rows(hostile(place), number, "json" if number % 2 else "parquet") == plain, hostile(place)
