"""The operator's process: settings, leadership, watches, workers, resync, HTTP. Ends as one: whatever fails ends all."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import Coroutine
from datetime import UTC, datetime
from functools import partial
from typing import Any

import kopf
import structlog
from kubernetes.aio.config import ConfigException
from pydantic import ValidationError
from pydantic_settings import CliApp, SettingsError

from oarlock_operator import logs, metrics, watch
from oarlock_operator.api_error import ApiError
from oarlock_operator.cluster import Cluster, load_configuration
from oarlock_operator.events import EventPoster
from oarlock_operator.gang_systems import GangReader
from oarlock_operator.leader import Leader, LeadershipLost
from oarlock_operator.nodes import NodeSightings
from oarlock_operator.observation import Brakes, Defaults, Key
from oarlock_operator.pace import Pace
from oarlock_operator.pod_watch import watch_pods
from oarlock_operator.pool import PoolReader
from oarlock_operator.progress import ProgressReader, Route
from oarlock_operator.reconcile import Reconciler
from oarlock_operator.resync import Resync
from oarlock_operator.server import serving
from oarlock_operator.settings import Settings
from oarlock_operator.sightings import Sightings
from oarlock_operator.spares import SpareReader
from oarlock_operator.startup import NodeRights, check_crd, cluster_id, node_rights, own_namespace
from oarlock_operator.throttle import Throttle
from oarlock_operator.workers import work, work_on_nodes
from oarlock_operator.workqueue import WorkQueue

log = structlog.get_logger(__name__)

LAST_WORDS_SECONDS = 1.0


async def run(settings: Settings) -> None:
    """Run until SIGTERM or SIGINT. Raises what must end the process."""
    configuration, inside = await load_configuration(settings.kubeconfig)
    cluster = Cluster(configuration)
    identity = f"{socket.gethostname()}-{os.getpid()}"
    leader = Leader(
        cluster=cluster,
        namespace=settings.lease_namespace or own_namespace(),
        name=settings.lease_name,
        identity=identity,
        seconds=settings.lease_seconds,
        clock=time.monotonic,
        wall=_now,
    )
    direct = settings.pod_access == "direct" or (settings.pod_access == "auto" and inside)
    progress = ProgressReader(cluster, Route.DIRECT if direct else Route.PROXY, clock=time.monotonic)
    queue: WorkQueue[Key] = WorkQueue(clock=time.monotonic)
    resync = Resync(cluster, settings.namespaces, queue, interval=settings.resync_seconds, clock=time.monotonic)
    stop = asyncio.Event()
    _stop_on_signals(stop)
    try:
        async with serving(host=settings.host, port=settings.port, health=resync.health) as port:
            log.info("serving", port=port)
            await check_crd(cluster, settings.namespaces)
            rights = await node_rights(cluster, settings.namespaces)
            where = "kube-system" if not settings.namespaces else settings.lease_namespace or own_namespace()
            known_as = await cluster_id(cluster, given=settings.cluster_id, namespace=where)
            if settings.leader_election and not await _unless(stop, leader.acquire()):
                return
            reconciler = _reconciler(
                settings, cluster, progress=progress, rights=rights, identity=identity, known_as=known_as
            )
            await _lead(settings, stop, leader=leader, queue=queue, reconciler=reconciler, resync=resync, rights=rights)
    finally:
        await progress.close()
        await cluster.close()


def _reconciler(
    settings: Settings,
    cluster: Cluster,
    *,
    progress: ProgressReader,
    rights: NodeRights,
    identity: str,
    known_as: str,
) -> Reconciler:
    namespace = settings.lease_namespace or own_namespace()
    brakes = Brakes(
        namespace=namespace,
        max_nodes=settings.cordon_max_nodes,
        max_percent=settings.cordon_max_percent,
        namespace_max_nodes=settings.cordon_namespace_max_nodes,
        namespace_max_percent=settings.cordon_namespace_max_percent,
        window_seconds=settings.cordon_window_seconds,
        allow_below_gang=settings.cordon_allow_below_gang,
    )
    events = EventPoster(cluster, instance=identity)
    return Reconciler(
        cluster=cluster,
        sightings=Sightings(),
        node_sightings=NodeSightings(),
        pace=Pace(),
        progress=progress,
        gangs=GangReader(cluster, namespace=next(iter(settings.namespaces), "")),
        defaults=Defaults(
            trainer_image=settings.trainer_image,
            progress_seconds=settings.progress_seconds,
            may_cordon=rights.cordon,
            cluster_id=known_as,
            cordon_dry_run=settings.cordon_dry_run and rights.watch,
            cordon_images=tuple(settings.cordon_images),
            cordon_resources=tuple(settings.cordon_gpu_resources),
        ),
        pool=PoolReader(
            cluster=cluster,
            namespace=namespace,
            brakes=brakes,
            resources=tuple(settings.cordon_gpu_resources),
            selector=settings.cordon_node_selector,
            events=events,
        ),
        spares=SpareReader(cluster),
        throttle=Throttle(settings.parallel_requests),
        events=events,
        clock=_now,
    )


async def _lead(
    settings: Settings,
    stop: asyncio.Event,
    *,
    leader: Leader,
    queue: WorkQueue[Key],
    reconciler: Reconciler,
    resync: Resync,
    rights: NodeRights,
) -> None:
    """Work until `stop`, then hand the Lease over."""
    nodes: WorkQueue[str] = WorkQueue(clock=time.monotonic)
    sinks = watch.Sinks(
        jobs=queue,
        node_queue=nodes if rights.watch else None,
        sightings=reconciler.sightings,
        node_sightings=reconciler.node_sightings,
        pace=reconciler.pace,
        gone=reconciler.gone,
    )
    handlers = watch.registry(
        sinks,
        reconciler.cluster.configuration,
        # kopf takes the signals for itself; its own way out idles for five seconds, in which nobody would lead.
        started=lambda: _stop_on_signals(stop),
    )
    if rights.cordon:
        with contextlib.suppress(ApiError):
            await reconciler.pool.note_breaker()
    # Started before kopf: when it exits it cancels every task that was made after its own start.
    tasks = [asyncio.create_task(work(queue, reconciler), name=f"worker-{i}") for i in range(settings.workers)]
    tasks.append(asyncio.create_task(resync.run(), name="resync"))
    tasks.append(asyncio.create_task(reconciler.events.run(), name="events"))
    pods = watch_pods(reconciler.cluster, settings.namespaces, partial(watch.pod_event, sinks))
    tasks.append(asyncio.create_task(pods, name="pods"))
    tasks.append(
        asyncio.create_task(work_on_nodes(nodes, queue, reconciler.cluster, may_patch=rights.cordon), name="nodes")
    )
    if settings.leader_election:
        tasks.append(asyncio.create_task(leader.hold(), name="lease"))
    stopped = asyncio.create_task(_wait(stop), name="stop")
    transport = asyncio.create_task(
        kopf.operator(
            registry=handlers,
            settings=watch.settings(),
            # Named, because kopf would look the user up, and an image's user need not be in /etc/passwd.
            identity=leader.identity,  # type: ignore[arg-type]
            standalone=True,
            clusterwide=not settings.namespaces,
            namespaces=settings.namespaces,
        ),
        name="watches",
    )
    done, _ = await asyncio.wait([*tasks, transport, stopped], return_when=asyncio.FIRST_COMPLETED)
    for task in [*tasks, transport]:
        task.cancel()
    await asyncio.wait([*tasks, transport], timeout=10)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LAST_WORDS_SECONDS):
            await reconciler.events.flush()
    lost = any(not task.cancelled() and isinstance(task.exception(), LeadershipLost) for task in done)
    if settings.leader_election and not lost:
        await leader.release()
    for task in done:
        if task is not stopped:
            task.result()


def _stop_on_signals(stop: asyncio.Event) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)


async def _wait(stop: asyncio.Event) -> None:
    await stop.wait()


async def _unless(stop: asyncio.Event, wish: Coroutine[Any, Any, None]) -> bool:
    """Await `wish` unless `stop` comes first; whether it was granted."""
    wished, stopped = asyncio.create_task(wish), asyncio.create_task(_wait(stop))
    done, _ = await asyncio.wait([wished, stopped], return_when=asyncio.FIRST_COMPLETED)
    for task in (wished, stopped):
        task.cancel()
    if wished in done:
        wished.result()
        return True
    return False


def _now() -> datetime:
    return datetime.now(UTC)


def main() -> int:
    """Entry point of oarlock-operator. 0 after a wished end, 1 after anything else, 2 for unusable settings."""
    try:
        settings = CliApp.run(Settings)
    except ValidationError as error:
        for mistake in error.errors(include_url=False):
            name = ".".join(str(part) for part in mistake["loc"])
            sys.stderr.write(f"oarlock-operator: {name}: {mistake['msg']} (see --help)\n")
        return 2
    except SettingsError as error:
        sys.stderr.write(f'oarlock-operator: {error}; a list is written as JSON, such as ["a", "b"] (see --help)\n')
        return 2
    logs.set_up(log_format=settings.log_format, level=settings.log_level)
    metrics.LEADER.set(0)
    try:
        asyncio.run(run(settings))
    except LeadershipLost as error:
        log.error("ending", reason=str(error))  # noqa: TRY400 - expected, a stack says nothing
        return 1
    except OSError as error:
        log.error("ending", reason=str(error), hint=f"is --port {settings.port} taken? 0 takes any free one")  # noqa: TRY400
        return 1
    except (ApiError, ConfigException) as error:
        log.error("ending", reason=str(error), hint="check --kubeconfig and the operator's rights")  # noqa: TRY400
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
