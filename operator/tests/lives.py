"""One job's whole life on a real API server, led by reconcilers in this process, with writes that fail as the test says.

The test plays scheduler and kubelet; passes come one after the other, as the work queue would have them.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from kubernetes.aio.client import Configuration

from oarlock_operator.kube.api_error import ApiError, Conflict
from oarlock_operator.kube.cluster import Cluster
from oarlock_operator.kube.events import EventPoster
from oarlock_operator.kube.throttle import Throttle
from oarlock_operator.model.observation import Defaults
from oarlock_operator.model.observed_nodes import Brakes
from oarlock_operator.nodes.pool import PoolReader
from oarlock_operator.nodes.spares import SpareReader
from oarlock_operator.observe.gang_systems import GangReader
from oarlock_operator.observe.memory import Memory
from oarlock_operator.observe.observe import Sources
from oarlock_operator.observe.progress import ProgressReader, Route
from oarlock_operator.reconcile import Reconciler

JOBS = "/apis/oarlock.dev/v1alpha1/namespaces/default/trainingjobs"
CORE = "/api/v1/namespaces/default"
Fault = Callable[[], ApiError]
OTHERS = (
    ApiError(429, "TooManyRequests", "try again later"),
    ApiError(500, "InternalError", "etcdserver: leader changed"),
    ApiError(0, "TimeoutError", "no answer"),
)
KINDS: dict[str, Callable[[int], ApiError]] = {
    "409": lambda _: Conflict(409, "Conflict", "the object has been modified"),
    "429, 500 and timeouts": lambda number: OTHERS[number % len(OTHERS)],
    "applied but the answer was lost": lambda _: OTHERS[2],
    "killed after the write": lambda _: OTHERS[2],
}
END = {
    "phase": "Succeeded",
    "reason": "AllRanksSucceeded",
    "attempt": 3,
    "restartCount": 1,
    "succeeded": 1,
    "failed": 0,
    "restarts": {"application": 1, "infrastructure": 0, "withoutProgress": 1, "voluntary": 0, "evictions": 0},
    "attempts": [(1, None, True), (2, "ApplicationError", True), (3, "Resumed", True)],
    "lastFault": {
        "class": "Application",
        "rank": 1,
        "victims": 0,
        "evidence": "['pod -1-1: exit code 1: ValueError: x']",
    },
    "pods": ["3-0", "3-1"],
    "service": "3",
}
"""What a start, one crash, a suspension and a success leave behind; nothing of it may depend on what failed on the way."""
LOST = "applied but the answer was lost"
KILLED = "killed after the write"


class Administrator(Cluster):
    """The real API as its administrator, whose rights the test's hands need; `operator` is the same with an operator's."""

    def __init__(self, configuration: Configuration, operator: Cluster) -> None:
        super().__init__(configuration)
        self.operator = operator


class FaultyCluster(Cluster):
    """The operator's API, of whose writes those that `breaks` names (from 1 on) fail: before they are sent, or after."""

    def __init__(self, real: Administrator, kind: str, breaks: Callable[[int], bool]) -> None:
        self._client = real.operator._client
        self._session = real.operator._session  # type: ignore[method-assign] - one pool for both
        self.configuration = real.operator.configuration
        self._credentials = real.operator._credentials
        self.unreadable = real.operator.unreadable
        self.server_clock = real.operator.server_clock
        self.writes = 0
        self.kind, self._breaks = kind, breaks

    async def _send(self, method: str, target: str, **options: Any) -> str:
        if method == "GET":
            return await super()._send(method, target, **options)
        self.writes += 1
        broken = self._breaks(self.writes)
        if broken and self.kind not in (LOST, KILLED):
            raise KINDS[self.kind](self.writes)
        answer = await super()._send(method, target, **options)
        if broken:
            raise KINDS[self.kind](self.writes)
        return answer


