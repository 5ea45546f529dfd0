"""Observe: read a job, its pods and its Service live, and reduce them to what decisions need.

Never from a cache: a watch tells when to look, not what is there. What a watch saw of a pod's end is added
(`memory.terminated`), because a deleted pod is gone half a second after its last words.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import msgspec

from oarlock_api.contract.names import KIND, Label, service_name
from oarlock_api.history import RecoveryStage
from oarlock_api.scheduling import Gang
from oarlock_api.spec import OPERATOR, TrainingJobSpec
from oarlock_operator.decide.cordon import is_open
from oarlock_operator.decide.leader_alone import witnesses
from oarlock_operator.kube.api_error import NotFound
from oarlock_operator.kube.cluster import Cluster, Json
from oarlock_operator.kube.job_paths import job_path
from oarlock_operator.manifests.service import needs_service
from oarlock_operator.model.job_memory import JobMemory
from oarlock_operator.model.observation import (
    Defaults,
    GangSystems,
    Group,
    Job,
    Key,
    Observation,
    Pod,
    ServiceSeen,
    absent,
    gang_size,
    newest,
    standing_by,
)
from oarlock_operator.model.observed_nodes import Node
from oarlock_operator.nodes.troubled import TroubledNodes, read_nodes
from oarlock_operator.observe.gang_systems import GangReader
from oarlock_operator.observe.groups import are_settled, note_groups, read_groups
from oarlock_operator.observe.job_facts import read_job
from oarlock_operator.observe.memory import Memory
from oarlock_operator.observe.output_conflicts import lingering, rival
from oarlock_operator.observe.outputs import Outputs
from oarlock_operator.observe.progress import ProgressReader, request_seconds, unmonitored
from oarlock_operator.pods.pod_facts import RawPod, read_pod
from oarlock_operator.pods.pod_warnings import with_pod_warnings
from oarlock_operator.pods.strays import find_strays

_MOVING = {
    RecoveryStage.DRAIN,
    RecoveryStage.QUEUE,
    RecoveryStage.SCHEDULE,
    RecoveryStage.STOPPING,
    RecoveryStage.SUSPENDING,
}
"""Stages in which groups are made, wait in a queue, or are to go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Where a look asks. `clock` is the wall clock in UTC."""

    cluster: Cluster
    progress: ProgressReader
    gangs: GangReader
    clock: Callable[[], datetime]


async def observe(
    sources: Sources, memory: Memory, key: Key, *, defaults: Defaults, waited: float
) -> tuple[Observation, Json] | None:
    """One pass's view and the raw job (for its resourceVersion), or None where the job is gone. Raises ApiError."""
    cluster, outputs = sources.cluster, memory.outputs
    raw, listed = await _job_and_pods(cluster, key, outputs, expected=memory.expects(key))
    if raw is None:
        return None
    # After an answer: what it tells happened before now.
    now = sources.clock()
    job = read_job(raw)
    known = memory.met(key, job.uid)
    outputs.note_job(job)
    ours = [found for found in listed if found.owned_by(job.uid)]
    left = memory.terminated.departed(job.namespace, job.uid, alive={found.metadata.uid for found in ours})
    strays = await find_strays(cluster, job, ours, left, memory.terminated) if job.managed_by == OPERATOR else []
    seen = {pod.uid: pod for pod in map(read_pod, (*ours, *strays))}
    namesakes = [found.metadata.name for found in listed if found.of_a_namesake(job.name, job.uid)]
    departed = tuple(read_pod(pod, gone=True) for pod in left if pod.owned_by(job.uid) and pod.metadata.uid not in seen)
    everything = (*await with_pod_warnings(cluster, job, list(seen.values()), now=now), *departed)
    nodes = await read_nodes(cluster, _nodes_to_read(job, everything, memory.troubled, now=now))
    everything = memory.troubled.with_restarts(everything, nodes)
    number = job.status.attempt
    current = newest(everything, job.status, number)
    counted = {pod.uid for pod in current}
    doubtful = [
        pod
        for pod in seen.values()
        if not pod.stopped and _is_doubtful(pod, nodes.get(pod.node), counts=pod.uid in counted)
    ]
    # Nobody asks any more how far a job has come that is to go.
    news, silent = await sources.progress.read(job, everything, known) if not job.deleting else (None, {})
    lost = witnesses(current, news, standing_by(job.status, number))
    doubtful += [pod for pod in lost if pod not in doubtful]
    systems, groups = await _look_for_gangs(cluster, job, everything, known, sources.gangs)
    around = await _look_around(cluster, job, raw, list(seen.values()), outputs) if _creates(job) else None
    return Observation(
        now=now,
        job=job,
        defaults=defaults,
        pods=everything,
        service=around.service if around else await _leaders_service(cluster, job),
        systems=systems,
        groups=groups,
        looked_around=around is not None,
        rival=around.rival if around else "",
        lingering=tuple(sorted({*(around.lingering if around else ()), *namesakes})),
        orphans=tuple(sorted(name for name, orphan in around.lingering.items() if orphan)) if around else (),
        progress=replace(news, rounds=()) if news and known.drops_rounds else news,
        request_seconds=request_seconds(job, known),
        silent=silent,
        refusing=frozenset(uid for uid, heard in known.heard.items() if heard.refuses),
        warnings={uid: heard.warning for uid, heard in known.heard.items() if heard.warning},
        held={uid: heard.held for uid, heard in known.heard.items() if heard.held},
        unmonitored=unmonitored(job, known),
        nodes=nodes,
        answering=await sources.progress.answering(job, doubtful, known),
        waited=waited,
        ended_seconds=memory.terminated.seconds_since_the_first(
            pod.uid for pod in current if pod.stopped and not pod.succeeded
        ),
        hindrance=known.hindrance,
        refusal=known.refusal,
    ), raw


