"""What Prometheus reads: requests, and what the engine computes."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from unmask.serve.execution.engine import Engine


class Metrics:
    """The figures of one server."""

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
            "From the first byte to the last",
            ["path"],
            registry=self._registry,
        )

    def request(self, path: str, status: int, seconds: float) -> None:
        """Counts a request that was answered."""
        self._requests.labels(path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)

    def text(self) -> bytes:
        """In Prometheus' own format."""
        return generate_latest(self._registry)


class _Engine(Collector):
    """Read when somebody asks: counting costs the engine nothing."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def collect(self) -> Iterator[Metric]:
        counts, engine = self._engine.counts, self._engine
        yield GaugeMetricFamily("unmask_jobs", "Jobs that run or wait", value=engine.jobs)
        yield GaugeMetricFamily(
            "unmask_pending_calls", "Network calls that wait for a worker", value=engine.pending
        )
        for name, text, value in (
            ("passes", "Passes of a network", counts.passes),
            ("calls", "Network calls that passes have answered", counts.calls),
            ("tokens", "Tokens that passes have read", counts.tokens),
            ("seconds", "Seconds that workers spent in passes", counts.seconds),
        ):
            yield CounterMetricFamily(f"unmask_network_{name}", text, value=value)