@dataclass
class Gang:
    """One job, its reconciler, and hands that play scheduler and kubelet."""

    real: Administrator
    faulty: FaultyCluster
    name: str = field(default_factory=lambda: f"job-{uuid.uuid4().hex[:8]}")
    operators: int = 1
    """How many work at the same time, as where a leader is replaced that does not know it yet."""
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    asked: dict[str, Any] = field(default_factory=dict)
    """What the job's spec has besides."""
    keys: tuple[bytes, ...] = ()

    async def create(self, **more: Any) -> None:
        training = {
            "model": {"family": "Flux1", "path": "/output/models/tiny"},
            "steps": 100,
            "data": {"datasets": [{"name": "photos", "source": {"path": "/output/photos"}}]},
        }
        spec = {
            "nodes": 2,
            "gpusPerNode": 2,
            "output": {"persistentVolumeClaim": {"claimName": "out"}},
            "training": training,
            # The hands below play scheduler; the real one would take their word back.
            "scheduling": {"schedulerName": "nobody"},
            **self.asked,
            **more,
        }
        body = {
            "apiVersion": "oarlock.dev/v1alpha1",
            "kind": "TrainingJob",
            "metadata": {"name": self.name},
            "spec": spec,
        }
        await self.real.create(JOBS, body)

    def __post_init__(self) -> None:
        self.reconcilers = [self.new_reconciler() for _ in range(self.operators)]

    def new_reconciler(self) -> Reconciler:
        return Reconciler(
            sources=Sources(
                cluster=self.faulty,
                progress=ProgressReader(self.faulty, Route.DIRECT, clock=time.monotonic),
                gangs=GangReader(self.faulty),
                clock=self.clock,
            ),
            memory=Memory(),
            defaults=Defaults(trainer_image="trainer:test", keys=self.keys),
            pool=PoolReader(cluster=self.faulty, brakes=Brakes(namespace="default")),
            spares=SpareReader(self.faulty),
            throttle=Throttle(4),
            events=EventPoster(self.faulty, instance="test"),
        )

    async def settle(self) -> None:
        """Passes until none writes anything; one that failed is repeated, as the queue does."""
        for _ in range(60):
            before = self.faulty.writes
            well = await asyncio.gather(*(self.one_pass(number) for number in range(self.operators)))
            if all(well) and self.faulty.writes == before:
                return
        raise AssertionError(f"{self.name} does not come to rest")

    async def one_pass(self, number: int) -> bool:
        """Whether the pass went through."""
        reconciler = self.reconcilers[number]
        try:
            await reconciler.reconcile(("default", self.name), waited=0.0)
        except ApiError:
            if self.faulty.kind == KILLED:
                # A new process knows nothing of what this one saw.
                self.reconcilers[number] = self.new_reconciler()
            return False
        finally:
            await reconciler.events.flush()
        return True

    async def pods(self) -> dict[str, Any]:
        listed = await self.real.list(f"{CORE}/pods", labelSelector=f"oarlock.dev/job={self.name}")
        return {pod["metadata"]["name"].removeprefix(f"{self.name}-"): pod for pod in listed}

    async def status(self) -> dict[str, Any]:
        found: dict[str, Any] = (await self.real.get(f"{JOBS}/{self.name}"))["status"]
        return found

    async def set_state(self, pod: str, **state: Any) -> None:
        """What a kubelet would write; the reconciler looks at containers before phases."""
        container = {"name": "trainer", "image": "x", "imageID": "", "ready": False, "restartCount": 0, "state": state}
        conditions = [{"type": "PodScheduled", "status": "True"}]
        body = {"status": {"phase": "Running", "conditions": conditions, "containerStatuses": [container]}}
        await self.real.merge(f"{CORE}/pods/{self.name}-{pod}/status", body)

    async def live(self) -> dict[str, Any]:
        """Start, crash, recover, suspend, resume, succeed. Returns all that may depend on the faults on the way."""
        await self.create()
        await self.settle()
        await self.start(1)
        await self.set_state("1-1", terminated={"exitCode": 1, "reason": "Error", "message": "ValueError: x"})
        await self.settle()
        await self.start(2)
        for suspended in (True, False):
            await self.real.merge(f"{JOBS}/{self.name}", {"spec": {"suspend": suspended}})
            await self.settle()
        await self.start(3)
        for pod in ("3-0", "3-1"):
            await self.set_state(pod, terminated={"exitCode": 0, "reason": "Completed"})
        await self.settle()
        return await self.end()

    async def start(self, attempt: int) -> None:
        for rank in (0, 1):
            await self.set_state(f"{attempt}-{rank}", running={"startedAt": "2026-01-01T00:00:00Z"})
        await self.settle()

    async def end(self) -> dict[str, Any]:
        """What is there in the end."""
        status = await self.status()
        service = await self.real.get(f"{CORE}/services/{self.name}")
        return {
            "pods": sorted(await self.pods()),
            "service": service["spec"]["selector"]["oarlock.dev/attempt"],
            "restarts": {key: value for key, value in status["restarts"].items() if key != "windowStartTime"},
            "lastFault": {key: status["lastFault"].get(key) for key in ("class", "rank", "victims", "evidence")},
            "attempts": [(one["number"], one.get("reason"), "endTime" in one) for one in status["attempts"]],
            **{key: status.get(key) for key in ("phase", "reason", "attempt", "restartCount", "succeeded", "failed")},
        }


async def lives_through(
    real: Administrator, kind: str, breaks: Callable[[int], bool], *, life: type[Gang] = Gang, **more: Any
) -> dict[str, Any]:
    """How it ends, without the job's name."""
    faulty = FaultyCluster(real, kind, breaks)
    gang = life(real, faulty, **more)
    end = await gang.live()
    end["lastFault"]["evidence"] = str(end["lastFault"]["evidence"]).replace(gang.name, "")
    return end
