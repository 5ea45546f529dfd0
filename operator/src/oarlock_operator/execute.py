"""Execute: carry out a plan's actions, in their order, pods in parallel and bounded.

Every action may be repeated: what exists already, or is gone already, counts as done. A name that somebody else's object
holds is not done, and raises.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial

import structlog

from oarlock_api.contract.names import API_VERSION, PLURAL, Label
from oarlock_operator import metrics
from oarlock_operator.kube.api_error import ApiError, Conflict, NotFound
from oarlock_operator.kube.cluster import Cluster, Json
from oarlock_operator.kube.throttle import Throttle
from oarlock_operator.model.observation import Job
from oarlock_operator.model.plan import (
    Action,
    CordonNode,
    CreateGroup,
    CreatePods,
    CreateService,
    DeleteGroup,
    DeleteJob,
    DeletePods,
    LatchBreaker,
    NoteStrike,
    SelectAttempt,
)
from oarlock_operator.nodes.gpu_fault_history import note_strike
from oarlock_operator.nodes.pool import PoolReader
from oarlock_operator.observe.outputs import PodVersion

log = structlog.get_logger(__name__)

DELETING_AT_ONCE = 16
"""Requests for the pods of all jobs that are gone: who asks meanwhile waits behind so many, not behind gangs of thousands."""
NAME_TAKEN = "NameTaken"
"""Reason of the error where somebody else's object has the name that one of ours is to have."""


async def execute(
    cluster: Cluster, job: Job, actions: Sequence[Action], *, throttle: Throttle, pool: PoolReader
) -> None:
    """Carry out `actions` one after the other; what pods need comes before them, all of it at once.

    Raises ApiError where one failed: the next pass sees what there is and plans anew. A cordon that fails holds nobody up:
    the job avoids the node anyway, and the plan is repeated until it stands.
    """
    namespace = job.namespace
    needed: list[Callable[[], Awaitable[object]]] = []
    for action in actions:
        if isinstance(action, CreateService | CreateGroup | SelectAttempt):
            needed.append(_for_pods(cluster, namespace, action))
            continue
        if isinstance(action, CreatePods):
            # Before them: once all pods are there, nobody looks again whether these are.
            needed += [partial(_create_unseen, cluster, namespace, one) for one in action.beside]
        await _all(throttle, needed)
        needed = []
        match action:
            case CordonNode() | NoteStrike() | LatchBreaker():
                if not await _try(job, action, cluster, pool):
                    continue
            case CreatePods():
                await _create_pods(cluster, job, action, throttle)
            case DeletePods(pods, grace_seconds):
                path = f"/api/v1/namespaces/{namespace}/pods"
                metrics.FORCE_DELETED.inc(len(pods) if grace_seconds == 0 else 0)
                await _all(
                    throttle,
                    [
                        partial(cluster.delete, f"{path}/{name}", uid=uid, grace_seconds=grace_seconds)
                        for name, uid in pods
                    ],
                )
            case DeleteGroup(name, uid, api):
                await cluster.delete(f"{_collection(api, 'PodGroup', namespace)}/{name}", uid=uid)
            case DeleteJob(name, uid):
                await cluster.delete(f"/apis/{API_VERSION}/namespaces/{namespace}/{PLURAL}/{name}", uid=uid)
        log.info("done", action=type(action).__name__)
    await _all(throttle, needed)


async def delete_left(
    cluster: Cluster, namespace: str, pods: Iterator[PodVersion], *, throttle: Throttle, gate: asyncio.Semaphore
) -> None:
    """Delete pods of a job that is gone, as the garbage collector would: each as it was seen, or not at all.

    `gate` bounds what all such jobs ask at once. What fails is left to the collector: it takes whatever is still there, many
    times slower where it may ask but seldom.
    """
    failed = False

    async def next_ones() -> None:
        nonlocal failed
        while not failed:
            async with gate:
                if (pod := next(pods, None)) is None:
                    return
                path = f"/api/v1/namespaces/{namespace}/pods/{pod.name}"
                try:
                    await throttle.run(partial(cluster.delete, path, uid=pod.uid, version=pod.version))
                except ApiError as error:
                    if not failed:
                        log.warning("pods of a deleted job are left to the garbage collector", error=str(error))
                    failed = True

    await asyncio.gather(*(next_ones() for _ in range(DELETING_AT_ONCE)))


