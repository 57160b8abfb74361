"""Of runs that several queries keep the driver reads one section per object, to see its columns."""

from __future__ import annotations

from tests.support.far_store import FarStore, cut_small
from watersmeet.parser.statements import parse_job
from watersmeet.plan.planner import plan_job
from watersmeet.runtime.coordinator.retained_runs import incomplete_runs
from watersmeet.runtime.local import LocalJob
from watersmeet.state.store import object_of

JOB = "".join(
    f"CREATE TABLE {name} (k INT, t BIGINT, i INT, WATERMARK FOR t AS t) WITH ('connector' = 'memory');"
    for name in "lr"
) + "".join(
    f"CREATE SINK {sink} WITH ('connector' = 'memory');"
    f"INSERT INTO {sink} SELECT l.i, r.i AS j FROM l {kind} JOIN r ON l.k = r.k"
    f" AND r.t BETWEEN l.t - 5 AND l.t + 5{more};"
    for sink, kind, more in (("p", "INNER", ""), ("q", "LEFT", " AND l.i + r.i < 999"))
)


def test_one_section_of_an_object_is_read(monkeypatch):
    cut_small(monkeypatch)
    store, job = FarStore(), None
    for tick in range(3):
        job = job or LocalJob(plan_job(parse_job(JOB)), store, partitions=4)
        rows = [({"k": k, "t": tick, "i": k}, 1) for k in range(60)]
        job.tick({"l": rows, "r": rows})
    driver = job.driver
    names = {live.run.name for live in driver.manifest.runs()}
    assert any(side.shared for shapes in driver.shapes.values() for of in shapes for side in of.sides)
    assert len(names) > 2 * len(set(map(object_of, names)))
    store.given.clear()
    assert not incomplete_runs(driver.shapes, driver.manifest, store)
    assert set(store.given) <= names
    assert sorted(map(object_of, store.given)) == sorted(set(map(object_of, names)))
