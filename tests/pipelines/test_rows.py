"""Rows of pipelines: computed by hand, by a plain loop, and the same from TOML and from Python."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from tests.support.effort import at_effort
from watersmeet import local
from watersmeet.pipelines import Join, Lookup, Pipeline, Source, Target, Transform, Window, pipeline

MINUTE = 60_000


def source(name: str, lag: int = 0, kind: str = "BIGINT", **more: Any) -> Source:
    columns = {"ad": "BIGINT", "user": "STRING", "at": kind, **more}
    return Source(name=name, connection={"connector": "memory"}, columns=columns, lag=lag)


def clicked(lag: int = 0, kind: str = "BIGINT", **join: Any) -> Pipeline:
    """Clicks and impressions within five minutes, from either end."""
    asked = {
        "left_source": "impressions",
        "right_source": "clicks",
        "left_keys": ["ad", "user"],
        "right_keys": ["ad", "user"],
        "event_time_column": "at",
        "time_window": 5 * MINUTE,
        **join,
    }
    return Pipeline(
        name="clicked",
        sources=[source("impressions", lag, kind), source("clicks", lag, kind)],
        transform=[Transform(join=Join(**asked))],
        target=Target(connection={"connector": "memory"}),
    )


def open_job(pipeline: Pipeline) -> Any:
    """In this process; what comes from TOML does the same, always."""
    again = Pipeline.from_toml(pipeline.to_toml())
    assert again == pipeline
    return local.job(again.job().description)


def build_row(ad: int, at: Any, user: str = "u") -> dict[str, Any]:
    return {"ad": ad, "user": user, "at": at}


def push_and_tick(
    job: Any, impressions: list[Any] = (), clicks: list[Any] = ()
) -> list[tuple[Any, Any, Any]]:
    job.push("impressions", list(impressions))
    job.push("clicks", list(clicks))
    rows = job.tick().table.to_pylist()
    return sorted(((row["left_ad"], row["left_at"], row["right_at"]) for row in rows), key=str)


def test_ends_are_in_and_lengths_are_milliseconds():
    edge = 5 * MINUTE
    job = open_job(clicked())
    clicks = [
        build_row(1, at) for at in (10**6 - edge - 1, 10**6 - edge, 10**6, 10**6 + edge, 10**6 + edge + 1)
    ]
    assert push_and_tick(job, [build_row(1, 10**6)], clicks) == [
        (1, 10**6, 10**6), (1, 10**6, 10**6 + edge), (1, 10**6, 10**6 - edge),
    ]  # fmt: skip


def test_delta_is_right_less_left():
    job = open_job(clicked(time_window=None, min_delta="1 millisecond", max_delta="3 milliseconds"))
    assert push_and_tick(job, [build_row(1, 10)], [build_row(1, at) for at in range(7, 15)]) == [
        (1, 10, 11), (1, 10, 12), (1, 10, 13),
    ]  # fmt: skip


def test_timestamp_bounds_are_exact_to_the_millisecond():
    job = open_job(clicked(kind="TIMESTAMP", time_window=None, min_delta="0 seconds", max_delta="5 minutes"))
    job.push("impressions", [build_row(1, "2024-01-01T00:00:00")])
    clicks = [
        "2023-12-31T23:59:59.999",
        "2024-01-01T00:00:00",
        "2024-01-01T00:05:00",
        "2024-01-01T00:05:00.001",
    ]
    job.push("clicks", [build_row(1, at) for at in clicks])
    rows = job.tick().table.to_pylist()
    assert sorted(row["right_at"].isoformat()[11:19] for row in rows) == ["00:00:00", "00:05:00"]


def test_all_columns_go_out_with_prefixes_and_both_keys_count():
    job = open_job(clicked())
    job.push("impressions", [build_row(1, 5), build_row(1, 5, "v")])
    job.push("clicks", [build_row(1, 6), build_row(2, 6)])
    (row,) = job.tick().table.to_pylist()
    assert row == {
        "left_ad": 1, "left_user": "u", "left_at": 5, "right_ad": 1, "right_user": "u", "right_at": 6,
    }  # fmt: skip


def test_late_rows_are_dropped_below_the_horizon_and_not_above():
    """W = 1,000,000; reach = 300,000: 699,999 is late, 700,000 is not."""
    job = open_job(clicked(how="left", lateness="join"))
    assert push_and_tick(job, [build_row(9, 10**6)], [build_row(9, 10**6)]) == [(9, 10**6, 10**6)]
    assert push_and_tick(
        job, [build_row(1, 699_999), build_row(2, 700_000)], [build_row(2, 700_001), build_row(1, 700_001)]
    ) == [(2, 700_000, 700_001)]
    assert push_and_tick(job, [], [build_row(3, 650_000)]) == []
    counts = job.driver.manifest.queries["memory"].account
    assert (counts["impressions"]["late"], counts["clicks"]["late"]) == (1, 1)


@pytest.mark.parametrize("more", [0, 120_000])
def test_pads_wait_for_the_allowed_lateness(more):
    """An impression of 0 is kept until W passes reach + L, and padded then; until then a click may come."""
    lateness = {"allowed_lateness": more} if more else {}
    kept_until = 5 * MINUTE + more
    job = open_job(clicked(how="left", lateness="join", **lateness))
    assert push_and_tick(job, [build_row(1, 0), build_row(2, 0)], [build_row(9, 0)]) == []
    assert push_and_tick(job, [build_row(8, kept_until)], [build_row(8, kept_until - 1)]) == [
        (8, kept_until, kept_until - 1)
    ]
    assert push_and_tick(job, [], [build_row(8, kept_until)]) == [
        (8, kept_until, kept_until)
    ]  # t + reach + L < W is not yet
    assert push_and_tick(job, [], [build_row(1, 10)]) == [(1, 0, 10)]
    assert push_and_tick(job, [build_row(8, kept_until + 1)], [build_row(7, kept_until + 1)]) == [
        (2, 0, None), (8, kept_until + 1, kept_until),
    ][:1] + [
        (8, kept_until + 1, at) for at in (kept_until - 1, kept_until)
    ]  # fmt: skip


def test_random_rows_against_a_loop(seed):
    """As long as no row is late, all pairs and all pads come, whatever the ticks."""
    for number in range(seed, seed + at_effort(quick=8, full=25)):
        rng = random.Random(number)
        low, high = sorted((rng.randrange(-20, 20), rng.randrange(-20, 20)))
        how = rng.choice(["inner", "left", "right", "full"])
        lag = 1_000
        job = open_job(clicked(lag, how=how, time_window=None, min_delta=low, max_delta=high))
        sides: list[list[dict[str, Any]]] = [[], []]
        out: list[tuple[Any, ...]] = []
        for _ in range(5):
            pushed = [
                [
                    build_row(rng.randrange(3), rng.randrange(200), rng.choice("uv"))
                    for _ in range(rng.randrange(8))
                ]
                for _ in sides
            ]
            for side, rows in zip(sides, pushed, strict=True):
                side += rows
            job.push("impressions", pushed[0])
            job.push("clicks", pushed[1])
            out += [tuple(row.values()) for row in job.tick().table.to_pylist()]
        out += [tuple(row.values()) for row in job.tick(end=True).table.to_pylist()]
        assert Counter(out) == Counter(compute_expected_join(*sides, low, high, how)), number


def compute_expected_join(
    left: list[Any], right: list[Any], low: int, high: int, how: str
) -> list[tuple[Any, ...]]:
    rows, met = [], [set(), set()]
    for i, one in enumerate(left):
        for j, other in enumerate(right):
            if (one["ad"], one["user"]) == (other["ad"], other["user"]) and low <= other["at"] - one[
                "at"
            ] <= high:
                rows.append((*one.values(), *other.values()))
                met[0].add(i)
                met[1].add(j)
    nothing = (None, None, None)
    if how in ("left", "full"):
        rows += [(*one.values(), *nothing) for i, one in enumerate(left) if i not in met[0]]
    if how in ("right", "full"):
        rows += [(*nothing, *other.values()) for j, other in enumerate(right) if j not in met[1]]
    return rows


def test_what_leaves_the_join_looks_things_up():
    """Pads, too; as the table is in the tick in which they leave."""
    joined = clicked(how="left", time_window=None, min_delta="0 seconds", max_delta="10 milliseconds")
    columns = {"id": "BIGINT", "title": "STRING"}
    ads = Source(name="ads", connection={"connector": "memory"}, columns=columns)
    lookup = Lookup(source=ads, keys={"left_ad": "id"}, columns="title")
    named = Pipeline(
        name="named",
        sources=[*joined.sources, ads],
        transform=Transform(join=joined.transform[0].join, lookups={"ads": lookup}),
        target=joined.target,
    )
    job = open_job(named)

    def push_sources_and_tick(**pushed: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
        for name, rows in pushed.items():
            job.push(name, rows)
        rows = job.tick().table.to_pylist()
        return sorted((row["left_ad"], row["right_at"], row["title"]) for row in rows)

    shown_ads = [build_row(1, 5), build_row(2, 5), build_row(3, 5)]
    assert push_sources_and_tick(
        ads=[{"id": 1, "title": "one"}], impressions=shown_ads, clicks=[build_row(1, 8)]
    ) == [(1, 8, "one")]
    pads = push_sources_and_tick(
        ads=[{"id": 2, "title": "two"}], impressions=[build_row(9, 99)], clicks=[build_row(8, 99)]
    )
    assert pads == [(2, None, "two"), (3, None, None)]


def test_a_second_transform_counts_what_the_join_gives():
    joined = clicked(how="left", time_window=None, min_delta="0 seconds", max_delta="10 milliseconds")
    window = Window(
        event_time_column="left_at",
        size="100 milliseconds",
        group_by="left_ad",
        aggregates={"shown": "count(*)", "clicked": "count(right_at)"},
    )
    counted = Pipeline(
        name="counted",
        sources=list(joined.sources),
        transform=[*joined.transform, Transform(window=window)],
        target=joined.target,
    )
    job = open_job(counted)
    job.push(
        "impressions",
        [build_row(1, 5), build_row(1, 7), build_row(1, 99), build_row(1, 100), build_row(2, 3)],
    )
    job.push("clicks", [build_row(1, 8), build_row(1, 100), build_row(1, 111)])
    rows = [*job.tick().table.to_pylist(), *job.tick(end=True).table.to_pylist()]
    assert sorted(tuple(row.values()) for row in rows) == [
        (0, 100, 1, 3, 3), (0, 100, 2, 1, 0), (100, 200, 1, 1, 1),
    ]  # fmt: skip


def of(left, right):
    return Join(
        left_source=left, right_source=right, left_keys="k", right_keys="k", time_window="5 milliseconds",
        event_time_column="t",
    )  # fmt: skip


class Called:
    def __call__(self, left, right):
        return of(left, right)


def by_place(left, right, /):
    return of(left, right)


def by_name(*, right, left):
    return of(left, right)


@pytest.mark.parametrize("function", [Called(), by_place, by_name])
def test_functions_of_every_kind_make_pipelines(function):
    sources = [
        Source(name=name, connection={"connector": "memory"}, columns={"k": "BIGINT", "t": "BIGINT"})
        for name in ("left", "right")
    ]
    made = pipeline(sources=sources, target=Target(connection={"connector": "console"}))(function)
    assert made.name == getattr(function, "__name__", "Called")
    assert made.join is not None
    assert (made.join.left_source, made.join.right_source) == ("left", "right")
