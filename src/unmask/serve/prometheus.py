"""Metrics for Prometheus: requests and network passes."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from unmask.serve.execution.engine import Engine


class Metrics:
    """The metrics of one server."""

    def __init__(self, engine: Engine) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_Engine(engine))
        self._requests = Counter(
            "unmask_requests",
            "Requests by route and status",
            ["path", "status"],
            registry=self._registry,
        )
        self._seconds = Histogram(
            "unmask_request_seconds",
            "Seconds from the headers of a request to the end of its response",
            ["path"],
            registry=self._registry,
        )

    def request(self, path: str, status: int, seconds: float) -> None:
        """Counts a finished request."""
        self._requests.labels(path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)

    def text(self) -> bytes:
        """The metrics in Prometheus' text format."""
        return generate_latest(self._registry)


class _Engine(Collector):
    """Metrics of the engine, read from it at each scrape."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def collect(self) -> Iterator[Metric]:
        counts, engine = self._engine.counts, self._engine
        for name, text, number in (
            ("jobs", "Running and waiting jobs", engine.jobs),
            ("running_jobs", "Jobs that have a thread", engine.running),
            ("stopped_jobs", "Running jobs that are stopped and have not ended", engine.stopped),
            ("idle_seconds", "Seconds since a running job made progress", engine.idle_seconds),
            ("ready", "1 if the server accepts requests, else 0", engine.ready),
            ("pending_calls", "Network calls that wait for a worker", engine.pending),
        ):
            yield GaugeMetricFamily(f"unmask_{name}", text, value=number)
        for name, text, value in (
            ("passes", "Passes of a network", counts.passes),
            ("calls", "Network calls computed in passes", counts.calls),
            ("tokens", "Tokens computed in passes", counts.tokens),
            ("seconds", "Seconds of all workers in passes", counts.seconds),
        ):
            yield CounterMetricFamily(f"unmask_network_{name}", text, value=value)
