"""Who may write where: the operator's memory of unfinished jobs and of pods, by the output that they write to.

It never lacks anybody: it begins with a list of the namespace, each pass tells of its job, and each pod is noted when it is
made. It may well hold some who are gone, so that whoever it names is looked at before anything is decided. That way a job
whose output is nobody else's asks nobody, and a thousand of them do not search each other's pods. Single-threaded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from msgspec import Struct
from pydantic import ValidationError

from oarlock_api.contract.names import API_VERSION, PLURAL, Label
from oarlock_api.output import Output
from oarlock_api.spec import OPERATOR
from oarlock_operator.kube.cluster import Cluster, Json
from oarlock_operator.manifests.ownership import mark_of, output_mark
from oarlock_operator.model.observation import Job, Key
from oarlock_operator.pods.pod_facts import Metadata

ENDED = ("Succeeded", "Failed")


class _Spec(Struct, frozen=True, rename="camel"):
    output: dict[str, Any] | None = None
    managed_by: str | None = None


class _Status(Struct, frozen=True, rename="camel"):
    completion_time: str | None = None


class _Job(Struct, frozen=True):
    metadata: Metadata
    spec: _Spec = _Spec()
    status: _Status = _Status()


class _Phase(Struct, frozen=True):
    phase: str = ""


class _Pod(Struct, frozen=True):
    metadata: Metadata
    status: _Phase = _Phase()


class PodVersion(NamedTuple):
    """A pod as a watch told of it last."""

    name: str
    uid: str
    version: str


@dataclass(frozen=True, slots=True)
class _Held:
    """A pod: of which job, where it writes, and whether it may still."""

    job: str
    job_uid: str
    mark: str
    living: bool
    owner: str = ""
    """Uid of its only owner; empty where it has several or none, where it is being deleted, and before a watch told of it."""
    uid: str = ""
    version: str = ""


@dataclass(slots=True)
class _Namespace:
    """What is known of one namespace. Pods by name, and their names by job and by mark."""

    jobs: dict[str, str] = field(default_factory=dict)
    pods: dict[str, _Held] = field(default_factory=dict)
    of_job: dict[str, set[str]] = field(default_factory=dict)
    of_mark: dict[str, set[str]] = field(default_factory=dict)
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)
    complete: bool = False

    def put(self, name: str, pod: _Held) -> None:
        self.drop(name)
        self.pods[name] = pod
        self.of_job.setdefault(pod.job, set()).add(name)
        self.of_mark.setdefault(pod.mark, set()).add(name)

    def drop(self, name: str) -> None:
        if (pod := self.pods.pop(name, None)) is None:
            return
        for index, key in ((self.of_job, pod.job), (self.of_mark, pod.mark)):
            index[key].discard(name)
            if not index[key]:
                del index[key]


class Outputs:
    """The memory of all namespaces."""

    def __init__(self) -> None:
        self._namespaces: dict[str, _Namespace] = {}

    def note_job(self, job: Job) -> None:
        """A pass has read a job. One that can't be read any more keeps the output that it had."""
        known = self._of(job.namespace)
        if job.deleting or job.status.completion_time is not None or job.managed_by != OPERATOR:
            known.jobs.pop(job.name, None)
        elif job.spec is not None:
            known.jobs[job.name] = output_mark(job)

    def forget_job(self, key: Key) -> None:
        """The job is gone; its pods may not be."""
        self._of(key[0]).jobs.pop(key[1], None)

    def note_pod(self, metadata: Metadata, phase: str, *, gone: bool) -> None:
        """A watch or a list tells of a pod."""
        known = self._of(metadata.namespace)
        if gone:
            known.drop(metadata.name)
        else:
            known.put(metadata.name, _seen(metadata, living=phase not in ENDED))

    def note_made(self, manifests: Iterable[Json]) -> None:
        """The operator makes these pods: no watch may have told of them yet."""
        for metadata in (manifest["metadata"] for manifest in manifests):
            self._of(metadata["namespace"]).put(metadata["name"], _held(metadata["labels"], living=True))

    async def complete(self, cluster: Cluster, namespace: str) -> None:
        """Know everybody in a namespace: two lists, once. Raises ApiError."""
        known = self._of(namespace)
        if known.complete:
            return
        async with known.reading:
            if not known.complete:
                await _read(cluster, namespace, known)
                known.complete = True

    def pods_of(self, key: Key) -> frozenset[str] | None:
        """Names of all pods of jobs of that name, as surely as a list would tell them, and of some that may be gone.

        None: they have to be listed.
        """
        known = self._of(key[0])
        return frozenset(known.of_job.get(key[1], ())) if known.complete else None

    def jobs_with_pods(self) -> set[Key]:
        """Whose pods are remembered, whether or not the job is still there."""
        return {(namespace, job) for namespace, known in self._namespaces.items() for job in known.of_job}

    def left_by(self, key: Key, uid: str) -> Iterator[PodVersion]:
        """Pods that have no owner but the job of that name and uid, and are not being deleted: each as known at its turn."""
        known = self._of(key[0])
        for name in sorted(known.of_job.get(key[1], ())):
            if (pod := known.pods.get(name)) and pod.owner == uid:
                yield PodVersion(name, pod.uid, pod.version)

    def settle(self, key: Key, names: Iterable[str]) -> None:
        """Jobs of that name have these pods and no others: a watch that began anew does not tell of who went meanwhile."""
        known = self._of(key[0])
        for name in known.of_job.get(key[1], set()) - set(names):
            known.drop(name)

    def others(self, job: Job) -> list[str]:
        """Names of other jobs that may be unfinished and write to the same output."""
        mark = output_mark(job)
        return [name for name, other in self._of(job.namespace).jobs.items() if other == mark and name != job.name]

    def may_linger(self, job: Job) -> bool:
        """Whether pods of other jobs may still write to the same output."""
        known = self._of(job.namespace)
        pods = (known.pods[name] for name in known.of_mark.get(output_mark(job), ()))
        return any(pod.living and pod.job_uid != job.uid for pod in pods)

    def _of(self, namespace: str) -> _Namespace:
        return self._namespaces.setdefault(namespace, _Namespace())


