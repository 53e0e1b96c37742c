"""``/metrics``: ``dask_cache_*`` for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from cachingclient import internals
from cachingclient.ledger import CAUSES
from cachingclient.scheduler.overview import current

if TYPE_CHECKING:
    from cachingclient.scheduler.plugin import CachePlugin

#: ids of the plugins of this process: the collectors are shared by all schedulers.
plugins: set[str] = set()


def connect(plugin: CachePlugin) -> Callable[[], None]:
    """Have the metrics collected; returns how to take them away."""
    try:
        import prometheus_client  # noqa: F401
    except ImportError:
        return lambda: None
    collector = _collector()
    plugins.add(plugin.id)
    internals.add_collector(plugin.scheduler, collector)

    def remove() -> None:
        plugins.discard(plugin.id)
        if not plugins:
            internals.remove_collector(collector)

    return remove


def _collector() -> type[Any]:
    """The class, made once: its base needs prometheus_client."""
    global _Collector
    if _Collector is None:
        from distributed.http.prometheus import PrometheusCollector

        class CacheCollector(PrometheusCollector):
            """Metrics of the cache of the scheduler that is asked."""

            def __init__(self, server: Any) -> None:
                super().__init__(server)
                self.subsystem = "cache"

            def collect(self) -> Iterator[Any]:
                plugin = current(self.server)
                if plugin is not None:
                    yield from metrics(plugin, self.build_name)

        _Collector = CacheCollector
    return _Collector


_Collector: type[Any] | None = None


def metrics(plugin: CachePlugin, build_name: Callable[[str], str]) -> Iterator[Any]:
    """Families of metrics.

    Parameters
    ----------
    plugin : CachePlugin
    build_name : callable
        Puts the namespace and the subsystem in front of a name.
    """
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    ledger, audits = plugin.ledger, plugin.audits
    gauges: list[tuple[str, str, float]] = [
        ("bytes", "Bytes kept", ledger.currsize),
        ("limit_bytes", "Bytes that may be kept", ledger.limit),
        ("keys", "Keys kept", len(ledger.kept)),
        ("layers", "Layers of which keys are kept", len(ledger.names)),
        ("clients", "Clients that asked for caching", len(plugin.desk.clients)),
    ]
    for name, text, value in gauges:
        yield GaugeMetricFamily(build_name(name), text, value=value)
    counters: list[tuple[str, str, float]] = [
        ("hits", "Kept keys that were used in place of computing them", ledger.hits),
        ("misses", "Keys that ran and were allowed to be kept", ledger.misses),
        ("skipped_tasks", "Tasks of submitted graphs that did not run", ledger.skipped),
        ("saved_seconds", "Task time that hits avoided", ledger.saved),
        (
            "recomputed_seconds",
            "Task time spent on keys that had been computed before",
            ledger.recomputed,
        ),
        ("audits", "Kept keys that were computed again to be compared", audits.done),
        ("audits_differing", "Those of them whose value was another one", audits.differing),
    ]
    for name, text, value in counters:
        yield CounterMetricFamily(build_name(name), text, value=value)
    evictions = CounterMetricFamily(
        build_name("evictions"), "Kept keys that had to go", labels=["cause"]
    )
    evicted = CounterMetricFamily(
        build_name("evicted_bytes"), "Bytes of kept keys that had to go", labels=["cause"]
    )
    for cause in CAUSES:
        evictions.add_metric([cause], ledger.evicted[cause])
        evicted.add_metric([cause], ledger.evicted_bytes[cause])
    yield evictions
    yield evicted
    by_worker = GaugeMetricFamily(
        build_name("worker_bytes"), "Bytes kept by each worker", labels=["worker"]
    )
    for address in plugin.scheduler.workers:
        by_worker.add_metric([address], ledger.places.held(address))
    yield by_worker
