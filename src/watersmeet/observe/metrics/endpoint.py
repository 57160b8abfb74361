"""HTTP endpoints that Prometheus scrapes: one server per address, for all jobs of this process.

Each server runs in threads of its own and serves the jobs that were registered at its address. Clients
must send the token, if there is one, in a header.

A server runs while one of its jobs runs or has failed, so that the failure stays visible. The counters of
a job that is started again continue from their last values.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from threading import Lock, Thread
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import ThreadingWSGIServer
from prometheus_client.registry import Collector

from watersmeet.errors import SpecError
from watersmeet.observe.listeners import WatchedRun
from watersmeet.observe.metrics import figures
from watersmeet.observe.metrics.figures import FAILED, RUN_ENDED, RunMetrics, histograms
from watersmeet.spec.monitoring import AccessToken, Address, cannot_listen, describe_access

_FAMILIES = {figures.COUNTER: CounterMetricFamily, figures.GAUGE: GaugeMetricFamily}


class Endpoint(Collector):
    """Metrics server at one address."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._token: AccessToken | None = None
        self._lock = Lock()
        self._seconds = histograms()
        self._runs: dict[str, RunMetrics] = {}
        self._registry = CollectorRegistry()
        self._registry.register(self)
        self._server: Any = None
        self._thread: Thread | None = None

    @property
    def url(self) -> str:
        """Address of the metrics."""
        port = self.address.port if self._server is None else self._server.server_port
        return f"http://{Address(self.address.host, port).words}/metrics"

    @property
    def access(self) -> str:
        """Description of who may read the metrics."""
        return describe_access(self._token, self.address)

    def watch(self, run: WatchedRun, token: AccessToken | None) -> RunMetrics:
        """Return the listener of a run that is about to start; its metrics are shown from now on.

        Args:
            token: the token that a client must send to read the metrics; None: no token.

        Raises:
            SpecError: a job of that name already runs, or other running jobs are shown there with another
                token.
            EngineError: the server cannot listen at the address.
        """
        with self._lock:
            metrics = self._runs.get(run.job)
            if metrics is not None and metrics.state not in (RUN_ENDED, FAILED):
                raise SpecError(
                    f'{self.url} already shows a job named "{run.job}"',
                    code="same-job",
                    hint="use another name for the checkpoint directory, which names the job, or another"
                    " port for this job",
                )
            if token != self._token and any(
                run.state not in (RUN_ENDED, FAILED) for run in self._runs.values()
            ):
                raise SpecError(
                    f"{self.url} already shows other jobs of this process with another access rule"
                    f" ({self.access})",
                    code="same-job",
                    hint="use the same token_file for all of them, or another port for this job",
                )
            self._token = token
            self._listen()
            if metrics is None:
                metrics = self._runs[run.job] = RunMetrics(run.job, self._seconds, self._look)
            metrics.begins(run)
            return metrics

    def collect(self) -> Iterable[Metric]:
        """Yield the families of all figures for the jobs that run or have failed."""
        families: dict[figures.Figure, CounterMetricFamily | GaugeMetricFamily] = {}
        shown = {run.job: run for run in list(self._runs.values()) if run.state != RUN_ENDED}
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
            self._server = _server_at(self.address, self._require_token(make_wsgi_app(self._registry)))
        except (OSError, OverflowError) as error:
            raise cannot_listen(
                "metrics cannot be shown",
                self.address,
                error,
                "another port, as --metrics 9465, or an address of this machine: --metrics HOST:PORT",
            ) from None
        self._thread = Thread(target=self._server.serve_forever, name="metrics", daemon=True)
        self._thread.start()

    def _require_token(self, app: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap the application so that it answers only requests with the token."""

        def answer(request: dict[str, Any], start: Callable[..., Any]) -> Any:
            if self._token is None or self._token.is_in_header(request.get("HTTP_AUTHORIZATION")):
                return app(request, start)
            start("401 Unauthorized", [("WWW-Authenticate", "Bearer"), ("Content-Type", "text/plain")])
            return [b"these metrics ask for a token: Authorization: Bearer TOKEN\n"]

        return answer

    def _look(self) -> None:
        """Close the server if no job is left to show.

        A run that is about to start waits until the address is free; metric requests do not wait here.
        """
        with self._lock:
            if self._server is None or any(run.state != RUN_ENDED for run in self._runs.values()):
                return
            self._server.shutdown()
            self._server.server_close()
            if self._thread is not None:
                self._thread.join()
            self._server = self._thread = None


class _QuietHandler(WSGIRequestHandler):
    """Logs no request."""

    def log_message(self, *_: Any) -> None:
        pass


def _server_at(address: Address, app: Callable[..., Any]) -> ThreadingWSGIServer:
    """Start a metrics server at an address.

    Raises:
        OSError: the address cannot be resolved or bound.
        OverflowError: the port is out of range.
    """
    where = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, *_, (host, *_) = where[0]

    class Server(ThreadingWSGIServer):
        address_family = family

    return make_server(str(host), address.port, app, Server, handler_class=_QuietHandler)


_ENDPOINTS: dict[Address, Endpoint] = {}
_LOCK = Lock()


def endpoint_at(address: Address) -> Endpoint:
    """Return the endpoint of this process at `address`; port 0 gives a new endpoint each time."""
    with _LOCK:
        if not address.port:
            return Endpoint(address)
        return _ENDPOINTS.setdefault(address, Endpoint(address))