async def _job_and_pods(
    cluster: Cluster, key: Key, outputs: Outputs, *, expected: bool
) -> tuple[Json | None, Sequence[RawPod]]:
    """Both side by side, where they are likely to be there.

    A job that has not begun has no pods, and there are none of an earlier job of its name, if none are known.
    """
    path, known = job_path(*key), outputs.pods_of(key)
    if expected and known != frozenset():
        raw, pods = await asyncio.gather(_found(cluster, path), _pods(cluster, key, known))
    else:
        raw = await _found(cluster, path)
        if raw is None or (known == frozenset() and not (raw.get("status") or {}).get("attempt")):
            return raw, ()
        pods = await _pods(cluster, key, known)
    outputs.settle(key, (pod.metadata.name for pod in pods))
    return raw, pods


async def _pods(cluster: Cluster, key: Key, known: frozenset[str] | None) -> Sequence[RawPod]:
    """By the job's name, not by its uid: pods of an earlier job of the same name hold the names that this one's are to have.

    A list makes the server look at every pod of the namespace: where there is but one pod, it is asked for by its name.
    """
    path = f"/api/v1/namespaces/{key[0]}/pods"
    if known is None or len(known) != 1:
        return await cluster.list_of(RawPod, path, labelSelector=f"{Label.JOB.value}={key[1]}")
    (name,) = known
    raw = await _found(cluster, f"{path}/{name}")
    return () if raw is None else (msgspec.convert(raw, RawPod),)


def _is_doubtful(pod: Pod, node: Node | None, *, counts: bool) -> bool:
    """Whether the pod itself is asked if its node works: the node says no, or may not be read and has a taint.

    Not where another pod takes its place and nobody can stop this one: the next one would wait until the question times out.
    """
    if node is None:
        return pod.tainted
    return node.exists and not node.ready and (counts or not node.unreachable)


def _nodes_to_read(job: Job, pods: Sequence[Pod], troubled: TroubledNodes, *, now: datetime) -> set[str]:
    """Nodes of pods that a watch saw in trouble, and such as are to be cordoned.

    And, while the job does not simply train, those that it avoids.
    """
    names = troubled.among(pod.node for pod in pods if pod.node and not pod.gone)
    names |= {pod.node for pod in pods if pod.node and pod.tainted and pod.attempt == job.status.attempt}
    if job.status.recovery.stage is None:
        # The watch remembers pods for long: those of earlier attempts that are gone are no news to a job that trains.
        pods = [pod for pod in pods if not pod.gone or pod.attempt == job.status.attempt]
    # A GPU's past lies on its node, and is asked for where the GPU has failed again.
    names |= {pod.node for pod in pods if pod.node and pod.report and pod.report.gpu}
    names |= {pod.node for pod in pods if pod.node and pod.ending and pod.ending.unexplained}
    names |= {entry.name for entry in job.status.cordoned_nodes if is_open(entry, now=now)}
    # A lost node's pod may be made anew in this very pass, and a node that was given back may take it.
    quiet = job.status.recovery.stage is None and not names and not any(pod.stopped or pod.deleting for pod in pods)
    return names if quiet else names | {node.name for node in job.status.avoided_nodes}


