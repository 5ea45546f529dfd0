"""Facts from a cluster: a few requests side by side, made as the caller. What may not be read is said; nothing fails by it.

The job; its pods by their label; then, as far as they matter, Events of the job, of its claims and of a few pods, nodes,
claims and the gang's group. However large the gang is, they are a dozen at most, or with eight named nodes twenty. How
requests are made is the caller's: a function from a path of the API to what stands there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from oarlock.clock import when, written
from oarlock.cluster import jobs_path
from oarlock.errors import ForbiddenError, NotFoundError, OarlockError, UnknownCallerError
from oarlock.facts.model import Facts, Missing, Object, Output
from oarlock_api.contract.names import Label, group_name

MOST_EVENTS = 500
"""Of one object; where there are more, some are left out, and that is said."""
MOST_PODS = 4
"""Whose Events are read, those first that do not run: all ranks hang alike."""
MOST_NODES = 8
"""Named nodes that are read one by one; of more, all nodes are listed."""
_GROUPS = {
    "Kueue": ("kueue.x-k8s.io/v1beta2/workloads", "kueue.x-k8s.io/v1beta1/workloads"),
    "Volcano": ("scheduling.volcano.sh/v1beta1/podgroups",),
    "Coscheduling": ("scheduling.x-k8s.io/v1alpha1/podgroups",),
    "KAI": ("scheduling.run.ai/v2alpha2/podgroups",),
    "Native": ("scheduling.k8s.io/v1beta1/podgroups", "scheduling.k8s.io/v1alpha2/podgroups"),
}
"""Gang system -> where its objects are, the newest version first. Kueue names its own after the gang, the others are ours."""


Read = Callable[[str], Object]
"""GET of a path of the API with its query, as the caller, as Cluster.get does it. Raises OarlockError."""


def from_cluster(
    read: Read, *, namespace: str, name: str, now: datetime, output: Output | None = None, workers: int = 8
) -> Facts:
    """What can be had. `output` is what was read of the job's output where it is mounted here.

    Raises OarlockError where nothing can be had: no cluster answers, neither the job nor its pods may be read, or neither
    they nor an Event of theirs are there; and UnknownCallerError where the cluster does not know the caller, or not any more.
    """
    return _Reader(read, namespace, name, now, workers).facts(output)


class _Reader:
    def __init__(self, read: Read, namespace: str, name: str, now: datetime, workers: int) -> None:
        self._read = read
        self._core = f"/api/v1/namespaces/{namespace}"
        self._namespace, self._name, self._now, self._workers = namespace, name, now, workers
        self._missing: list[Missing] = []
        self._no_job: OarlockError | None = None

    def facts(self, output: Output | None) -> Facts:
        with ThreadPoolExecutor(self._workers) as pool:
            job_ = pool.submit(self._job)
            pods_ = pool.submit(
                self._list, f"{self._core}/pods?labelSelector={quote(f'{Label.JOB.value}={self._name}')}", "pods"
            )
            told = [pool.submit(self._events, self._name)]
            job, pods = job_.result(), pods_.result()
            claims = _claim_names(job, pods)
            groups_ = pool.submit(self._groups, job, pods)
            claims_ = [
                pool.submit(self._one, f"{self._core}/persistentvolumeclaims/{quote(claim)}", f"the claim {claim}")
                for claim in claims
            ]
            told += [pool.submit(self._events, name) for name in (*claims, *_telling(pods))]
            nodes_ = pool.submit(self._nodes, pool, job, pods)
            events = [event for one in told for event in one.result()]
            if self._no_job and not pods and not events and output is None:
                raise self._no_job
            return Facts(
                namespace=self._namespace,
                name=self._name,
                time=written(self._now.astimezone(UTC)),
                job=job,
                events=tuple(sorted(events, key=when)),
                pods=tuple(sorted(pods, key=lambda pod: str(pod["metadata"]["name"]))),
                nodes=tuple(nodes_.result()),
                groups=tuple(groups_.result()),
                claims=tuple(claim for one in claims_ if (claim := one.result())),
                output=output,
                missing=tuple(dict.fromkeys(self._missing)),
            )

    def _events(self, name: str) -> list[Object]:
        about = quote(f"involvedObject.name={name}")
        return self._list(f"{self._core}/events?limit={MOST_EVENTS}&fieldSelector={about}", "Events")

    def _job(self) -> Object | None:
        try:
            return trimmed(self._read(jobs_path(self._namespace, self._name)))
        except (NotFoundError, ForbiddenError) as error:
            self._lacks("the job's object", error)
            self._no_job = error
            return None

    def _nodes(self, pool: ThreadPoolExecutor, job: Object | None, pods: Iterable[Object]) -> list[Object]:
        names = _node_names(job, pods)
        unplaced = any(not (pod.get("spec") or {}).get("nodeName") for pod in pods)
        if unplaced or len(names) > MOST_NODES:
            found = self._list("/api/v1/nodes?limit=1000", "nodes")
            return [one for one in found if unplaced or one["metadata"]["name"] in names]
        asked = [pool.submit(self._one, f"/api/v1/nodes/{quote(name)}", f"the node {name}") for name in sorted(names)]
        return [node for one in asked if (node := one.result())]

    def _groups(self, job: Object | None, pods: Iterable[Object]) -> list[Object]:
        status = (job or {}).get("status") or {}
        paths = _GROUPS.get((status.get("resolved") or {}).get("gang") or "", ())
        placed = all((pod.get("spec") or {}).get("nodeName") for pod in pods)
        if job is None or not paths or status.get("completionTime") or (placed and pods):
            return []
        name = group_name(self._name, job["metadata"]["uid"], status.get("attempt") or 0)
        last: OarlockError | None = None
        for path in paths:
            api, _, resource = path.rpartition("/")
            try:
                return [trimmed(self._read(f"/apis/{api}/namespaces/{self._namespace}/{resource}/{quote(name)}"))]
            except UnknownCallerError:
                raise
            except OarlockError as error:
                last = error
        self._lacks("the gang's group", last) if last else None
        return []

    def _one(self, path: str, what: str) -> Object | None:
        try:
            return trimmed(self._read(path))
        except OarlockError as error:
            self._lacks(what, error)
            return None

    def _list(self, path: str, what: str) -> list[Object]:
        try:
            found = self._read(path)
        except OarlockError as error:
            self._lacks(what, error)
            return []
        if (found.get("metadata") or {}).get("continue"):
            self._missing.append(Missing(what=what, why="there are too many, and only a part was read"))
        return [trimmed(one) for one in found.get("items") or []]

    def _lacks(self, what: str, error: OarlockError) -> None:
        if isinstance(error, UnknownCallerError):
            raise error  # all that comes after it would be refused, too
        words: dict[type, str] = {NotFoundError: "it is not there", ForbiddenError: "you may not read it"}
        self._missing.append(Missing(what=what, why=words.get(type(error)) or str(error)[:256]))


def trimmed(found: Object) -> Object:
    """An object without what nobody explains anything with: who wrote which field, a node's images, a pod's job.json."""
    metadata = {key: value for key, value in (found.get("metadata") or {}).items() if key != "managedFields"}
    if "annotations" in metadata:
        metadata["annotations"] = {k: v for k, v in metadata["annotations"].items() if len(v) <= 1024}
    status = found.get("status")
    if isinstance(status, dict):
        status = {
            key: value for key, value in status.items() if key not in ("images", "volumesAttached", "volumesInUse")
        }
    return {**found, "metadata": metadata, **({"status": status} if status is not None else {})}


def _label(pod: Object, label: Label) -> str:
    return str((pod["metadata"].get("labels") or {}).get(label.value, ""))


def _telling(pods: Iterable[Object]) -> list[str]:
    """Names of the pods whose Events are worth a request: the newest attempt's, and of them those that do not run."""

    def order(pod: Object) -> tuple[int, bool, str]:
        runs = (pod.get("status") or {}).get("phase") == "Running"
        return -int(_label(pod, Label.ATTEMPT) or 0), runs, str(pod["metadata"]["name"])

    return [pod["metadata"]["name"] for pod in sorted(pods, key=order)[:MOST_PODS]]


def _node_names(job: Object | None, pods: Iterable[Object]) -> set[str]:
    status: Mapping[str, Any] = (job or {}).get("status") or {}
    named = {(pod.get("spec") or {}).get("nodeName") for pod in pods}
    named |= {one.get("name") for key in ("avoidedNodes", "cordonedNodes") for one in status.get(key) or []}
    named.add((status.get("lastFault") or {}).get("nodeName"))
    return {name for name in named if name}


def _claim_names(job: Object | None, pods: Iterable[Object]) -> list[str]:
    volumes = [volume for pod in list(pods)[:1] for volume in (pod.get("spec") or {}).get("volumes") or []]
    found = {(volume.get("persistentVolumeClaim") or {}).get("claimName") for volume in volumes}
    output = ((job or {}).get("spec") or {}).get("output") or {}
    found.add((output.get("persistentVolumeClaim") or {}).get("claimName"))
    return sorted(name for name in found if name)
