"""Wrong pipelines that Python makes: what is wrong with their parts is said when they are put together, and
what sources and columns have to do with it when the job is made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from watersmeet.errors import WatersmeetError
from watersmeet.pipelines import Join, Lookup, Pipeline, Source, Target, Transform, Window

COLUMNS = {"ad": "BIGINT", "at": "BIGINT"}


def source(name: str, **more: Any) -> Source:
    return Source(name=name, **{"connection": {"connector": "memory"}, "columns": COLUMNS, **more})


ITEMS = source("items", columns={"id": "BIGINT", "title": "STRING"})
JOIN: dict[str, Any] = {
    "left_source": "l",
    "right_source": "r",
    "left_keys": "ad",
    "right_keys": "ad",
    "time_window": 5,
    "event_time_column": "at",
}


def build_pipeline(
    *sources: Source, transform: Any = None, connection: dict[str, Any] | None = None, **join: Any
) -> Pipeline:
    """A join of two streams, with another part."""
    return Pipeline(
        name="wrong",
        sources=sources or (source("l"), source("r")),
        transform=[Transform(join=Join(**{**JOIN, **join}))] if transform is None else transform,
        target=Target(connection=connection or {"connector": "memory"}),
    )


def with_lookup(**lookup: Any) -> Pipeline:
    asked = {"source": "items", "keys": {"left_ad": "id"}, **lookup}
    step = Transform(join=Join(**JOIN), lookups={"items": Lookup(**asked)})
    return build_pipeline(source("l"), source("r"), ITEMS, transform=[step])


def build_count_pipeline(**window: Any) -> Pipeline:
    asked = {"event_time_column": "at", "size": 5, "aggregates": {"n": "count(*)"}, **window}
    return build_pipeline(source("l"), transform=[Transform(window=Window(**asked))])


def grouped_join(aggregates: dict[str, str]) -> Pipeline:
    window = Window(event_time_column="left_at", size=5, aggregates=aggregates)
    return build_pipeline(transform=[Transform(join=Join(**JOIN)), Transform(window=window)])


WRONG = {
    "no sources": (
        lambda: Pipeline(
            name="a", sources=[], transform=Transform(join=Join(**JOIN)), target=build_pipeline().target
        ),
        "sources is empty",
    ),
    "two of one name": (
        lambda: build_pipeline(source("l"), source("L"), source("r")),
        'two sources are named "L"',
    ),
    "a name that is none": (
        lambda: build_pipeline(source("l/x"), source("r"), left_source="l/x"),
        'name is "l/x"',
    ),
    "no transform": (lambda: build_pipeline(transform=[]), "transform is empty"),
    "a transform of nothing": (lambda: build_pipeline(transform=[Transform()]), "transform is empty"),
    "a column of no name": (
        lambda: build_pipeline(source("l", columns={**COLUMNS, " ": "INT"}), source("r")),
        "is not a name that a column can have",
    ),
    "a column twice": (
        lambda: build_pipeline(source("l", columns={**COLUMNS, "AD": "INT"}), source("r")),
        "columns.AD is there twice",
    ),
    "no connector": (lambda: build_pipeline(source("l", connection={}), source("r")), 'has no "connector"'),
    "an option that is a list": (
        lambda: build_pipeline(connection={"connector": "file", "path": ["a", "b"]}),
        "path is ['a', 'b']",
    ),
    "a file of no name": (
        lambda: build_pipeline(connection={"connector": "postgres", "url": {"from_file": " "}}),
        "from_file is ' '",
    ),
    "a file that is not there": (
        lambda: build_pipeline(connection={"connector": "postgres", "url": {"from_file": "/no/such"}}),
        '"/no/such" cannot be read',
    ),
    "a file of nobody's home": (
        lambda: build_pipeline(
            connection={"connector": "postgres", "url": {"from_file": "~nobody-of-ours/no"}}
        ),
        '"~nobody-of-ours/no" cannot be read',
    ),
    "a variable of no name": (
        lambda: build_pipeline(connection={"connector": "file", "path": "out/${a b}"}),
        "does not name an environment variable: ${a b}",
    ),
    "no columns go out": (
        lambda: build_pipeline(output_left_columns=(), output_right_columns=()),
        "output_left_columns is empty",
    ),
    "a column goes out twice": (lambda: build_pipeline(output_left_columns=["ad", "Ad"]), 'has "ad" twice'),
    "names that meet": (
        lambda: build_pipeline(left_column_prefix="a_", right_column_prefix="a_"),
        "right_column_prefix",
    ),
    "a window of nothing": (lambda: build_count_pipeline(aggregates={}), "aggregates is empty"),
    "a window by a column that is not there": (
        lambda: build_count_pipeline(event_time_column="att"),
        '"l" has no column "att", which its event time names',
    ),
    "an aggregate of a name that is taken": (
        lambda: build_count_pipeline(group_by="ad", aggregates={"AD": "count(*)"}),
        "AD",
    ),
    "keys of a look-up that the rows have not": (
        lambda: with_lookup(keys={"ad": "id"}),
        'the rows have no column "ad"',
    ),
    "columns that the table has not": (
        lambda: with_lookup(columns=["name"]),
        '"items" has no column "name"',
    ),
    "a look-up whose columns are there": (
        lambda: with_lookup(column_prefix="left_", keys={"left_ad": "id"}, columns=["id"]),
        None,
    ),
    "an aggregate with a name": (
        lambda: build_count_pipeline(aggregates={"n": "count(*) AS m"}),
        "window.aggregates.n: expected an expression, not one with a name (AS …) (line 1, column 1)",
    ),
    "a column of the join that is not grouped by": (
        lambda: grouped_join({"n": "left_at + 1"}),
        'transform[1].window.aggregates.n: "left_at" is neither in GROUP BY',
    ),
    "an aggregate that is known by its place": (
        lambda: grouped_join({"m": "count(*)", "n": "first(left_at)"}),
        "transform[1].window.aggregates.n: first() is not supported",
    ),
    "a copy of another name": (
        lambda: build_pipeline().model_copy(update={"name": "../other"}),
        'name is "../other"',
    ),
    "a copy with other sources": (
        lambda: build_pipeline().model_copy(update={"sources": [source("l")]}),
        'transform.join.right_source: there is no source "r"',
    ),
    "a copy of a part": (
        lambda: Join(**JOIN).model_copy(update={"lag": 1}),
        "lag",
    ),
    "a look-up in the stream": (lambda: with_lookup(source="l", keys={"left_ad": "ad"}), "the stream itself"),
    "a query without the time": (
        lambda: build_pipeline(source("l", query="SELECT ad FROM l"), source("r")),
        'the source has no column "at", the event time',
    ),
    "a time that is none": (
        lambda: build_pipeline(source("l", query="SELECT ad, CAST(at AS STRING) AS at FROM l"), source("r")),
        '"at" is STRING and cannot be an event time',
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_invalid_parts_are_rejected_with_a_specific_message(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make, message = WRONG[what]
    if message is None:
        assert make().job().plan.queries
        return
    with pytest.raises(WatersmeetError) as raised:
        make().job()
    assert message in str(raised.value)
    assert list(tmp_path.iterdir()) == []


def test_a_copy_is_what_it_is_made_of_and_so_is_its_hash():
    one, other = (
        build_pipeline(connection=connection)
        for connection in (
            {"connector": "file", "path": "o", "format": "json"},
            {"format": "json", "path": "o", "connector": "file"},
        )
    )
    assert one == other == one.model_copy() == one.model_copy(deep=True)
    assert {one: "found"}[other.model_copy(deep=True)] == "found"
    late = one.model_copy(update={"sources": [source("l", lag=5), source("r")]})
    assert late != one
    assert [of.lag for of in late.sources] == [5, 0]
    assert late.model_copy(update={"sources": one.sources}) == one
