"""What Prometheus gets: over HTTP, by its own client's parser, over restarts, errors and hostile names."""

from __future__ import annotations

import logging
import math
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from http.client import HTTPConnection
from threading import Event, Thread

import pytest
from prometheus_client.exposition import ThreadingWSGIServer
from prometheus_client.parser import text_string_to_metric_families

from tests.observe.watched import TICKS, WatchedJob, row
from watersmeet.errors import EngineError, SpecError
from watersmeet.observe.listeners import ListenerGroup, WatchedRun
from watersmeet.observe.metrics import figures
from watersmeet.observe.metrics.endpoint import Endpoint, endpoint_at
from watersmeet.observe.metrics.figures import RunMetrics
from watersmeet.observe.reports import report_of
from watersmeet.observe.watermark_holders import StoreUse
from watersmeet.spec.monitoring import Address, load_token

NOTICES = "watersmeet_notices_total", frozenset({("job", "shop")})
HOSTILE = 'a "quoted"\nname\\ with {braces=“ä”}'


@pytest.fixture
def address() -> Iterator[Address]:
    """One that is free; what was begun there has ended by the end of the test."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    yield Address("127.0.0.1", port)
    endpoint = endpoint_at(Address("127.0.0.1", port))
    for metrics in endpoint._runs.values():
        if metrics.state == "failed":
            metrics.state = "ended"
            endpoint._look()


def fetch_metrics(address: Address) -> str:
    with urllib.request.urlopen(f"http://{address.words}/metrics", timeout=10) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain")
        return answer.read().decode()


def samples(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """All series; each once, and each family."""
    families = list(text_string_to_metric_families(text))
    assert len({family.name for family in families}) == len(families)
    found = [
        ((sample.name, frozenset(sample.labels.items())), sample.value)
        for family in families
        for sample in family.samples
    ]
    assert len(dict(found)) == len(found)
    return dict(found)


def value(text: str, name: str, **labels: str) -> float:
    return samples(text)[name, frozenset(labels.items())]


def start_watched_job(address: Address, job: str = "shop") -> tuple[WatchedJob, RunMetrics]:
    """A job whose figures are shown there."""
    about = WatchedJob().about(job)
    metrics = endpoint_at(address).watch(about, None)
    return WatchedJob(metrics), metrics


def test_a_run_is_shown_while_it_starts_runs_and_no_more_when_it_has_ended(address):
    job, _ = start_watched_job(address)
    assert value(fetch_metrics(address), "watersmeet_up", job="shop") == 0
    job.watching.start({}, None)
    assert value(fetch_metrics(address), "watersmeet_up", job="shop") == 1
    job.tick(TICKS[0])
    text = fetch_metrics(address)
    account = job.results[-1].queries["delivered"].account["o"]
    assert (
        value(text, "watersmeet_input_rows_total", job="shop", query="delivered", input="o") == account["in"]
    )
    assert value(text, "watersmeet_trigger_interval_seconds", job="shop") == 1
    assert value(text, "watersmeet_backlog_rows", job="shop", source="orders") == 7
    job.watching.end(None)
    with pytest.raises(urllib.error.URLError):
        fetch_metrics(address)


def test_what_is_shown_is_what_the_figures_say_and_nothing_else(address):
    """Names and labels as declared; counters and gauges as they are called."""
    job, metrics = start_watched_job(address)
    job.ticks()
    declared = {figure.name.removesuffix("_total"): figure for figure in figures.FIGURES}
    for family in text_string_to_metric_families(fetch_metrics(address)):
        figure = declared.get(family.name)
        if figure is None:
            assert family.name.endswith("_created"), "of histograms, by the client"
            continue
        assert (family.type, family.documentation) == (figure.kind, figure.help)
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == {"job", *figure.labels}
    shown = {reading.figure for reading in metrics.readings()}
    assert shown >= set(figures.FIGURES) - {
        figures.TICK_SECONDS,
        figures.PHASE_SECONDS,
        figures.BACKLOGS["files"],
        figures.SHED_JOINED,
        figures.STORE_BYTES,
        figures.STORE_REQUESTS,
        figures.WARNINGS,
    }
    job.watching.end(None)


def test_ticks_and_their_parts_are_histograms(address):
    job, _ = start_watched_job(address)
    job.watching.start({}, None)
    for seconds in (0.2, 0.2, 4.0):
        job.tick({}, seconds)
    text = fetch_metrics(address)
    assert value(text, "watersmeet_tick_duration_seconds_count", job="shop") == 3
    assert value(text, "watersmeet_tick_duration_seconds_sum", job="shop") == pytest.approx(4.4)
    assert value(text, "watersmeet_tick_duration_seconds_bucket", job="shop", le="0.25") == 2
    assert value(
        text, "watersmeet_tick_phase_duration_seconds_sum", job="shop", phase="ingest"
    ) == pytest.approx(2.2)
    job.watching.end(None)


def test_names_of_any_kind_are_escaped(address):
    job, _ = start_watched_job(address, HOSTILE)
    job.ticks(TICKS[:1])
    assert value(fetch_metrics(address), "watersmeet_up", job=HOSTILE) == 1
    job.watching.end(None)


def test_a_restart_loses_no_series_and_doubles_none(address):
    """Until the new run has a tick of its own, what the last one came to is shown; counting goes on."""
    job, _ = start_watched_job(address)
    job.ticks()
    before = samples(fetch_metrics(address))
    job.watching.notice("a broker is away")
    job.watching.end(None)
    again = ListenerGroup([endpoint_at(address).watch(job.about(), None)])
    between = samples(fetch_metrics(address))
    assert between.keys() == before.keys()
    totals = {key: count for key, count in before.items() if key[0].endswith(("_total", "_count"))}
    assert {**between, NOTICES: 0} == {**between, **totals, NOTICES: 0}
    job.watching = again
    again.start({}, None)
    job.tick({"orders": [row(102, "far")]})
    after = samples(fetch_metrics(address))
    assert after.keys() == before.keys()
    assert after["watersmeet_tick_duration_seconds_count", frozenset({("job", "shop")})] == len(TICKS) + 1
    read = "watersmeet_input_rows_total", frozenset({("job", "shop"), ("query", "delivered"), ("input", "o")})
    assert after[read] == before[read] + 1
    assert after[NOTICES] == 1
    again.end(None)


def test_what_has_failed_is_shown_until_it_is_started_again(address):
    job, _ = start_watched_job(address)
    job.ticks()
    job.watching.begin(4)
    assert value(fetch_metrics(address), "watersmeet_running_tick_age_seconds", job="shop") > 0
    job.watching.end(EngineError("the disk is full", code="disk-full"))
    text = fetch_metrics(address)
    assert value(text, "watersmeet_failing", job="shop") == 1
    assert (
        value(text, "watersmeet_up", job="shop")
        == value(text, "watersmeet_running_tick_age_seconds", job="shop")
        == 0
    )
    metrics = endpoint_at(address).watch(job.about(), None)
    assert value(fetch_metrics(address), "watersmeet_failing", job="shop") == 0
    metrics.ended(None)


def test_two_jobs_of_a_process_share_an_address_with_distinct_labels(address):
    one, _ = start_watched_job(address, "one")
    two, _ = start_watched_job(address, "two")
    one.ticks(TICKS[:1])
    two.ticks(TICKS[:2])
    text = fetch_metrics(address)
    assert value(text, "watersmeet_last_tick", job="one") == 1
    assert value(text, "watersmeet_last_tick", job="two") == 2
    one.watching.end(None)
    assert not any(("job", "one") in labels for _, labels in samples(fetch_metrics(address)))
    two.watching.end(None)


def test_two_jobs_of_one_name_are_refused(address):
    job, metrics = start_watched_job(address)
    with pytest.raises(SpecError, match=r'http://127.* already shows a job named "shop"') as refused:
        endpoint_at(address).watch(job.about(), None)
    assert refused.value.code == "same-job"
    metrics.ended(None)


def test_whoever_asks_has_to_send_the_token(address, tmp_path):
    """To any user of the machine: loopback is open to all of them."""
    token, other = (load_token(str(tmp_path / name)) for name in ("token", "other"))
    endpoint = endpoint_at(address)
    metrics = endpoint.watch(WatchedJob().about(), token)
    assert endpoint.access == f"token in {token.file}"

    def status(path: str, method: str = "GET", **headers: str) -> int:
        connection = HTTPConnection(address.host, address.port, timeout=10)
        connection.request(method, path, headers=headers)
        return connection.getresponse().status

    for path in ("/metrics", "/", "/favicon.ico", f"/metrics?token={token.text}"):
        for header in ("", f"Bearer {other.text}", f"Basic {token.text}", "Bearer"):
            assert status(path, Authorization=header) == 401
        for method in ("GET", "HEAD", "OPTIONS", "POST"):
            assert status(path, method) == 401
    assert status("/metrics", Authorization=f"Bearer {token.text}") == 200
    for unlike in (other, None):
        with pytest.raises(
            SpecError, match=r"http://127.* already shows other jobs of this process"
        ) as refused:
            endpoint.watch(WatchedJob().about("second"), unlike)
        assert refused.value.code == "same-job"
    same = endpoint.watch(WatchedJob().about("second"), load_token(str(token.file)))
    same.ended(None)
    metrics.ended(None)
    changed = endpoint.watch(WatchedJob().about(), other)  # nobody else was shown there any more
    assert status("/metrics", Authorization=f"Bearer {token.text}") == 401
    changed.ended(EngineError("the disk is full", code="disk-full"))
    again = endpoint.watch(WatchedJob().about(), token)  # the one that failed is no reason
    assert status("/metrics", Authorization=f"Bearer {token.text}") == 200
    again.ended(None)


def test_unusable_metrics_address_is_reported():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = Address("127.0.0.1", other.getsockname()[1])
        with pytest.raises(EngineError, match="another program uses this port") as refused:
            Endpoint(taken).watch(WatchedJob().about(), None)
    assert refused.value.code == "port-taken"
    assert refused.value.hint
    with pytest.raises(EngineError) as refused:
        Endpoint(Address("203.0.113.7", 9464)).watch(WatchedJob().about(), None)
    assert refused.value.code == "cannot-listen"


def test_a_run_that_starts_while_the_last_one_ends_waits_for_its_port(address, monkeypatch):
    close, closing = ThreadingWSGIServer.server_close, Event()

    def slowly(server: ThreadingWSGIServer) -> None:
        closing.set()
        time.sleep(0.3)
        close(server)

    monkeypatch.setattr(ThreadingWSGIServer, "server_close", slowly)
    _, metrics = start_watched_job(address)
    endpoint = endpoint_at(address)
    ending = Thread(target=metrics.ended, args=(None,))
    ending.start()
    assert closing.wait(10)
    other = endpoint.watch(WatchedJob().about("second"), None)
    ending.join()
    assert "watersmeet_up" in fetch_metrics(address)
    other.ended(None)


def test_port_zero_serves_metrics_on_a_free_port():
    endpoint = endpoint_at(Address("127.0.0.1", 0))
    metrics = endpoint.watch(WatchedJob().about(), None)
    with urllib.request.urlopen(endpoint.url, timeout=10) as answer:
        assert b"watersmeet_up" in answer.read()
    metrics.ended(None)
    assert endpoint_at(Address("127.0.0.1", 0)) is not endpoint


def test_warnings_of_the_package_are_counted_and_still_printed(address, capfd, monkeypatch):
    """Where nobody has set up logging; by whom they are."""
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    _, metrics = start_watched_job(address)
    logging.getLogger("watersmeet.postgres").warning("the server is away")
    assert capfd.readouterr().err == "the server is away\n"
    assert (
        value(fetch_metrics(address), "watersmeet_warnings_total", job="shop", logger="watersmeet.postgres")
        >= 1
    )
    metrics.ended(None)
    assert logging.getLogger("watersmeet").handlers == []
    logging.getLogger("watersmeet.postgres").warning("away again")
    assert capfd.readouterr().err == "away again\n"


def test_remote_store_traffic_is_summed_over_ticks(address):
    job, metrics = start_watched_job(address)
    result = job.ticks(TICKS[:1])
    report = replace(report_of(result, 0.5), store=StoreUse(100, 20, 3, 7))
    for _ in range(2):
        metrics.tick(report, result)
    text = fetch_metrics(address)
    assert [
        value(text, "watersmeet_store_bytes_total", job="shop", direction=direction)
        for direction in ("fetched", "cached", "written")
    ] == [200, 40, 6]
    assert value(text, "watersmeet_store_requests_total", job="shop") == 14
    metrics.ended(None)


def test_a_thousand_series_are_there_in_a_tenth_of_a_second(address):
    """Of CPU, of who answers and who asks, the least of five: other processes are at work."""
    select = "SELECT o.k FROM orders o JOIN deliveries d ON o.k = d.k AND d.t = o.t"
    head = "\n".join(
        f"CREATE TABLE {name} (k STRING, t TIMESTAMP, WATERMARK FOR t AS t - INTERVAL '1' SECOND)"
        " WITH ('connector' = 'memory', 'rows_per_second' = '9');"
        for name in ("orders", "deliveries")
    )
    text = head + "".join(
        f"CREATE SINK s{n} WITH ('connector' = 'memory'); INSERT INTO s{n} {select};" for n in range(20)
    )
    plan = WatchedJob(text=text).plan
    metrics = endpoint_at(address).watch(WatchedRun("many", plan, 1.0), None)
    job = WatchedJob(metrics, text=text)
    job.ticks([{"orders": [({"k": "a", "t": "2026-11-26T10:00:00"}, 1)]}])
    took, count = math.inf, 0
    for _ in range(5):
        began = time.process_time()
        answer = fetch_metrics(address)
        took, count = min(took, time.process_time() - began), answer.count("\nwatersmeet_")
    assert count > 1000
    assert took < 0.1
    metrics.ended(None)
