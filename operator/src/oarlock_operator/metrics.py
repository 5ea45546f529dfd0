"""Prometheus metrics of the operator. Label sets are bounded: no job name stands on a histogram or a counter."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

REGISTRY = CollectorRegistry()
ProcessCollector(registry=REGISTRY)
PlatformCollector(registry=REGISTRY)

API_CALLS = Counter("oarlock_api_calls", "Requests to the API server", ["verb", "code"], registry=REGISTRY)
RECONCILES = Counter("oarlock_reconciles", "Passes over one job", ["result"], registry=REGISTRY)
RECONCILE_SECONDS = Histogram("oarlock_reconcile_seconds", "Time of one pass over one job", registry=REGISTRY)
QUEUE_DEPTH = Gauge("oarlock_queue_depth", "Jobs waiting for a worker", registry=REGISTRY)
RESTARTS = Counter("oarlock_restarts", "Restarted gangs", ["budget"], registry=REGISTRY)
FINISHED = Counter("oarlock_jobs_finished", "Jobs that ended", ["phase", "reason"], registry=REGISTRY)
RECOVERY_SECONDS = Histogram(
    "oarlock_recovery_seconds",
    "From a fault to training again, by stage",
    ["stage"],
    buckets=(0.05, 0.1, 0.25, 0.5, 1, 2, 3, 5, 8, 12, 20, 30, 60, 120, 300, 900),
    registry=REGISTRY,
)
CORDONS = Counter("oarlock_nodes_cordoned", "Nodes that Oarlock cordoned", registry=REGISTRY)
LEADER = Gauge("oarlock_leader", "1 while this process holds the Lease", registry=REGISTRY)
LAST_RESYNC = Gauge("oarlock_last_resync_timestamp_seconds", "When all jobs were last listed", registry=REGISTRY)


def api_call(verb: str, code: int) -> None:
    """Count one request; code 0 is no answer."""
    API_CALLS.labels(verb=verb, code=str(code)).inc()