def _for_pods(
    cluster: Cluster, namespace: str, action: CreateService | CreateGroup | SelectAttempt
) -> Callable[[], Awaitable[object]]:
    if isinstance(action, SelectAttempt):
        # The uid makes it the very Service that the decision saw; a replaced one answers 409. What an earlier selector had
        # besides goes: a merge would keep it.
        patch = {
            "metadata": {"uid": action.uid},
            "spec": {"selector": {Label.RANK.value: None, Label.INCARNATION.value: None, **action.selector}},
        }
        return partial(cluster.merge, f"/api/v1/namespaces/{namespace}/services/{action.name}", patch)
    kind, api = action.manifest["kind"], action.manifest["apiVersion"]
    return partial(_create, cluster, _collection(api, kind, namespace), action.manifest)


def _collection(api: str, kind: str, namespace: str) -> str:
    """API path of the objects of one kind; every gang system's group is called PodGroup."""
    prefix = "/api" if api == "v1" else "/apis"
    plural = "networkpolicies" if kind == "NetworkPolicy" else f"{kind.lower()}s"
    return f"{prefix}/{api}/namespaces/{namespace}/{plural}"


async def _try(job: Job, action: CordonNode | NoteStrike | LatchBreaker, cluster: Cluster, pool: PoolReader) -> bool:
    """What the gang itself does not need. Whether it was done now: a recovery repeats its plan."""
    try:
        match action:
            case CordonNode():
                return await pool.cordon(job, action)
            case NoteStrike(node, strike):
                return await note_strike(cluster, node, strike)
            case LatchBreaker(why):
                return await pool.latch(why)
    except ApiError as error:
        log.warning("not done", action=type(action).__name__, error=str(error))
        if isinstance(action, CordonNode):
            pool.tell_failure(job, action, error)
        return False


async def _create_pods(cluster: Cluster, job: Job, action: CreatePods, throttle: Throttle) -> None:
    path = f"/api/v1/namespaces/{job.namespace}/pods"
    try:
        await _all(throttle, [partial(_create, cluster, path, manifest) for manifest in action.manifests])
    except ApiError as error:
        if not action.optional:
            raise
        log.warning(
            "pods that can be done without are not made", namespace=job.namespace, job=job.name, error=str(error)
        )


async def _create(cluster: Cluster, path: str, manifest: Json) -> None:
    try:
        await _make(cluster, path, manifest)
    except ApiError as error:
        error.creating = True
        raise


async def _create_unseen(cluster: Cluster, namespace: str, manifest: Json) -> None:
    """Create what may not be read: a name that is taken counts as done. Its name is of this job and of what is in it."""
    try:
        await cluster.make(_collection(manifest["apiVersion"], manifest["kind"], namespace), manifest)
    except Conflict:
        return
    except ApiError as error:
        error.creating = True
        raise


async def _make(cluster: Cluster, path: str, manifest: Json) -> None:
    try:
        await cluster.make(path, manifest)
    except Conflict as taken:
        name, owner = manifest["metadata"]["name"], manifest["metadata"]["ownerReferences"][0]["uid"]
        try:
            there = await cluster.get(f"{path}/{name}")
        except NotFound:
            # It went in between.
            raise taken from None
        if not _owned(there, owner):
            raise ApiError(
                409, NAME_TAKEN, f"{path}/{name} belongs to somebody else: delete it, or give the job another name"
            ) from None


def _owned(there: Json, owner: str) -> bool:
    return any(reference.get("uid") == owner for reference in there["metadata"].get("ownerReferences") or [])


async def _all(throttle: Throttle, requests: Sequence[Callable[[], Awaitable[object]]]) -> None:
    """Make requests side by side; all are tried, then the first error is raised."""
    results = await asyncio.gather(*(throttle.run(request) for request in requests), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
