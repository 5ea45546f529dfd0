"""A tiny world for tests of decisions: what the API server and the kubelets would do, in memory and exact."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from jobs import START, gpu_report, job, report

from oarlock_api.contract.names import pod_name
from oarlock_api.contract.status import CheckpointStatus, PodStatus
from oarlock_api.status import TrainingJobStatus
from oarlock_operator.decide import decide
from oarlock_operator.observation import (
    Defaults,
    Ending,
    GangSystems,
    Group,
    Job,
    Node,
    NodeStrike,
    Observation,
    Pod,
    Pool,
    ServiceSeen,
)
from oarlock_operator.plan import (
    Action,
    CordonNode,
    CreateConfig,
    CreateGroup,
    CreatePods,
    CreateService,
    DeleteGroup,
    DeleteJob,
    DeletePods,
    LatchBreaker,
    NoteStrike,
    Plan,
    SelectAttempt,
)


class Killed(Exception):  # noqa: N818
    """The operator died between two of its writes."""


@dataclass
class World:
    """One job and its objects. `writes` counts the operator's writes; at `kill_at` it dies right after one."""

    job: Job = field(default_factory=job)
    now: datetime = START
    pods: dict[str, Pod] = field(default_factory=dict)
    service: ServiceSeen | None = None
    configs: set[int] = field(default_factory=set)
    systems: GangSystems = field(default_factory=GangSystems)
    groups: dict[int, Group] = field(default_factory=dict)
    """By attempt."""
    progress: PodStatus | None = None
    refusal: str = ""
    hindrance: str = ""
    rival: str = ""
    lingering: tuple[str, ...] = ()
    nodes: dict[str, Node] = field(default_factory=dict)
    answering: frozenset[str] = frozenset()
    silent: dict[str, float] = field(default_factory=dict)
    warnings: dict[str, str] = field(default_factory=dict)
    may_cordon: bool = False
    pool: Pool | None = None
    """What a decision finds that asks for the pool."""
    ended_seconds: float | None = None
    spares: bool = False
    """What a decision finds that asks for spare nodes."""
    cordoned: set[str] = field(default_factory=set)
    used: set[str] = field(default_factory=set)
    """Nodes that pods of the job ran on."""
    deleted: bool = False
    """The job itself is gone."""
    writes: int = 0
    kill_at: int | None = None
    log: list[str] = field(default_factory=list)

    def observe(self) -> Observation:
        """What a pass would see now."""
        return Observation(
            now=self.now,
            job=self.job,
            defaults=Defaults(trainer_image="trainer:test", may_cordon=self.may_cordon),
            pods=tuple(self.pods.values()),
            service=self.service,
            systems=self.systems,
            groups=tuple(self.groups.values()),
            progress=self.progress,
            refusal=self.refusal,
            hindrance=self.hindrance,
            rival=self.rival,
            lingering=self.lingering,
            nodes=self.nodes,
            answering=self.answering,
            silent=self.silent,
            warnings=self.warnings,
            ended_seconds=self.ended_seconds,
        )

    def one_pass(self, *, ask: bool = True) -> Plan:
        """Decide once and carry it out, with every invariant checked after every write."""
        plan = decide(self.observe())
        if (plan.wants_pool or plan.wants_spares) and ask:
            plan = decide(replace(self.observe(), pool=self.pool, spares=self.spares))
        if plan.status is not None:
            self.write_status(plan.status)
        for action in plan.actions:
            self.apply(action)
        return plan

    def settle(self, *, passes: int = 30) -> None:
        """Passes until nothing changes any more."""
        for _ in range(passes):
            before = (self.job.status, dict(self.pods), self.service)
            self.one_pass()
            self.now += timedelta(milliseconds=10)
            if (self.job.status, self.pods, self.service) == before:
                return

    def write_status(self, status: TrainingJobStatus) -> None:
        """The status subresource: what is written must survive a round trip through JSON."""
        assert status.attempt >= self.job.status.attempt, "an attempt number fell"
        assert self.job.status.completion_time is None, "a finished job was changed"
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
                self.service = ServiceSeen("service-1", ours=True, attempt=int(selector["oarlock.dev/attempt"]))
                self.wrote("service selector")
            case CreateConfig(manifest):
                self.configs.add(int(manifest["metadata"]["labels"]["oarlock.dev/attempt"]))
                self.wrote("config")
            case CreateGroup() | DeleteGroup():
                self.apply_group(action)
            case CreatePods(manifests):
                for manifest in manifests:
                    self.create_pod(manifest)
            case DeletePods(pods, grace_seconds):
                for name, uid in pods:
                    self.delete_pod(name, uid, grace_seconds)
            case CordonNode(node):
                assert node in self.used, "a node was cordoned that no pod of this job ran on"
                self.cordoned.add(node)
                self.wrote(f"cordon {node}")
            case NoteStrike(name, gpu_uuid, time):
                node = self.nodes.get(name, Node(name=name))
                if (strike := NodeStrike(gpu_uuid, time)) not in node.strikes:
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

    def create_pod(self, manifest: dict[str, object]) -> None:
        """A pod appears; nothing of another attempt may still run."""
        metadata = manifest["metadata"]
        assert isinstance(metadata, dict)
        name = metadata["name"]
        attempt = int(metadata["labels"]["oarlock.dev/attempt"])
        rank = int(metadata["labels"]["oarlock.dev/rank"])
        assert attempt == self.job.status.attempt, "a pod was created before its attempt was written down"
        assert attempt in self.configs, "a pod was created before its job.json"
        running = [
            pod.name
            for pod in self.pods.values()
            if pod.attempt != attempt and not pod.stopped and not self.given_up(pod)
        ]
        assert not running, f"two live gangs: {running} beside {name}"
        if name not in self.pods:
            self.pods[name] = Pod(name=name, uid=f"{name}-{self.writes}", attempt=attempt, rank=rank)
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
                by = self.now + timedelta(seconds=300 if grace_seconds is None else grace_seconds)
                self.pods[name] = replace(pod, deleting=True, delete_by=by)
        self.wrote(f"delete {name}")

    def wrote(self, what: str) -> None:
        """Count a write, and die after it if told to."""
        self.writes += 1
        self.log.append(what)
        if self.kill_at == self.writes:
            raise Killed(what)

    def start_all(self) -> None:
        """Scheduler and kubelets bring up all pods of the current attempt."""
        for name, pod in self.pods.items():
            if pod.attempt == self.job.status.attempt and not pod.stopped:
                usual = self.nodes.get(f"node-{pod.rank}")
                node = pod.node or (f"node-{pod.rank}" if usual is None or usual.ready else f"spare-{pod.rank}")
                self.used.add(node)
                self.pods[name] = replace(pod, node=node, address="10.0.0.1", scheduled=True, started=True, ready=True)

    def kubelets(self) -> None:
        """Pods that are being deleted stop and go, where a kubelet hears of it."""
        self.pods = {
            name: pod
            for name, pod in self.pods.items()
            if not pod.deleting or ((node := self.nodes.get(pod.node)) is not None and not node.ready)
        }

    def end(self, rank: int, code: int, *, attempt: int | None = None, with_report: bool = True, **gpu: Any) -> None:
        """The container of a rank ends; with `xid` or `uuid`, for what the driver says of a GPU."""
        name = pod_name("flux", attempt or self.job.status.attempt, rank)
        pod = self.pods[name]
        told = gpu_report(pod, code=code, at=self.now, **gpu) if gpu else report(pod, code=code, at=self.now)
        said = told if with_report else None
        self.pods[name] = replace(pod, started=True, ready=False, ending=Ending(code, report=said))

    def step(self, step: int, *, resumed: int = 0, saved: int | None = None) -> None:
        """Rank 0's agent reports."""
        first = next(p for p in self.pods.values() if p.attempt == self.job.status.attempt and p.rank == 0)
        self.progress = PodStatus(
            job_uid=self.job.uid,
            pod_uid=first.uid,
            attempt=first.attempt,
            rank=0,
            phase="Training",
            heartbeat_at=self.now.isoformat(),
            started_at=self.now.isoformat(),
            first_step_at=(self.now + timedelta(seconds=4)).isoformat(),
            resumed_from_step=resumed,
            step=step,
            total_steps=100,
            loss=1.5,
            seconds_per_step=0.5,
            checkpoint=CheckpointStatus(saved, f"/output/flux/checkpoints/step-{saved}-a1", self.now.isoformat())
            if saved is not None
            else None,
        )

    def running(self, step: int = 1, **progress: int) -> None:
        """From wherever it is to training."""
        self.settle()
        self.start_all()
        self.settle()
        self.step(step, **progress)
        self.now += timedelta(seconds=11)
        self.settle()
        self.progress = None

    def crash(self, code: int = 1) -> None:
        """Rank 0 ends so, its gang goes, and the longest backoff is over."""
        self.running()
        self.end(0, code)
        self.settle()
        self.kubelets()
        self.now += timedelta(seconds=400)
        self.settle()


def condition(world: World, kind: str) -> tuple[str, str]:
    """Status and reason of one of the job's conditions."""
    found = next(c for c in world.job.status.conditions if c.type == kind)
    return found.status.value, found.reason
