"""``explain --checkpoint``: on the state of a job that has run."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

import watersmeet as package
from watersmeet.runtime.local import LocalJob
from watersmeet.state.manifest import STATE_VERSION, load_newest
from watersmeet.state.store import LocalStore

STREAMS = """
CREATE TABLE o (id BIGINT, t TIMESTAMP, s STRING, WATERMARK FOR t AS t - INTERVAL '10' SECONDS)
  WITH ('connector' = 'memory', 'rows_per_second' = '2.5');
CREATE TABLE d (id BIGINT, t TIMESTAMP, WATERMARK FOR t AS t - INTERVAL '1' MINUTE)
  WITH ('connector' = 'memory');
"""
JOIN = "SELECT o.id, o.s, d.t FROM o JOIN d ON o.id = d.id AND d.t BETWEEN o.t AND o.t + INTERVAL '1' HOUR;\n"


def run(text: str, checkpoint, ticks: int = 6, partitions: int = 1) -> LocalJob:
    """An order each minute; half as many deliveries."""
    job = LocalJob(
        package.plan_job(package.parse_job(text)), LocalStore(checkpoint / "state"), partitions=partitions
    )
    for tick in range(ticks):
        orders, deliveries = [], []
        for minute in range(tick * 60, tick * 60 + 60):
            time = (datetime(2024, 1, 1) + timedelta(minutes=minute)).isoformat()
            orders.append(({"id": minute, "t": time, "s": "text"}, 1))
            if minute % 2:
                deliveries.append(({"id": minute, "t": time}, 1))
        job.tick({"o": orders, "d": deliveries})
    return job


@pytest.fixture
def file(tmp_path):
    found = tmp_path / "job.sql"
    found.write_text(STREAMS + JOIN)
    return found


def test_measured_rates_override_declared_rates(watersmeet, file, tmp_path):
    job = run(STREAMS + JOIN, tmp_path / "state of a run")
    found = watersmeet("explain", file, "--checkpoint", tmp_path / "state of a run")
    assert (found.status, found.err) == (0, "")
    o, d = "at 0.017 rows/s (measured over 5 h 59 min; declared: 2.5): 61.2 rows of", "at 0.0084 rows/s"
    assert "State forecast (by what was measured up to tick 6)\n" in found.out
    assert o in found.out
    assert d in found.out
    kept = job.state["console"]["o"]
    assert 55 <= kept <= 65
    assert f"retained now: {kept} rows, " in found.out
    assert "1,000 rows/s" not in found.out
    alone = watersmeet("explain", file)
    assert alone.out[: alone.out.index("State forecast")] == found.out[: found.out.index("State forecast")]


def test_explain_suggests_a_better_join_order_by_measured_rates(watersmeet, file, tmp_path):
    """Few orders have a note: with those first, joins would make fewer rows for what follows."""
    streams = """
