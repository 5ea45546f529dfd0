"""The figures of running jobs, as rank 0's pod tells them: of each step, where the status has 64 points of the whole run.

They are asked for as the caller, and kept for him alone. No page waits for them longer than a moment: they are read on
threads of their own, and come with the next drawing.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any

from oarlock.cluster import Cluster
from oarlock.errors import OarlockError
from oarlock.facts.model import Object
from oarlock.leader import Leader, find_leader
from oarlock.rows import objects, part
from oarlock_api.contract.wire import integer

AGAIN_SECONDS = 10.0
"""Between two questions: as often as the operator writes progress."""
RIGHTS_SECONDS = 60.0
"""For so long what was read before is shown, while the pod cannot be asked."""
WAIT_SECONDS = 0.5
"""That the first page waits at most."""
MOST_JOBS = 32
MOST_STEPS = 4096
"""Of a job; of more, every second one is kept."""
Key = tuple[str, str, str, str]
"""The caller's identity; namespace, name and uid of the job."""


@dataclass(slots=True)
class _Known:
    rows: dict[int, Object] = field(default_factory=dict)
    attempt: int = 0
    leader: Leader | None = None
    asked: float = -AGAIN_SECONDS
    told: float = -RIGHTS_SECONDS
    reading: Future[None] | None = None


class LiveFigures:
    """Used by any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[Key, _Known] = OrderedDict()
        self._readers = ThreadPoolExecutor(4, "figures")

    def of(self, cluster: Cluster, identity: str, job: Mapping[str, Any]) -> tuple[Object, ...]:
        """Rows as metrics.jsonl has them, by step: of the newest attempt. Empty where nothing is known, or may be."""
        metadata = part(job, "metadata")
        namespace, name = str(metadata.get("namespace")), str(metadata.get("name"))
        key = (identity, namespace, name, str(metadata.get("uid")))
        now = time.monotonic()
        with self._lock:
            known = self._known.setdefault(key, _Known())
            self._known.move_to_end(key)
            while len(self._known) > MOST_JOBS:
                self._known.popitem(last=False)
            if (known.reading is None or known.reading.done()) and now - known.asked >= AGAIN_SECONDS:
                known.asked = now
                known.reading = self._readers.submit(self._read, known, cluster, namespace, name)
            reading = known.reading
        if reading and not known.rows:
            wait([reading], WAIT_SECONDS)
        with self._lock:
            fresh = time.monotonic() - known.told < RIGHTS_SECONDS
            return tuple(known.rows[step] for step in sorted(known.rows)) if fresh else ()

    def close(self) -> None:
        """Ask no more."""
        self._readers.shutdown(wait=False, cancel_futures=True)

    def _read(self, known: _Known, cluster: Cluster, namespace: str, name: str) -> None:
        try:
            leader = known.leader or find_leader(cluster, namespace=namespace, job=name)
            attempt, steps = leader.figures(since=max(known.rows, default=0))
            if attempt != known.attempt and known.rows:
                attempt, steps = leader.figures()
        except OarlockError:
            known.leader = None  # another pod may lead by now; without one, or the right to ask, the status has a curve
            return
        rows: dict[int, Object] = {
            one.figures.step: {
                "step": one.figures.step,
                "attempt": attempt,
                "time": one.time,
                "loss": one.figures.loss,
                "secondsPerStep": one.figures.seconds_per_step,
            }
            for one in steps
            if one.figures.step is not None
        }
        with self._lock:
            known.rows = {**known.rows, **rows} if attempt == known.attempt else rows
            if len(known.rows) > MOST_STEPS:
                known.rows = dict(sorted(known.rows.items())[::2])
            known.attempt, known.leader, known.told = attempt, leader, time.monotonic()


def with_figures(job: Object, rows: tuple[Object, ...]) -> Object:
    """The job with a curve of these rows, and before them of what its own curve has."""
    if not rows:
        return job
    first = integer(rows[0].get("step")) or 0
    status = part(job, "status")
    before = [one for one in objects(status, "curve") if (integer(one.get("step")) or 0) < first]
    return {**job, "status": {**status, "curve": [*before, *rows]}}
