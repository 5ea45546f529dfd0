"""A reconciler over an API server in memory, with one job there."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec
from jobs import START, spec
from memory_api import Json, MemoryApi

from oarlock_operator.kube.events import EventPoster
from oarlock_operator.kube.throttle import Throttle
from oarlock_operator.model.observation import Defaults, GangSystems
from oarlock_operator.model.observed_nodes import Brakes
from oarlock_operator.nodes.pool import PoolReader
from oarlock_operator.nodes.spares import SpareReader
from oarlock_operator.observe.gang_systems import GangReader
from oarlock_operator.observe.memory import Memory
from oarlock_operator.observe.observe import Sources
from oarlock_operator.observe.progress import ProgressReader, Route
from oarlock_operator.pods.pod_facts import RawPod
from oarlock_operator.reconcile import Reconciler

KEY = ("default", "flux")
PATH = "/apis/oarlock.dev/v1alpha1/namespaces/default/trainingjobs/flux"
PODS = "/api/v1/namespaces/default/pods"


class JobApi(MemoryApi):
    """With lists by labels that are equal, and a status that is written by itself."""

    async def list(self, path: str, *, labelSelector: str = "") -> list[Json]:  # noqa: N803 - the API's own spelling
        self.requests.append(("LIST", path))
        wanted = [term.partition("=") for term in labelSelector.split(",") if "!" not in term and term]
        found = [body for name, body in self.objects.items() if name.startswith(path + "/")]
        return [
            body
            for body in found
            if all((body["metadata"].get("labels") or {}).get(key) == value for key, _, value in wanted)
        ]

    async def list_of(self, kind: type[RawPod], path: str, **query: str) -> list[RawPod]:
        return [msgspec.convert(raw, kind) for raw in await self.list(path, **query)]

    async def create(self, path: str, body: Json) -> Json:
        made = await super().create(path, body)
        if path == PODS:
            self.objects[f"{path}/{made['metadata']['name']}"]["metadata"]["uid"] = f"uid-{made['metadata']['name']}"
        return made

    async def replace(self, path: str, body: Json) -> Json:
        whole = {**self.objects[path.removesuffix("/status")], "status": body["status"]}
        whole["metadata"] = {**whole["metadata"], "resourceVersion": body["metadata"]["resourceVersion"]}
        return await super().replace(path.removesuffix("/status"), whole)


def with_job(status: Any = None, **wanted: Any) -> JobApi:
    """An API server that has the job flux."""
    api = JobApi()
    api.objects["/apis"] = {"groups": []}
    metadata = {"namespace": "default", "name": "flux", "uid": "uid-1", "resourceVersion": "1", "generation": 1}
    api.objects[PATH] = {
        "metadata": metadata,
        "spec": {**spec().to_manifest(), **wanted},
        **({} if status is None else {"status": status}),
    }
    return api


def reconciler(api: MemoryApi, *, clock: Callable[[], datetime] = lambda: START) -> Reconciler:
    """An operator that has just started."""
    cluster: Any = api
    return Reconciler(
        sources=Sources(
            cluster=cluster,
            progress=ProgressReader(cluster, Route.DIRECT, clock=time.monotonic),
            gangs=GangReader(cluster, clock=lambda: 0.0, _known=GangSystems()),
            clock=clock,
        ),
        memory=Memory(),
        defaults=Defaults(trainer_image="trainer:test"),
        pool=PoolReader(cluster=cluster, brakes=Brakes(namespace="default")),
        spares=SpareReader(cluster),
        throttle=Throttle(4),
        events=EventPoster(cluster, instance="test"),
    )


def pod_of(rank: int, status: Json) -> Json:
    """The job's pod of a rank, of attempt 1, on a node of its own."""
    labels = {"oarlock.dev/job": "flux", "oarlock.dev/job-uid": "uid-1", "oarlock.dev/attempt": "1"}
    return {
        "metadata": {
            "name": f"flux-1-{rank}",
            "namespace": "default",
            "uid": f"pod-{rank}",
            "labels": {**labels, "oarlock.dev/rank": str(rank)},
            "ownerReferences": [{"kind": "TrainingJob", "name": "flux", "uid": "uid-1"}],
        },
        "spec": {"nodeName": f"node-{rank}"},
        "status": status,
    }
