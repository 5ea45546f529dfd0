"""Workers take keys from a queue and look at what they name, for ever. An error never ends one, and never loses a key."""

from __future__ import annotations

import time

import structlog

from oarlock_api.contract.names import Label
from oarlock_operator import metrics
from oarlock_operator.api_error import ApiError, Conflict
from oarlock_operator.cluster import Cluster
from oarlock_operator.nodes import remove_mark
from oarlock_operator.observation import Key
from oarlock_operator.reconcile import Reconciler
from oarlock_operator.workqueue import WorkQueue

log = structlog.get_logger(__name__)

CLEAN_AGAIN_SECONDS = 60.0


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
            delay = queue.retry(key)
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


async def work_on_nodes(nodes: WorkQueue[str], jobs: WorkQueue[Key], cluster: Cluster, *, may_patch: bool) -> None:
    """For each node of which there is news: remove a mark that is over, look at the jobs with pods there. Until cancelled."""
    while True:
        name, _ = await nodes.get()
        try:
            if may_patch:
                await _clean(cluster, name, nodes)
            pods = await cluster.list(
                "/api/v1/pods", fieldSelector=f"spec.nodeName={name}", labelSelector=Label.JOB.value
            )
        except ApiError as error:
            log.warning("a node's pods could not be listed", node=name, error=str(error))
            nodes.retry(name)
        else:
            nodes.forget(name)
            for pod in pods:
                jobs.add((pod["metadata"]["namespace"], pod["metadata"]["labels"][Label.JOB.value]))
        finally:
            nodes.done(name)


async def _clean(cluster: Cluster, name: str, nodes: WorkQueue[str]) -> None:
    """Remove a mark that is over. Where that fails it is tried again, and the node's jobs are looked at all the same."""
    try:
        await remove_mark(cluster, name)
    except ApiError as error:
        log.warning("a node's mark could not be removed", node=name, error=str(error))
        nodes.add_after(name, CLEAN_AGAIN_SECONDS)
