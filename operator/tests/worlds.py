"""A tiny world for tests of decisions: a job that is looked at and decided about, while pods start, work and end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from jobs import gpu_report, report
from world_writes import Objects

from oarlock_api.contract.figures import Figures
from oarlock_api.contract.rounds import MAX_ROUNDS, RoundEnd
from oarlock_api.contract.status import CheckpointStatus, PodStatus
from oarlock_operator.decide import decide
from oarlock_operator.decide.cordon import is_open
from oarlock_operator.model.observation import Defaults, Ending, GangSystems, Job, Observation, Pod
from oarlock_operator.model.observed_nodes import Node, Pool
from oarlock_operator.model.plan import CordonNode, Need, Plan, plan_of
from oarlock_operator.schedulers import system_of


@dataclass
class World(Objects):
    """One job, what a pass sees of it, and hands that play scheduler and kubelets."""

    systems: GangSystems = field(default_factory=GangSystems)
    progress: PodStatus | None = None
    request_seconds: float = 0.0
    refusal: str = ""
    rival: str = ""
    lingering: tuple[str, ...] = ()
    orphans: tuple[str, ...] = ()
    answering: frozenset[str] = frozenset()
    silent: dict[str, float] = field(default_factory=dict)
    refusing: frozenset[str] = frozenset()
    warnings: dict[str, str] = field(default_factory=dict)
    held: dict[str, tuple[str, ...]] = field(default_factory=dict)
    unmonitored: dict[str, str] | None = field(default_factory=dict)
    surges: bool = True
    """Rank 0's agent knows surge pods."""
    began: dict[int, datetime] = field(default_factory=dict)
    """When the agents of an attempt started, as its leader tells."""
    ended: dict[int, list[RoundEnd]] = field(default_factory=dict)
    """Rounds that ended, by their attempt, as its leader knows them."""
    may_cordon: bool = False
    defaults: Defaults = field(default_factory=lambda: Defaults(trainer_image="trainer:test", cluster_id="lab"))
    pool: Pool | None = None
    """What a decision finds that asks for the pool."""
    neighbours: Callable[[], list[Job]] = list
    """Other jobs of the cluster."""
    ended_seconds: float | None = None

    def observe(self) -> Observation:
        """What a pass would see now."""
        return Observation(
            now=self.now,
            job=self.job,
            defaults=replace(self.defaults, may_cordon=self.may_cordon),
            pods=tuple(self.pods.values()),
            service=self.service,
            systems=self.systems,
            groups=tuple(
                group for group in self.groups.values() if group.api in system_of(self.job.status.resolved).apis
            ),
            progress=self.progress,
            request_seconds=self.request_seconds,
            refusal=self.refusal,
            hindrance=self.hindrance,
            rival=self.rival,
            lingering=self.lingering,
            orphans=self.orphans,
            nodes=self._nodes(),
            answering=self.answering,
            silent=self.silent,
            refusing=self.refusing,
            warnings=self.warnings,
            held=self.held,
            unmonitored=self.unmonitored,
            ended_seconds=self.ended_seconds,
        )

    def one_pass(self) -> Plan:
        """Decide once and carry it out, with every invariant checked after every write."""
        outcome = decide(self.observe())
        if isinstance(outcome, Need):
            outcome = decide(replace(self.observe(), pool=self.look(), spares=self.spares))
        plan = plan_of(outcome)
        for action in plan.actions:
            if isinstance(action, CordonNode) and self.fleet.enter(self.job, action):
                self.wrote("ledger")
        if plan.status is not None:
            self.write_status(plan.status)
        for action in plan.actions:
            self.apply(action)
        return plan

    def look(self) -> Pool | None:
        """What a look at the pool finds."""
        living = {self.job.uid, *(job.uid for job in self.neighbours())}
        return self.fleet.pool(self.pool, living) if self.pool else None

    def _nodes(self) -> dict[str, Node]:
        """Nodes that the test speaks of, and those that a pass asks for because they are to be cordoned."""
        asked = [entry.name for entry in self.job.status.cordoned_nodes if is_open(entry, now=self.now)]
        return {name: self.fleet.seen(name, self.nodes.get(name)) for name in {*self.nodes, *asked}}

    def settle(self, *, passes: int = 30) -> None:
        """Passes until nothing changes any more."""
        for _ in range(passes):
            before = (self.job.status, dict(self.pods), self.service, dict(self.fleet.nodes))
            self.one_pass()
            self.now += timedelta(milliseconds=10)
            if (self.job.status, self.pods, self.service, self.fleet.nodes) == before:
                return

    def start_all(self) -> None:
        """Scheduler and kubelets bring up all pods of the current attempt."""
        for name, pod in self.pods.items():
            if pod.attempt == self.job.status.attempt and not pod.stopped:
                node = pod.node or self.place(pod)
                self.fleet.ran(self.job, node)
                self.pods[name] = replace(pod, node=node, address="10.0.0.1", scheduled=True, started=True, ready=True)

    def place(self, pod: Pod) -> str:
        """Where the scheduler puts it."""
        usual = self.nodes.get(f"node-{pod.rank}")
        return f"node-{pod.rank}" if usual is None or usual.ready else f"spare-{pod.rank}"

    def kubelets(self) -> None:
        """Pods that are being deleted stop and go, where a kubelet hears of it."""
        self.pods = {
            name: pod
            for name, pod in self.pods.items()
            if not pod.deleting or ((node := self.nodes.get(pod.node)) is not None and not node.ready)
        }

    def end(self, rank: int, code: int, *, attempt: int | None = None, with_report: bool = True, **gpu: Any) -> None:
        """The container of a rank ends; with `xid` or `uuid`, for what the driver says of a GPU."""
        pod = self.pod(rank, attempt=attempt)
        told = gpu_report(pod, code=code, at=self.now, **gpu) if gpu else report(pod, code=code, at=self.now)
        said = told if with_report else None
        ending = Ending(code, report=said)
        self.pods[pod.name] = replace(pod, started=True, ready=False, ending=ending, failed=code != 0)

    def pod(self, rank: int, *, attempt: int | None = None) -> Pod:
        """The pod of a rank that was made last."""
        number = attempt or self.job.status.attempt
        return max(
            (pod for pod in self.pods.values() if (pod.attempt, pod.rank) == (number, rank)),
            key=lambda pod: pod.incarnation,
        )

    def step(self, step: int, *, resumed: int = 0, saved: int | None = None) -> None:
        """Rank 0's agent reports."""
        first = self.pod(0)
        began = self.began.setdefault(first.attempt, self.now)
        self.progress = PodStatus(
            job_uid=self.job.uid,
            pod_uid=first.uid,
            attempt=first.attempt,
            rank=0,
            phase="Training",
            heartbeat_at=self.now.isoformat(),
            started_at=began.isoformat(),
            first_step_at=(began + timedelta(seconds=4)).isoformat(),
            resumed_from_step=resumed,
            figures=Figures(
                step=step,
                total_steps=100,
                loss=1.5,
                seconds_per_step=0.5,
            ),
            checkpoint=CheckpointStatus(saved, f"/output/flux/checkpoints/step-{saved}-a1", self.now.isoformat())
            if saved is not None
            else None,
            surges=self.surges,
            round=len(self.ended.get(first.attempt, ())) + 1,
            rounds=tuple(self.ended.get(first.attempt, ())[-MAX_ROUNDS:]),
        )

    def end_round(self, code: int = 1, *, rank: int = 1, why: str = "rank 3 raised ValueError", **known: Any) -> None:
        """The ranks end so, and start anew in their pods: its leader knows, and tells with its next report.

        `known`: what it knows of it; where nothing is said, that the next round began with step 0.
        """
        ended = self.ended.setdefault(self.job.status.attempt, [])
        known = {"resumed_step": 0} | known
        told = RoundEnd(number=len(ended) + 1, ended_at=self.now.isoformat(), rank=rank, code=code, why=why, **known)
        ended.append(told)

    def learn(self, **known: Any) -> None:
        """What the leader knows later of the round that ended last."""
        ended = self.ended[self.job.status.attempt]
        ended[-1] = replace(ended[-1], **known)

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
