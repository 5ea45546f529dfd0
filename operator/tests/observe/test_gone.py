"""A job that is gone, or going, costs one look: what its pods still do is no news."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import msgspec
from jobs import START
from observe.test_observe import Listing, Silent, cluster_with
from raw_pods import container, pod

from oarlock_operator.execute import DELETING_AT_ONCE
from oarlock_operator.kube.throttle import Throttle
from oarlock_operator.model.observation import Defaults
from oarlock_operator.model.observed_nodes import Brakes
from oarlock_operator.model.plan import Event
from oarlock_operator.nodes.pool import PoolReader
from oarlock_operator.observe.gang_systems import GangReader
from oarlock_operator.observe.gone_jobs import GoneJobs
from oarlock_operator.observe.memory import Memory
from oarlock_operator.observe.observe import Sources
from oarlock_operator.pods.pod_facts import RawPod
from oarlock_operator.process.sinks import Sinks
from oarlock_operator.process.watches import SeenJob
from oarlock_operator.process.workers import delete_pods_of
from oarlock_operator.process.workqueue import WorkQueue
from oarlock_operator.reconcile import Reconciler

KEY = ("default", "flux")
JOB = "/apis/oarlock.dev/v1alpha1/namespaces/default/trainingjobs/flux"
META = {"uid": "uid-1", "resourceVersion": "9"}
Json = dict[str, Any]


class Serving(Listing):
    """With the job's status as a resource of its own."""

    async def replace(self, path: str, body: Json) -> Json:
        await self._asked("PUT", path)
        return self._store(JOB, {**self._there(JOB), "status": body["status"]})


def serving(*pods: Json) -> Serving:
    api = Serving()
    api.objects = cluster_with(*pods).objects
    api.objects[JOB]["metadata"]["resourceVersion"] = "1"
    return api


class Operator:
    """Its reconciler and its sinks, over an API in memory."""

    def __init__(self, api: Listing) -> None:
        self.api = api
        silent: Any = Silent()
        cluster: Any = api
        self.told: list[str] = []
        nothing: Any = SimpleNamespace(post=self._tell)
        self.reconciler = Reconciler(
            sources=Sources(
                cluster=cluster, progress=silent, gangs=GangReader(cluster, clock=lambda: 0.0), clock=lambda: START
            ),
            memory=Memory(),
            defaults=Defaults(trainer_image="i"),
            pool=PoolReader(cluster=cluster, brakes=Brakes(namespace="oarlock")),
            spares=nothing,
            throttle=Throttle(4),
            events=nothing,
        )
        self.queue: WorkQueue[tuple[str, str]] = WorkQueue(clock=time.monotonic)
        self.sinks = Sinks(
            jobs=self.queue,
            nodes=WorkQueue(clock=time.monotonic),
            ends=WorkQueue(clock=time.monotonic),
            memory=self.reconciler.memory,
        )

    def _tell(self, _job: object, events: Sequence[Event], *, now: object) -> None:
        assert now == START
        self.told += [event.reason for event in events]

    async def look(self) -> list[tuple[str, str]]:
        """One pass; the requests that it made."""
        before = len(self.api.requests)
        await self.reconciler.reconcile(KEY, waited=0.0)
        return self.api.requests[before:]

    async def tidy(self) -> list[tuple[str, str]]:
        """What is done about the pods of jobs that are gone; the requests that it made."""
        before, gate = len(self.api.requests), asyncio.Semaphore(DELETING_AT_ONCE)
        while len(self.sinks.ends):
            end, _ = await self.sinks.ends.get()
            await delete_pods_of(end, self.reconciler, gate)
            self.sinks.ends.done(end)
        return self.api.requests[before:]

    def hear_of_the_job(self, kind: str, **metadata: Any) -> None:
        """An event of the job."""
        known = {**metadata, **META, "namespace": KEY[0], "name": KEY[1]}
        self.sinks.job_event(kind, msgspec.convert({"metadata": known}, SeenJob))

    def hear(self, kind: str, raw: Json) -> bool:
        """An event of a pod; whether it leads to a look, now or later."""
        before = (len(self.queue), dict(self.queue._timers))
        self.sinks.pod_event(kind, msgspec.convert(raw, RawPod))
        return (len(self.queue), dict(self.queue._timers)) != before


