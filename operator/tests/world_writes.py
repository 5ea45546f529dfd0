"""The writing half of the tests' world: what the API server does with each write, in memory and exact.

Every invariant of recovery is checked at every write; an operator may be killed right after any of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import msgspec
from fleets import Fleet
from jobs import START, job
from made_pods import told

from oarlock_api.status import TrainingJobStatus
from oarlock_operator.model.node_maintenance import Maintenance
from oarlock_operator.model.observation import Group, Job, Pod, Program, ServiceSeen
from oarlock_operator.model.observed_nodes import Node
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
from oarlock_operator.pods.pod_facts import RawPod, read_pod
from oarlock_operator.pods.pod_program import Annotations
from oarlock_operator.schedulers import system_of


def program_of(manifest: dict[str, Any]) -> Program:
    """What the operator reads of the program of such a pod, once it has ended, or where its ranks start anew in it."""
    status = {"containerStatuses": [{"name": "trainer", "state": {"terminated": {"exitCode": 80}}}]}
    return read_pod(msgspec.convert({**manifest, "status": status}, RawPod)).program


class Killed(Exception):  # noqa: N818
    """The operator died between two of its writes."""


def incarnation(status: TrainingJobStatus) -> int:
    """The highest number of a pod of the current attempt."""
    return max((one.incarnation for one in status.attempts if one.number == status.attempt), default=1)


def told_to_stop(pod: Pod, grace_seconds: int, *, now: datetime) -> Pod:
    """A pod that is deleted with so long a grace: a second time it can only get shorter, and counts from the first."""
    told = pod.delete_by - timedelta(seconds=pod.grace_seconds or 0) if pod.delete_by else now
    grace = min(grace_seconds, pod.grace_seconds or grace_seconds)
    return replace(pod, deleting=True, delete_by=told + timedelta(seconds=grace), grace_seconds=grace)


@dataclass
class Objects:
    """One job and its objects. `writes` counts the operator's writes; at `kill_at` it dies right after one."""

    job: Job = field(default_factory=job)
    now: datetime = START
    pods: dict[str, Pod] = field(default_factory=dict)
    service: ServiceSeen | None = None
    groups: dict[int, Group] = field(default_factory=dict)
    """By attempt."""
    nodes: dict[str, Node] = field(default_factory=dict)
    fleet: Fleet = field(default_factory=Fleet)
    cordoned: set[str] = field(default_factory=set)
    deleted: bool = False
    """The job itself is gone."""
    hindrance: str = ""
    spares: bool = False
    """What a decision finds that asks for spare nodes."""
    made: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Manifests of the pods that were made, by name."""
    writes: int = 0
    kill_at: int | None = None
    log: list[str] = field(default_factory=list)

    def write_status(self, status: TrainingJobStatus) -> None:
        """The status subresource: what is written must survive a round trip through JSON."""
        assert status.attempt >= self.job.status.attempt, "an attempt number fell"
        assert self.job.status.completion_time is None, "a finished job was changed"
        if status.attempt == self.job.status.attempt:
            assert incarnation(status) >= incarnation(self.job.status), "a number of pods fell"
        if status.completion_time is not None:
            assert all(pod.stopped for pod in self.pods.values()), "a terminal phase with running pods"
        self.job = replace(self.job, status=TrainingJobStatus.model_validate(status.to_manifest()))
        self.wrote(f"status attempt={status.attempt} phase={status.phase} stage={status.recovery.stage}")

    def apply(self, action: Action) -> None:  # noqa: C901, PLR0912 - one case a kind of action
        """What the API server does."""
        match action:
            case CreateService(manifest):
                attempt = int(manifest["spec"]["selector"]["oarlock.dev/attempt"])
                self.service = self.service or ServiceSeen("service-1", ours=True, attempt=attempt)
                self.wrote("service")
            case SelectAttempt(selector=selector):
                attempt = int(selector["oarlock.dev/attempt"])
                number = int(selector.get("oarlock.dev/incarnation", 1))
                self.service = ServiceSeen("service-1", ours=True, attempt=attempt, incarnation=number)
                self.wrote("service selector")
            case CreateGroup() | DeleteGroup():
                self.apply_group(action)
            case CreatePods(manifests):
                for manifest in manifests:
                    self.create_pod(manifest)
            case DeletePods(pods, grace_seconds):
                for name, uid in pods:
                    self.delete_pod(name, uid, grace_seconds)
            case CordonNode(node):
                written = [(entry.name, entry.uid, entry.time) for entry in self.job.status.cordoned_nodes]
                assert (node, action.uid, action.time) in written, "a cordon that stands in no status"
                if self.fleet.cordon(self.job, action):
                    self.cordoned.add(node)
                    if told := self.nodes.get(node):
                        self.nodes[node] = replace(told, maintenance=Maintenance("cordoned", enforced=True))
                    self.wrote(f"cordon {node}")
                    self.fleet.note(self.job, action)
                    self.wrote("ledger")
            case NoteStrike(name, strike):
                node = self.nodes.get(name, Node(name=name))
                if strike not in node.strikes:
                    self.nodes[name] = replace(node, strikes=(*node.strikes, strike))
                self.wrote(f"strike {name}")
            case LatchBreaker():
                self.wrote("breaker")
            case DeleteJob():
                assert self.job.status.completion_time is not None, "an unfinished job was deleted"
                self.deleted = True

    def apply_group(self, action: CreateGroup | DeleteGroup) -> None:
        """A group is made for the attempt that is written down, and goes after the pods that were in it."""
        if isinstance(action, CreateGroup):
            metadata, api = action.manifest["metadata"], action.manifest["apiVersion"]
            attempt = int(metadata["labels"]["oarlock.dev/attempt"])
            assert attempt == self.job.status.attempt, "a group was created before its attempt was written down"
            made = Group(name=metadata["name"], uid=f"group-{attempt}", attempt=attempt, api=api)
            self.groups.setdefault(attempt, made)
            self.wrote(f"group {attempt}")
            return
        attempt = next((number for number, group in self.groups.items() if group.uid == action.uid), 0)
        left = [pod.name for pod in self.pods.values() if pod.attempt == attempt and not pod.stopped]
        assert not left, f"the group of pods that still run was deleted: {left}"
        self.groups.pop(attempt, None)
        self.wrote(f"delete group {attempt}")

    def may_surge(self, rank: int) -> bool:
        """Whether a pod of this rank may be made while the one before may still run: there is room, and no gang system."""
        return self.spares and rank != 0 and system_of(self.job.status.resolved).surges

    def create_pod(self, manifest: dict[str, Any]) -> None:
        """A pod appears; nothing of another attempt may still run."""
        metadata = manifest["metadata"]
        name = metadata["name"]
        attempt = int(metadata["labels"]["oarlock.dev/attempt"])
        rank = int(metadata["labels"]["oarlock.dev/rank"])
        assert attempt == self.job.status.attempt, "a pod was created before its attempt was written down"
        assert told(manifest).attempt == attempt, "a pod was created without its attempt's job.json"
        running = [
            pod.name
            for pod in self.pods.values()
            if pod.attempt != attempt and not pod.stopped and not self.given_up(pod)
        ]
        assert not running, f"two live gangs: {running} beside {name}"
        number = int(metadata["labels"].get("oarlock.dev/incarnation", 1))
        recovery = self.job.status.recovery
        written = [(one.rank, one.incarnation) for one in (*recovery.replacing, *recovery.surging)]
        assert number == 1 or (rank, number) in written, "a pod was made anew before it was written down"
        # What the API server did not take may be asked for again.
        assert number == 1 or name not in self.made or self.hindrance, f"{name} was made twice"
        twins = [pod for pod in self.pods.values() if (pod.attempt, pod.rank) == (attempt, rank) and pod.name != name]
        lost = [node.name for node in self.nodes.values() if node.unreachable or not node.exists]
        living = [pod for pod in twins if not pod.stopped and pod.node not in lost]
        assert not living or self.may_surge(rank), f"two living pods of rank {rank}"
        if name not in self.pods:
            read = msgspec.convert(manifest["metadata"]["annotations"], Annotations)
            self.pods[name] = Pod(
                name=name,
                uid=f"{name}-{self.writes}",
                attempt=attempt,
                rank=rank,
                incarnation=number,
                keeps_off=read.avoided,
                program=program_of(manifest),
                made_from=read.made_from or "",
            )
            self.made[name] = manifest
        self.wrote(f"pod {name}")

    def given_up(self, pod: Pod) -> bool:
        """A pod that nobody can stop: its node is not heard from, or its time is over."""
        node = self.nodes.get(pod.node)
        lost = node is not None and (node.unreachable or not node.exists)
        return lost or (pod.delete_by is not None and self.now > pod.delete_by + timedelta(seconds=30))

    def delete_pod(self, name: str, uid: str, grace_seconds: int | None) -> None:
        """A delete with a uid: what has ended or never started goes at once, what runs is told to."""
        pod = self.pods.get(name)
        if pod is not None and pod.uid == uid:
            if grace_seconds == 0:
                assert self.given_up(pod), f"{name} was deleted by force though its kubelet may stop it"
            if pod.stopped or not pod.started or grace_seconds == 0:
                del self.pods[name]
            else:
                self.pods[name] = told_to_stop(pod, 300 if grace_seconds is None else grace_seconds, now=self.now)
        self.wrote(f"delete {name}")

    def wrote(self, what: str) -> None:
        """Count a write, and die after it if told to."""
        self.writes += 1
        self.log.append(what)
        if self.kill_at == self.writes:
            raise Killed(what)
