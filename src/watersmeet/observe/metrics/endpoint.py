"""Addresses at which Prometheus asks for figures: one server per address, in threads of its own, for all jobs
of this process that are to be seen there.

A server is there while one of its jobs runs, or has failed: that it failed is what somebody has to see. A job
that is started again goes on with what was counted before.
"""

from __future__ import annotations

from collections.abc import Iterable
from threading import Lock, Thread
from typing import Any

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from watersmeet.errors import SpecError
from watersmeet.observe.metrics import figures
from watersmeet.observe.metrics.run import ENDED, FAILED, RunMetrics, histograms
from watersmeet.observe.watching import Watched
from watersmeet.spec.watched.addresses import Address, cannot_listen

_FAMILIES = {figures.COUNTER: CounterMetricFamily, figures.GAUGE: GaugeMetricFamily}


class Endpoint(Collector):
    """What is shown at one address."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._lock = Lock()
        self._seconds = histograms()
        self._runs: dict[str, RunMetrics] = {}
        self._registry = CollectorRegistry()
        self._registry.register(self)
        self._server: Any = None
        self._thread: Thread | None = None

    @property
    def url(self) -> str:
        """Where that is."""
        port = self.address.port if self._server is None else self._server.server_port
        return f"http://{Address(self.address.host, port).words}/metrics"

    def watch(self, run: Watched) -> RunMetrics:
        """What is to be told of a run that is about to start, which is shown from now on.

        Raises:
            SpecError: one of that name runs already.
            EngineError: nobody can listen there.
        """
        with self._lock:
            metrics = self._runs.get(run.job)
            if metrics is not None and metrics.state not in (ENDED, FAILED):
                raise SpecError(
                    f'a job named "{run.job}" is shown at {self.url} already',
                    code="same-job",
                    hint="a job is named as its checkpoint directory: name that otherwise, or give this job a"
                    " port of its own",
                )
            self._listen()
            if metrics is None:
                metrics = self._runs[run.job] = RunMetrics(run.job, self._seconds, self._look)
            metrics.begins(run)
            return metrics

    def collect(self) -> Iterable[Metric]:
        """The families of all figures, with those of all jobs that run or have failed."""
        families: dict[figures.Figure, CounterMetricFamily | GaugeMetricFamily] = {}
        shown = {run.job: run for run in list(self._runs.values()) if run.state != ENDED}
        for run in shown.values():
            for figure, labels, value in run.readings():
                family = families.get(figure)
                if family is None:
                    kind = _FAMILIES[figure.kind]
                    family = families[figure] = kind(figure.name, figure.help, labels=("job", *figure.labels))
                family.add_metric((run.job, *labels), float(value))
        yield from families.values()
        for seconds in self._seconds.values():
            for made in seconds.collect():
                made.samples = [sample for sample in made.samples if sample.labels["job"] in shown]
                yield made

    def _listen(self) -> None:
        if self._server is not None:
            return
        try:
            self._server, self._thread = start_http_server(
                self.address.port, self.address.host, self._registry
            )
        except (OSError, OverflowError) as error:
            raise cannot_listen(
                "metrics cannot be shown",
                self.address,
                error,
                "another port, as --metrics 9465, or an address of this machine: --metrics HOST:PORT",
            ) from None

    def _look(self) -> None:
        """Close the server, if there is nothing to be seen there any more. A run that is about to start waits
        until the address is free; who asks for figures waits for nothing here."""
        with self._lock:
            if self._server is None or any(run.state != ENDED for run in self._runs.values()):
                return
            self._server.shutdown()
            self._server.server_close()
            if self._thread is not None:
                self._thread.join()
            self._server = self._thread = None


_ENDPOINTS: dict[Address, Endpoint] = {}
_LOCK = Lock()


def endpoint_at(address: Address) -> Endpoint:
    """That of this process; any free port is another one each time."""
    with _LOCK:
        if not address.port:
            return Endpoint(address)
        return _ENDPOINTS.setdefault(address, Endpoint(address))