async def _look_for_gangs(
    cluster: Cluster, job: Job, pods: Sequence[Pod], memory: JobMemory, gangs: GangReader
) -> tuple[GangSystems, tuple[Group, ...]]:
    """What a gang could be made of, where one is to be; and the groups there are, while any may wait, go or be left."""
    status = job.status
    over, stage = status.completion_time is not None, status.recovery.stage
    asked = job.spec is not None and not job.spec.suspend and job.spec.scheduling.gang is not Gang.NONE
    suspended = stage == RecoveryStage.SUSPENDED
    choosing = asked and not over and (status.attempt == 0 or suspended)
    gang = Gang((status.resolved.gang if status.resolved else None) or Gang.NONE)
    used = gang is not Gang.NONE
    # What a watch remembers of earlier attempts moves nothing any more.
    current = [pod for pod in pods if not pod.gone or pod.attempt == status.attempt]
    moving = stage in _MOVING or any(pod.stopped or pod.deleting for pod in current)
    looking = used and ((moving and not over and not suspended) or not are_settled(job, memory))
    if job.deleting or not (choosing or looking):
        return GangSystems(), ()
    systems = await gangs.read(choosing=choosing, used=gang)
    if not looking:
        return systems, ()
    groups = await read_groups(cluster, job, systems)
    if gang in systems.apis:
        # What is not served at the moment, as by a server that starts, is not known to be gone.
        note_groups(job, groups, memory)
    return systems, groups


@dataclass(frozen=True, slots=True)
class _Around:
    """What a job that is to make its pods shares names and output with."""

    rival: str
    lingering: Mapping[str, bool] = field(default_factory=dict)
    service: ServiceSeen | None = None


async def _look_around(cluster: Cluster, job: Job, raw: Json, pods: Sequence[Pod], outputs: Outputs) -> _Around:
    """Once all pods are made, only a rival can still be news."""
    if job.spec is None:
        return _Around(rival="")
    await outputs.complete(cluster, job.namespace)
    if job.status.attempt and not absent(gang_size(job.spec, job.status, job.status.attempt), pods, job.status.attempt):
        return _Around(rival=await rival(cluster, job, raw, outputs))
    found = await asyncio.gather(
        rival(cluster, job, raw, outputs), lingering(cluster, job, outputs), _service(cluster, job, job.spec)
    )
    return _Around(*found)


def _creates(job: Job) -> bool:
    """Whether the current attempt's pods are still to be made."""
    status = job.status
    if job.deleting or status.completion_time is not None:
        return False
    return not any(a.number == status.attempt and a.created_time is not None for a in status.attempts)


async def _found(cluster: Cluster, path: str) -> Json | None:
    try:
        return await cluster.get(path)
    except NotFound:
        return None


async def _service(cluster: Cluster, job: Job, spec: TrainingJobSpec) -> ServiceSeen | None:
    if not needs_service(spec):
        return None
    raw = await _found(cluster, f"/api/v1/namespaces/{job.namespace}/services/{service_name(job.name)}")
    if raw is None:
        return None
    metadata, selector = raw["metadata"], raw["spec"].get("selector") or {}
    return ServiceSeen(
        uid=metadata["uid"],
        ours=_owned(raw, job.uid),
        attempt=_whole(selector.get(Label.ATTEMPT)),
        incarnation=_whole(selector.get(Label.INCARNATION), 1),
        leaving="deletionTimestamp" in metadata or _of_a_namesake(raw, job),
    )


async def _leaders_service(cluster: Cluster, job: Job) -> ServiceSeen | None:
    """The Service, where rank 0's pod is made anew: it is to name that one alone."""
    replaced = any(one.rank == 0 for one in job.status.recovery.replacing)
    return await _service(cluster, job, job.spec) if replaced and job.spec and not job.deleting else None


def _of_a_namesake(raw: Json, job: Job) -> bool:
    """Whether an object belongs to an earlier job of the same name."""
    owners = raw["metadata"].get("ownerReferences") or []
    return any((o.get("kind"), o.get("name")) == (KIND, job.name) and o.get("uid") != job.uid for o in owners)


def _owned(raw: Json, uid: str) -> bool:
    """Whether the job owns the object: labels can be copied by anybody."""
    return any(owner.get("uid") == uid for owner in raw["metadata"].get("ownerReferences") or [])


def _whole(value: object, default: int = 0) -> int:
    try:
        return int(str(value))
    except ValueError:
        return default