async def _read(cluster: Cluster, namespace: str, known: _Namespace) -> None:
    """What a pass or a watch told meanwhile is newer."""
    async for jobs in cluster.pages_of(_Job, f"/apis/{API_VERSION}/namespaces/{namespace}/{PLURAL}"):
        for job in jobs.items:
            ours = (job.spec.managed_by or OPERATOR) == OPERATOR and job.status.completion_time is None
            if ours and (mark := _mark(job)):
                known.jobs.setdefault(job.metadata.name, mark)
    path = f"/api/v1/namespaces/{namespace}/pods"
    async for pods in cluster.pages_of(_Pod, path, labelSelector=Label.JOB.value):
        for pod in pods.items:
            if pod.metadata.name not in known.pods:
                known.put(pod.metadata.name, _seen(pod.metadata, living=pod.status.phase not in ENDED))


def _mark(job: _Job) -> str:
    try:
        return mark_of(Output.model_validate(job.spec.output or {}), job.metadata.name)
    except ValidationError:
        return ""


def _seen(metadata: Metadata, *, living: bool) -> _Held:
    owners = {owner.uid for owner in metadata.owner_references or ()}
    owned = len(owners) == 1 and metadata.deletion_timestamp is None
    return replace(
        _held(metadata.labels or {}, living=living),
        owner=owners.pop() if owned else "",
        uid=metadata.uid,
        version=metadata.resource_version,
    )


def _held(labels: dict[str, str], *, living: bool) -> _Held:
    job, uid, mark = (labels.get(label.value, "") for label in (Label.JOB, Label.JOB_UID, Label.OUTPUT))
    return _Held(job=job, job_uid=uid, mark=mark, living=living)
