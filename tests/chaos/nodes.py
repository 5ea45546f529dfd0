"""Nodes that are not there, and the kubelets on them, played: they start, stop and end containers as real ones do.

A kubelet whose node is down does nothing. One that comes with a new machine under an old name finds pods that it has never
started, and says of their containers that it does not know how they ended.
"""

from __future__ import annotations

import asyncio
import base64
import random
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime

from oarlock_api.contract.gang_key import KEY_FIELD
from tests.chaos.client import NODES, Client, Json, at
from tests.chaos.history import TRAINER, History, has_ended
from tests.chaos.reports import gpu_at

GPU_RESOURCE = "nvidia.com/gpu"
GPUS = 8
STUBBORN = 0.03
"""Share of containers that outlive their grace, as a process in a call that does not return."""


@dataclass(slots=True)
class Machine:
    """One node: its object's uid, whether its kubelet works, and what it runs, by the pods' uids."""

    name: str
    gpus: int
    uid: str = ""
    up: bool = True
    taint: bool = False
    started: set[str] = field(default_factory=set)

    @property
    def publishes(self) -> bool:
        """Whether it says which GPUs it has."""
        return publishes(self.name, self.gpus)


def publishes(name: str, gpus: int) -> bool:
    """Every other node with GPUs does, by the name that it keeps as another machine."""
    return gpus > 0 and int(name[-1]) % 2 == 1


