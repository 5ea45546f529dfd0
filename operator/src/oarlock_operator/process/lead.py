"""One term of leadership: everything that works while the Lease is held, and nothing of it a moment longer.

A term knows only what it has seen itself. It ends when the process is to end or the Lease is lost; then all its work is
cancelled and waited for before anything else happens. What fails inside of it (an error of kopf's, a bug of ours in a
watch) begins anew, and the rest goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from oarlock_operator import metrics
from oarlock_operator.execute import DELETING_AT_ONCE
from oarlock_operator.kube.cluster import Cluster
from oarlock_operator.kube.events import EventPoster
from oarlock_operator.kube.outages import supervised
from oarlock_operator.kube.throttle import Throttle
from oarlock_operator.model.observation import Defaults, Key
from oarlock_operator.model.observed_nodes import Brakes
from oarlock_operator.nodes.pool import PoolReader
from oarlock_operator.nodes.spares import SpareReader
from oarlock_operator.observe.gang_systems import GangReader
from oarlock_operator.observe.memory import Memory
from oarlock_operator.observe.observe import Sources
from oarlock_operator.observe.progress import ProgressReader, Route
from oarlock_operator.process.node_watch import watch_nodes
from oarlock_operator.process.resync import Resync
from oarlock_operator.process.settings import Settings
from oarlock_operator.process.sinks import JobEnd, Sinks
from oarlock_operator.process.startup import Known, own_namespace
from oarlock_operator.process.watches import job_watch, pod_watch
from oarlock_operator.process.workers import END_WORKERS, NODE_WORKERS, work, work_on_ends, work_on_nodes
from oarlock_operator.process.workqueue import WorkQueue
from oarlock_operator.reconcile import Reconciler

FLUSH_SECONDS = 1.0


@dataclass(slots=True)
class Term:
    """One term. `identity` names this process, `route` is how pods are asked."""

    settings: Settings
    cluster: Cluster
    known: Known
    route: Route
    identity: str
    resync: Resync
    queue: WorkQueue[Key]
    memory: Memory

    @classmethod
    def begun(cls, settings: Settings, cluster: Cluster, *, known: Known, route: Route, identity: str) -> Term:
        """A term that has not seen anything yet."""
        queue: WorkQueue[Key] = WorkQueue(clock=time.monotonic)
        memory = Memory()
        resync = Resync(
            cluster,
            settings.namespaces,
            queue,
            interval=settings.resync_seconds,
            clock=time.monotonic,
            remembered=memory.keys,
        )
        return cls(settings, cluster, known, route, identity, resync, queue, memory)

    async def work(self, until: Callable[[], Awaitable[None]]) -> None:
        """Work until `until` returns or raises; what it raises is raised, once all work has ended."""
        progress = ProgressReader(self.cluster, self.route, clock=time.monotonic, keys=self.known.keys)
        reconciler = self._reconciler(progress)
        tasks = [asyncio.create_task(supervised(part, run), name=part) for part, run in self._parts(reconciler).items()]
        if self.known.rights.cordon:
            tasks.append(asyncio.create_task(reconciler.pool.note_breaker(), name="breaker"))
        try:
            await until()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await progress.close()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FLUSH_SECONDS):
                    await reconciler.events.flush()
            metrics.forget_all()

    def _parts(self, reconciler: Reconciler) -> dict[str, Callable[[], Awaitable[None]]]:
        """What works side by side, by name."""
        nodes: WorkQueue[str] = WorkQueue(clock=time.monotonic)
        ends: WorkQueue[JobEnd] = WorkQueue(clock=time.monotonic)
        sinks = Sinks(jobs=self.queue, nodes=nodes, ends=ends, memory=self.memory)
        namespaces = self.settings.namespaces
        parts: dict[str, Callable[[], Awaitable[None]]] = {
            "resync": self.resync.run,
            "events": reconciler.events.run,
            "jobs": job_watch(self.cluster, namespaces, sinks.job_event).run,
            "pods": pod_watch(self.cluster, namespaces, sinks.pod_event).run,
        }
        for number in range(self.settings.workers):
            parts[f"worker-{number}"] = partial(work, self.queue, reconciler)
        gate = asyncio.Semaphore(DELETING_AT_ONCE)
        for number in range(END_WORKERS):
            parts[f"end-worker-{number}"] = partial(work_on_ends, ends, reconciler, gate)
        if self.known.rights.watch:
            parts["nodes"] = partial(watch_nodes, self.cluster.configuration, sinks.node_event)
            look = partial(work_on_nodes, nodes, self.queue, self.cluster, may_patch=self.known.rights.cordon)
            parts |= {f"node-worker-{number}": look for number in range(NODE_WORKERS)}
        return parts

    def _reconciler(self, progress: ProgressReader) -> Reconciler:
        settings = self.settings
        brakes = Brakes(
            namespace=settings.lease_namespace or own_namespace(),
            max_nodes=settings.cordon_max_nodes,
            max_percent=settings.cordon_max_percent,
            namespace_max_nodes=settings.cordon_namespace_max_nodes,
            namespace_max_percent=settings.cordon_namespace_max_percent,
            window_seconds=settings.cordon_window_seconds,
            allow_below_gang=settings.cordon_allow_below_gang,
        )
        events = EventPoster(self.cluster, instance=self.identity)
        return Reconciler(
            sources=Sources(
                cluster=self.cluster,
                progress=progress,
                gangs=GangReader(self.cluster, namespace=next(iter(settings.namespaces), "")),
                clock=self.cluster.server_clock.now,
            ),
            memory=self.memory,
            defaults=Defaults(
                trainer_image=settings.trainer_image,
                progress_seconds=settings.progress_seconds,
                may_cordon=self.known.rights.cordon,
                cluster_id=self.known.cluster_id,
                keys=self.known.keys,
                status_from=tuple(settings.network_policy_from) if settings.network_policies else None,
                cordon_dry_run=settings.cordon_dry_run and self.known.rights.watch,
                cordon_images=tuple(settings.cordon_images),
                cordon_resources=tuple(settings.cordon_gpu_resources),
            ),
            pool=PoolReader(
                cluster=self.cluster,
                brakes=brakes,
                resources=tuple(settings.cordon_gpu_resources),
                selector=settings.cordon_node_selector,
                events=events,
                clock=self.cluster.server_clock.now,
            ),
            spares=SpareReader(self.cluster),
            throttle=Throttle(settings.parallel_requests),
            events=events,
        )