def ended(uid: str, **metadata: Any) -> Json:
    return pod({"containerStatuses": container(terminated={"exitCode": 143})}, uid=uid, **metadata)


async def test_of_a_job_that_was_deleted_the_end_is_looked_at_once_and_its_pods_no_more() -> None:
    api = serving(*(pod(uid=f"p{number}") for number in range(4)))
    operator = Operator(api)
    await operator.look()
    operator.hear_of_the_job("DELETED")
    del api.objects[JOB]
    assert len(operator.queue) == 1
    assert await operator.look() == [("GET", JOB)]
    for number in range(4):
        assert not operator.hear("MODIFIED", pod(uid=f"p{number}", deletionTimestamp="2026-01-01T00:00:00Z"))
        assert not operator.hear("MODIFIED", ended(f"p{number}"))
        assert not operator.hear("DELETED", ended(f"p{number}"))
    assert operator.reconciler.memory.terminated.departed("default", "uid-1", alive=set()) == []


async def test_a_job_that_a_pass_misses_is_known_to_be_gone_before_a_watch_tells_of_it() -> None:
    api = serving(pod(uid="p0"))
    operator = Operator(api)
    await operator.look()
    del api.objects[JOB]
    assert operator.hear("DELETED", ended("p0"))
    await operator.look()
    assert not operator.hear("DELETED", ended("p1"))


async def test_pods_of_a_job_that_is_gone_are_forgotten_by_a_later_look_though_no_watch_told_of_their_end() -> None:
    api = serving(pod(uid="p0", name="p0"))
    operator = Operator(api)
    outputs = operator.reconciler.memory.outputs
    await outputs.complete(api, "default")  # type: ignore[arg-type]
    await operator.look()
    operator.hear_of_the_job("DELETED")
    api.objects = {path: found for path, found in api.objects.items() if path != JOB and "/pods/" not in path}
    assert await operator.look() == [("GET", JOB)]
    assert outputs.jobs_with_pods() == {KEY}, "the next resync asks for it again"
    await operator.look()
    assert outputs.jobs_with_pods() == set()


async def test_a_job_that_is_to_go_is_not_looked_at_for_each_of_its_pods_but_now_and_then_until_they_are_gone() -> None:
    api = serving(pod(uid="p0", name="p0"))
    operator = Operator(api)
    await operator.look()
    api.objects["/api/v1/namespaces/default/pods/p0"] = pod(uid="p0", name="p0")
    api.objects[JOB]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    operator.hear_of_the_job("MODIFIED", **api.objects[JOB]["metadata"])
    assert not operator.hear("MODIFIED", ended("p0", name="p0"))
    assert await operator.reconciler.reconcile(KEY, waited=0.0) == 10.0
    assert not [verb for verb, _ in await operator.look() if verb not in ("GET", "LIST")], "nothing is written"
    api.objects = {path: found for path, found in api.objects.items() if "/pods/" not in path}
    assert await operator.reconciler.reconcile(KEY, waited=0.0) is None


async def test_a_new_job_of_the_same_name_is_another_one() -> None:
    api = serving()
    operator = Operator(api)
    await operator.look()
    operator.hear_of_the_job("DELETED")
    api.objects[JOB]["metadata"]["uid"] = "uid-2"
    await operator.look()
    again = {"oarlock.dev/job": "flux", "oarlock.dev/job-uid": "uid-2", "oarlock.dev/attempt": "1"}
    assert operator.hear("MODIFIED", pod(uid="q0", labels=again))
    assert operator.reconciler.memory.expects(KEY)


def test_only_so_many_jobs_are_remembered_and_the_oldest_costs_a_look_in_vain() -> None:
    gone = GoneJobs(limit=2)
    for uid in ("a", "b", "c"):
        gone.note(uid)
    assert [gone.holds(uid) for uid in "abc"] == [False, True, True]
