"""Spans of ticks, as OpenTelemetry's SDK gets them; none, where nobody takes them."""

from __future__ import annotations

import itertools

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from tests.observe.watched import TICKS, WatchedJob
from watersmeet.errors import EngineError
from watersmeet.observe import spans
from watersmeet.observe.listeners import ListenerGroup
from watersmeet.observe.spans import SpanWatcher


@pytest.fixture
def span_exporter(monkeypatch) -> InMemorySpanExporter:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    return exporter


def build_traced_job() -> WatchedJob:
    job = WatchedJob()
    job.watching = ListenerGroup([SpanWatcher(job.about())])
    return job


def test_tick_span_contains_consecutive_phase_spans(span_exporter):
    job = build_traced_job()
    job.ticks()
    every = span_exporter.get_finished_spans()
    ticks = [span for span in every if span.parent is None]
    assert [span.attributes["watersmeet.tick"] for span in ticks] == [1, 2, 3]
    for tick, result in zip(ticks, job.results, strict=True):
        assert tick.attributes["watersmeet.job"] == "shop"
        assert tick.attributes["watersmeet.queries"] == ("delivered", "windows", "climbed")
        assert tick.attributes["watersmeet.rows_in"] == sum(result.rows_in.values())
        assert tick.end_time - tick.start_time == 500_000_000
        parts = [span for span in every if span.parent and span.parent.span_id == tick.context.span_id]
        assert [(part.name, part.end_time - part.start_time) for part in parts] == [
            ("begin", 125_000_000),
            ("ingest", 250_000_000),
        ]
        assert parts[0].start_time == tick.start_time
        assert all(one.end_time == other.start_time for one, other in itertools.pairwise(parts))


def test_a_tick_that_failed_says_so(span_exporter):
    job = build_traced_job()
    job.ticks(TICKS[:1])
    job.watching.begin(2)
    job.watching.end(EngineError("the disk is full", code="disk-full"))
    last = span_exporter.get_finished_spans()[-1]
    assert (last.name, last.attributes["watersmeet.tick"]) == ("tick", 2)
    assert last.status.status_code is StatusCode.ERROR
    assert "the disk is full" in last.status.description
    assert last.attributes["error.type"] == "disk-full"


def test_error_between_ticks_creates_no_span(span_exporter):
    job = build_traced_job()
    job.ticks(TICKS[:1])
    before = len(span_exporter.get_finished_spans())
    job.watching.end(EngineError("stopped between ticks", code="x"))
    assert len(span_exporter.get_finished_spans()) == before


def test_without_a_provider_no_span_is_begun(monkeypatch):
    monkeypatch.setattr(trace, "get_tracer", lambda name: pytest.fail("a tracer was asked for"))
    assert isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)
    build_traced_job().ticks(TICKS[:1])


def test_without_the_library_there_is_no_watcher(monkeypatch):
    assert spans.is_installed()
    monkeypatch.setattr(spans, "find_spec", lambda name: None)
    assert not spans.is_installed()