@dataclass(slots=True)
class Kubelets:
    """All of them."""

    client: Client
    history: History
    chance: random.Random
    machines: dict[str, Machine] = field(default_factory=dict)
    addresses: dict[str, str] = field(default_factory=dict)
    """Whose an address is: the pod's uid."""
    own: dict[str, str] = field(default_factory=dict)
    """The address of a pod, by its uid."""
    keys: dict[str, bytes] = field(default_factory=dict)
    """The key that a pod was given, by its uid."""
    _due: dict[str, float] = field(default_factory=dict)
    """When a pod is to start, or to be gone, by its uid and which of the two."""
    _busy: set[str] = field(default_factory=set)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def add(self, name: str, gpus: int) -> None:
        """A node joins, or joins again as another machine."""
        capacity = {"cpu": "64", "memory": "512Gi", "pods": "110", **({GPU_RESOURCE: str(gpus)} if gpus else {})}
        body = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "labels": {"kubernetes.io/hostname": name},
                "annotations": {"oarlock.dev/gpus": gpu_at(name)} if publishes(name, gpus) else {},
            },
            "status": {
                "capacity": capacity,
                "allocatable": capacity,
                "conditions": [_ready("True")],
                "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
                "nodeInfo": {**dict.fromkeys(_INFO, ""), "bootID": f"boot-{self.chance.getrandbits(32):08x}"},
            },
        }
        made = await self.client.call("POST", NODES, body) or await self.client.call("GET", f"{NODES}/{name}")
        if made is not None:
            self.machines[name] = Machine(name, gpus, made["metadata"]["uid"])

    async def remove(self, name: str) -> None:
        """Its Node object goes; whatever ran there is nobody's business any more."""
        self.machines[name].up = False
        await self.client.call("DELETE", f"{NODES}/{name}")

    async def set_ready(self, name: str, status: str) -> None:
        """Have the node be Ready (True), say that it is not (False), or be silent (Unknown)."""
        self.machines[name].up = status == "True"
        await self.client.merge(f"{NODES}/{name}/status", {"status": {"conditions": [_ready(status)]}})

    async def end(self, pod: Json, code: int, message: str = "", *, reason: str = "") -> None:
        """The trainer's container ends."""
        terminated = {
            "exitCode": code,
            "reason": reason or ("Completed" if code == 0 else "Error"),
            "message": message,
            "startedAt": _now(),
            "finishedAt": _now(),
        }
        phase = "Succeeded" if code == 0 else "Failed"
        await self._tell(pod, phase, {"terminated": terminated}, ready=False)

    async def refuse(self, pod: Json, reason: str, message: str, conditions: list[Json]) -> None:
        """The kubelet itself ends the pod, as at an eviction."""
        status = {"phase": "Failed", "reason": reason, "message": message, "conditions": conditions}
        await self.client.merge(f"{at(pod['metadata'], 'pods')}/status", {"status": status})

    def works_at(self, pod: Json) -> bool:
        """Whether the pod is bound to a node whose kubelet works and knows it."""
        machine = self.machines.get(pod["spec"].get("nodeName", ""))
        return machine is not None and machine.up and pod["metadata"]["uid"] in machine.started

    async def run(self) -> None:
        """Play until cancelled."""
        while True:
            for uid, pod in list(self.history.bodies.items()):
                machine = self.machines.get(pod["spec"].get("nodeName", ""))
                if machine is not None and machine.up and uid not in self._busy:
                    self._look(machine, pod)
            gone = [key for key in self._due if key.rpartition("/")[0] not in self.history.bodies]
            for key in gone:
                del self._due[key]
            await asyncio.sleep(0.05)

    def _look(self, machine: Machine, pod: Json) -> None:
        metadata, now = pod["metadata"], time.monotonic()
        uid, grace = metadata["uid"], metadata.get("deletionGracePeriodSeconds") or 0
        if "deletionTimestamp" in metadata:
            stubborn = self.chance.random() < STUBBORN
            takes = grace + 20 if stubborn else self.chance.choice((0.05, 0.5, self.chance.uniform(0, grace)))
            if now >= self._due.setdefault(f"{uid}/gone", now + takes):
                self._do(uid, self._stop(pod))
        elif (pod.get("status") or {}).get("phase") == "Pending":
            if now >= self._due.setdefault(f"{uid}/runs", now + self.chance.uniform(0.05, 1.0)):
                self._do(uid, self._start(machine, pod))
        elif uid not in machine.started and not has_ended(pod):
            self._do(uid, self.end(pod, 137, "the container is unknown here", reason="ContainerStatusUnknown"))

    def _do(self, uid: str, work: object) -> None:
        self._busy.add(uid)
        task: asyncio.Task[None] = asyncio.create_task(work)  # type: ignore[arg-type]
        self._tasks.add(task)

        def done(ended: asyncio.Task[None]) -> None:
            self._tasks.discard(ended)
            # What was written is not in the history yet: a second write of the same would do no harm, but cost.
            asyncio.get_running_loop().call_later(0.3, self._busy.discard, uid)
            if not ended.cancelled() and (error := ended.exception()):
                self.history.note(f"kubelet: {error}")

        task.add_done_callback(done)

    async def _start(self, machine: Machine, pod: Json) -> None:
        """Its containers run, once the Secrets are there that it mounts."""
        metadata = pod["metadata"]
        sources = [each for volume in pod["spec"]["volumes"] for each in volume.get("projected", {}).get("sources", ())]
        for named in [each["secret"]["name"] for each in sources if "secret" in each]:
            secret = await self.client.call("GET", f"/api/v1/namespaces/{metadata['namespace']}/secrets/{named}")
            if secret is None:
                return
            self.keys[metadata["uid"]] = bytes.fromhex(base64.b64decode(secret["data"][KEY_FIELD]).decode())
        machine.started.add(metadata["uid"])
        await self._tell(pod, "Running", {"running": {"startedAt": _now()}}, ready=True)

    async def _stop(self, pod: Json) -> None:
        """Its containers have stopped: say so, and take it out of the API."""
        if not has_ended(pod):
            await self.end(pod, 143)
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}}
        await self.client.call("DELETE", at(pod["metadata"], "pods"), body)

    def _address(self, uid: str) -> str:
        if uid not in self.own:
            number = len(self.own) + 1
            address = f"127.{100 + number // 62500}.{number // 250 % 250}.{number % 250 + 1}"
            self.own[uid], self.addresses[address] = address, uid
        return self.own[uid]

    async def _tell(self, pod: Json, phase: str, state: Json, *, ready: bool) -> None:
        container = {
            "name": TRAINER,
            "image": "registry.example.com/trainer:1",
            "imageID": "",
            "ready": ready,
            "restartCount": 0,
            "state": state,
        }
        said = "True" if ready else "False"
        kinds = ("Initialized", "ContainersReady", "Ready")
        conditions = [{"type": kind, "status": said, "lastTransitionTime": _now()} for kind in kinds]
        address = self._address(pod["metadata"]["uid"])
        status = {
            "phase": phase,
            "podIP": address,
            "podIPs": [{"ip": address}],
            "conditions": [*_kept(pod), *conditions],
            "containerStatuses": [container],
        }
        body = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": status}
        await self.client.merge(f"{at(pod['metadata'], 'pods')}/status", body)


_INFO = (
    "machineID",
    "systemUUID",
    "kernelVersion",
    "osImage",
    "containerRuntimeVersion",
    "kubeletVersion",
    "kubeProxyVersion",
    "operatingSystem",
    "architecture",
)


def _kept(pod: Json) -> list[Json]:
    """Conditions that are not the kubelet's to say: a merge patch would take them away."""
    others = ("PodScheduled", "DisruptionTarget")
    return [each for each in (pod.get("status") or {}).get("conditions") or () if each["type"] in others]


def _ready(status: str) -> Json:
    return {
        "type": "Ready",
        "status": status,
        "reason": {"True": "KubeletReady", "False": "KubeletNotReady"}.get(status, "NodeStatusUnknown"),
        "lastHeartbeatTime": _now(),
        "lastTransitionTime": _now(),
    }


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