CREATE TABLE {name} (id BIGINT, t TIMESTAMP, s STRING, WATERMARK FOR t AS t - INTERVAL '10' SECONDS)
  WITH ('connector' = 'memory'{rate});"""
    query = (
        "SELECT o.id, d.t, x.s FROM o JOIN d ON o.id = d.id AND d.t BETWEEN o.t AND o.t + INTERVAL '1' HOUR"
        " JOIN n x ON x.id = o.id AND x.t = o.t;"
    )
    text = "".join(streams.format(name=name, rate="") for name in "odn") + query
    job = LocalJob(package.plan_job(package.parse_job(text)), LocalStore(tmp_path / "c" / "state"))
    for tick in range(6):
        given: dict = {"o": [], "d": [], "n": []}
        for minute in range(tick * 60, tick * 60 + 60):
            time = (datetime(2024, 1, 1) + timedelta(minutes=minute)).isoformat()
            for name, every in (("o", 1), ("d", 1), ("n", 30)):
                if minute % every == 0:
                    given[name].append(({"id": minute, "t": time, "s": "text"}, 1))
        job.tick(given)
    file.write_text(text)
    found = watersmeet("explain", file, "--checkpoint", tmp_path / "c")
    assert "Order of the joins (" not in found.out
    told = found.out[found.out.index("Another order of the joins\n") :]
    assert "\n  o, x, d: by the measured rates that would keep about " in told
    assert "to have it, declare rows_per_second: o '0.017', d '0.017', n '0.00061'\n" in told
    kept = watersmeet("explain", file, "--checkpoint", tmp_path / "c", "--plan", "cascade")
    assert "retained now" in kept.out
    assert "Another order" not in kept.out

    rates = {"o": 0.017, "d": 0.017, "n": 0.00061}
    declared = (streams.format(name=n, rate=f", 'rows_per_second' = '{r}'") for n, r in rates.items())
    file.write_text("".join(declared) + query)
    found = watersmeet("explain", file, "--checkpoint", tmp_path / "c")
    assert "o, d, x: the order of the stored state" in found.out
    assert "retained now" in found.out
    anew = watersmeet("explain", file)
    assert "o, x, d: it retains less than the query's order" in anew.out


def test_the_state_is_read_and_not_touched(watersmeet, file, tmp_path):
    run(STREAMS + JOIN, tmp_path / "c")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert watersmeet("explain", file, "--checkpoint", tmp_path / "c").status == 0
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_nothing_is_made_of_the_state_of_another_plan(watersmeet, file, tmp_path):
    run(STREAMS + JOIN, tmp_path / "c")
    file.write_text(STREAMS + JOIN.replace("'1' HOUR", "'2' HOURS"))
    found = watersmeet("explain", file, "--checkpoint", tmp_path / "c")
    said = "State forecast (nothing is measured: the checkpoint belongs to another version of this query)"
    assert found.status == 0
    assert said in found.out
    assert "at 2.5 rows/s" in found.out
    assert "kept now" not in found.out
    file.write_text(STREAMS + "CREATE TABLE out WITH ('connector' = 'memory');INSERT INTO out " + JOIN)
    found = watersmeet("explain", file, "--checkpoint", tmp_path / "c")
    assert "nothing is measured: the checkpoint has no query of this name" in found.out


def test_the_queries_of_explain_statements_have_no_state(watersmeet, file, tmp_path):
    run(STREAMS + JOIN, tmp_path / "c")
    file.write_text(STREAMS + JOIN + "EXPLAIN " + JOIN)
    found = watersmeet("explain", file, "--checkpoint", tmp_path / "c")
    assert found.out.count("(by what was measured up to tick 6)") == 1
    assert found.out.count("State forecast (nothing is measured)") == 1


def test_without_a_state_it_says_so(watersmeet, file, tmp_path):
    found = watersmeet("explain", file, "--checkpoint", tmp_path / "nowhere")
    assert found.status == 2
    assert f"[no-state]: there is no state in {tmp_path / 'nowhere'}" in found.err
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ('"tick":6', '"tick":"six"', "state-damaged"),
        (f'"state_version":{STATE_VERSION}', '"state_version":4', "state-version"),
    ],
)
def test_a_state_that_cannot_be_read(watersmeet, file, tmp_path, old, new, code):
    """A wrong digit, and a manifest as versions up to 4 wrote it: one line, without a checksum."""
    run(STREAMS + JOIN, tmp_path / "c")
    newest = max((tmp_path / "c" / "state" / "manifests").iterdir())
    first, rest = newest.read_text().split("\n", 1)
    newest.write_text(first.replace(old, new, 1) + ("" if code == "state-version" else f"\n{rest}"))
    found = watersmeet("explain", file, "--checkpoint", tmp_path / "c")
    assert found.status == 2
    assert f"[{code}]" in found.err


def test_a_drawing_has_no_measured_figures(watersmeet, file, tmp_path):
    found = watersmeet("explain", file, "--mermaid", "--checkpoint", tmp_path)
    assert found.status == 2
    assert "--mermaid cannot show measured values" in found.err


def test_neither_tasks_nor_restarts_change_what_is_measured(tmp_path):
    """That a run goes on, and that a tick is begun twice."""
    text = STREAMS + JOIN + "SET watermark_rule = limit;"
    plan = package.plan_job(package.parse_job(text))

    def paces(checkpoint):
        nodes = load_newest(LocalStore(checkpoint / "state")).queries["console"].nodes
        return {name: found.paces for node in nodes for name, found in node.arrangements.items()}

    run(text, tmp_path / "one")
    for name, partitions in (("three", 3), ("again", 2)):
        run(text, tmp_path / name, 6, partitions)
        assert paces(tmp_path / name) == paces(tmp_path / "one")
    store = LocalStore(tmp_path / "again" / "state")
    for _ in range(2):
        job = LocalJob(plan, store)
        job.driver.begin(0)  # and is killed
        assert paces(tmp_path / "again") == paces(tmp_path / "one")
    assert paces(tmp_path / "one")["o"]["t"].measured == (360, 359 * 60_000_000)


def test_more_lateness_in_a_later_run_is_no_time(tmp_path):
    """The limits of another run are lower, and its watermarks are not."""
    store = LocalStore(tmp_path / "state")
    for hour, lateness in enumerate(("0 seconds", "0 seconds", "2 hours", "2 hours")):
        text = f"SET allowed_lateness = '{lateness}';" + STREAMS + JOIN
        job = LocalJob(package.plan_job(package.parse_job(text)), store)
        times = [(datetime(2024, 1, 1) + timedelta(minutes=60 * hour + n)).isoformat() for n in range(60)]
        job.tick({"o": [({"id": 1, "t": time, "s": ""}, 1) for time in times], "d": []})
    (node,) = load_newest(store).queries["console"].nodes
    assert node.arrangements["o"].paces["t"].measured == (240, 239 * 60_000_000)
