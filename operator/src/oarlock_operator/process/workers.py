"""Workers take keys from a queue and look at what they name, for ever. An error never ends one, and never loses a key."""

from __future__ import annotations

import asyncio
import time

import structlog
from msgspec import Struct

from oarlock_api.contract.names import Label
from oarlock_operator import metrics
from oarlock_operator.execute import delete_left
from oarlock_operator.kube.api_error import ApiError, Conflict
from oarlock_operator.kube.cluster import Cluster
from oarlock_operator.model.observation import Key
from oarlock_operator.nodes.troubled import remove_mark
from oarlock_operator.pods.pod_facts import Metadata
from oarlock_operator.process.sinks import JobEnd
from oarlock_operator.process.workqueue import WorkQueue
from oarlock_operator.reconcile import Reconciler

log = structlog.get_logger(__name__)

NODE_WORKERS = 8
"""Nodes looked into at the same time."""
CLEAN_AGAIN_SECONDS = 60.0
END_WORKERS = 4
"""Jobs that are gone and whose pods are deleted at the same time."""


class _Pod(Struct, frozen=True):
    metadata: Metadata


async def work(queue: WorkQueue[Key], reconciler: Reconciler) -> None:
    """Work until cancelled."""
    while True:
        key, noticed = await queue.get()
        metrics.QUEUE_DEPTH.set(len(queue))
        metrics.QUEUE_WAIT.observe(time.monotonic() - noticed)
        try:
            again = await reconciler.reconcile(key, waited=time.monotonic() - noticed)
        except Conflict as error:
            # Somebody wrote in between; looking again is all it takes. Delayed, because a lasting conflict must not spin.
            metrics.RECONCILES.labels(result="conflict").inc()
            log.info("conflict, looking again", namespace=key[0], job=key[1], error=str(error))
            queue.retry(key)
        except ApiError as error:
            metrics.RECONCILES.labels(result="error").inc()
            delay = queue.retry(key, outage=error.outage)
            log.warning("pass failed", namespace=key[0], job=key[1], error=str(error), again_seconds=round(delay, 1))
        except Exception:
            # A bug of ours in one job must not stop the others; it is loud and is retried ever more slowly.
            metrics.RECONCILES.labels(result="bug").inc()
            log.exception("pass failed unexpectedly", namespace=key[0], job=key[1])
            queue.retry(key)
        else:
            metrics.RECONCILES.labels(result="ok").inc()
            queue.forget(key)
            if again is not None:
                queue.add_after(key, again)
        finally:
            queue.done(key)


async def work_on_ends(ends: WorkQueue[JobEnd], reconciler: Reconciler, gate: asyncio.Semaphore) -> None:
    """Delete the pods of jobs that are gone. Until cancelled.

    Few at a time, and not by those who look at jobs: whoever deletes a hundred jobs holds up nobody's recovery.
    """
    while True:
        end, _ = await ends.get()
        try:
            await delete_pods_of(end, reconciler, gate)
        except Exception:
            log.exception("pods of a deleted job are left to the garbage collector")
        finally:
            ends.done(end)


async def delete_pods_of(end: JobEnd, reconciler: Reconciler, gate: asyncio.Semaphore) -> None:
    """Delete those that the watches know of."""
    key, uid = end
    pods = reconciler.memory.outputs.left_by(key, uid)
    await delete_left(reconciler.sources.cluster, key[0], pods, throttle=reconciler.throttle, gate=gate)


async def work_on_nodes(nodes: WorkQueue[str], jobs: WorkQueue[Key], cluster: Cluster, *, may_patch: bool) -> None:
    """For each node of which there is news: look at the jobs with pods there, remove a mark that is over. Until cancelled.

    Several run at once: where a zone is lost, hundreds of nodes have news, and the last of them must not wait for the rest.
    """
    while True:
        name, _ = await nodes.get()
        try:
            # The jobs first: a mark that cannot be removed is no reason to leave a lost node's gangs alone.
            await _look_at_jobs(name, jobs, cluster)
            if may_patch:
                await _clean(cluster, name, nodes)
        except ApiError as error:
            log.warning("a node's news could not be looked into", node=name, error=str(error))
            nodes.retry(name, outage=error.outage)
        except Exception:
            log.exception("a node's news could not be looked into", node=name)
            nodes.retry(name)
        else:
            nodes.forget(name)
        finally:
            nodes.done(name)


async def _clean(cluster: Cluster, name: str, nodes: WorkQueue[str]) -> None:
    """Remove a mark that is over. Where that fails it is tried again, without asking for the node's jobs more often."""
    try:
        await remove_mark(cluster, name)
    except ApiError as error:
        log.warning("a node's mark could not be removed", node=name, error=str(error))
        nodes.add_after(name, CLEAN_AGAIN_SECONDS)


async def _look_at_jobs(node: str, jobs: WorkQueue[Key], cluster: Cluster) -> None:
    query = {"fieldSelector": f"spec.nodeName={node}", "labelSelector": Label.JOB.value}
    async for page in cluster.pages_of(_Pod, "/api/v1/pods", metadata_only=True, **query):
        for pod in page.items:
            jobs.add((pod.metadata.namespace, (pod.metadata.labels or {})[Label.JOB.value]))
