"""What one pass sees: the job, its pods and its Service as they are now, in the few fields that decisions need.

Plain frozen data. Built by `observe` from live reads, consumed by `decide`; tests write it by hand.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from oarlock_api.contract.kubelet_words import nobody_knows
from oarlock_api.contract.report import Report
from oarlock_api.contract.status import PodStatus
from oarlock_api.scheduling import Gang
from oarlock_api.spec import OPERATOR, TrainingJobSpec
from oarlock_api.status import TrainingJobStatus
from oarlock_operator.model.node_maintenance import Maintenance
from oarlock_operator.model.observed_nodes import GPU_RESOURCES, Node, Pool

Key = tuple[str, str]
"""Namespace and name of a TrainingJob."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a pod's container, or the pod itself, ended.

    `code` is None where no container ever told one (evicted, admission refused). `reason` is the kubelet's word.
    `rejected`: why what claims to be its report is not believed.
    """

    code: int | None
    reason: str = ""
    message: str = ""
    report: Report | None = None
    rejected: str = ""
    at: datetime | None = None
    """When, by its kubelet's clock; None where that is not told."""

    @property
    def unexplained(self) -> bool:
        """Whether nobody saw it end: it is only there no more, as after a restart of its node."""
        return self.report is None and nobody_knows(self.reason, self.code)


@dataclass(frozen=True, slots=True)
class Program:
    """What runs in a pod. `images`: the trainer's container's, then that of the init container that brings the agent.

    `altered`: what in the pod could make its program another than its images', empty for nothing. `own`: job.json names a
    program of the job's own. What was not read is not known. `keyed`: the pod mounts its gang's key.
    """

    images: tuple[str, ...] = ()
    altered: str = "it is not known what runs in the pod"
    own: bool = True
    keyed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """One pod of the job, of whatever attempt."""

    name: str
    uid: str
    attempt: int
    rank: int
    incarnation: int = 1
    """How often the pod of this rank was made within its attempt; one counter for all ranks."""
    node: str = ""
    address: str = ""
    scheduled: bool = False
    started: bool = False
    ready: bool = False
    deleting: bool = False
    delete_by: datetime | None = None
    """When the grace of a pod that is being deleted is over."""
    grace_seconds: int | None = None
    """That grace, as whoever deleted the pod named it."""
    gone: bool = False
    ending: Ending | None = None
    still_running: tuple[str, ...] = ()
    """Containers that still run though the trainer's has ended: until they end, the pod keeps its node's GPUs."""
    obstacle: str = ""
    """What keeps it from starting, in the scheduler's or the kubelet's words."""
    by_event: bool = False
    """The obstacle was read in an Event: whoever may write Events could have said it."""
    disrupted: str = ""
    """Who made it leave: an eviction's or a preemption's reason, empty for none."""
    own_limit: str = ""
    """Its kubelet's words, where it was evicted for a limit of its own, as for ephemeral storage."""
    node_restarted: bool = False
    """Its node is known to have started anew since it was placed there; looked for where nobody knows how it ended."""
    node_lost: bool = False
    """The cluster took it away because its node is gone: told by the pod itself, so without any right on nodes."""
    tainted: bool = False
    """The cluster takes it away because of a NoExecute taint of its node, which may be lost, or only wanted empty."""
    placed_at: datetime | None = None
    """When it was given its node, by the cluster's clock; None where that is not told."""
    gated: bool = False
    """A queue system holds it back; it asks for no node yet."""
    keeps_off: frozenset[str] = frozenset()
    """Nodes that were avoided when it was made, so that it keeps off them; told only while it has none."""
    failed: bool = False
    """Its phase is Failed: the API tells so about a second after its container's end."""
    pinned: bool = False
    """Its node selector names its very node, as Kueue's does where its topology goes down to nodes."""
    grouped: bool = False
    """Kueue has taken it, or the API server keeps its membership in a PodGroup."""
    program: Program = Program()
    made_from: str = ""
    """What it says that its gang's pods are made from; empty where lost ones are not made anew one by one."""

    @property
    def stopped(self) -> bool:
        """Nothing of it runs any more, or ever will: a scheduler gives no node to a pod that is being deleted."""
        return self.gone or self.ending is not None or (self.deleting and not (self.node or self.scheduled))

    @property
    def succeeded(self) -> bool:
        """It ended as it should."""
        return self.ending is not None and self.ending.code == 0

    @property
    def report(self) -> Report | None:
        """What it said itself when it ended."""
        return self.ending.report if self.ending else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The TrainingJob. `spec` is None where it does not fit the models; `problem` then says why.

    Of one that goes on by the rules of the release that accepted it, `problem` says what a new one would hear.
    """

    namespace: str
    name: str
    uid: str
    generation: int
    spec: TrainingJobSpec | None
    problem: str = ""
    status: TrainingJobStatus = field(default_factory=TrainingJobStatus)
    labels: dict[str, str] = field(default_factory=dict)
    deleting: bool = False
    unreadable: str = ""
    """Why its status cannot be read; `status` then is empty, and nothing may be decided."""
    request: str = ""
    """What a person asks of it, as the annotation has it."""
    managed_by: str = OPERATOR
    """Who works on it; told also where the rest of the spec cannot be read."""


@dataclass(frozen=True, slots=True)
class ServiceSeen:
    """A Service of the job's name. `attempt` is what its selector names, 0 for none.

    `leaving`: it belongs to a deleted job of the same name, and the garbage collector will take it.
    """

    uid: str
    ours: bool
    attempt: int
    leaving: bool = False
    incarnation: int = 1
    """Of rank 0's pod, as its selector names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GangSystems:
    """The gang systems that the cluster serves: the API group and version of each that may be used.

    `forbidden` are served, but the operator may not make their groups. `topologies`: node label -> the KAI Topology that
    has it as a level.
    """

    apis: Mapping[Gang, str] = field(default_factory=dict)
    forbidden: frozenset[Gang] = frozenset()
    topologies: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The object that makes the pods of an attempt a gang. `waits`: why its queue holds it back, empty if it does not.

    `let_in`: since when it does not, by the cluster's clock, where that is told.
    """

    name: str
    uid: str
    attempt: int
    api: str
    ours: bool = True
    deleting: bool = False
    waits: str = ""
    let_in: datetime | None = None


@dataclass(frozen=True, slots=True)
class Defaults:
    """What the operator's settings add to a job."""

    trainer_image: str
    progress_seconds: float = 10.0
    figures_seconds: float = 0.0
    """What the number of jobs that train stretches it to, while one does and its agents answer."""
    may_cordon: bool = False
    """Whether the operator has the right to patch nodes."""
    keys: tuple[bytes, ...] = field(default=(), repr=False)
    """What keys of gangs are derived from, the first for new pods; none where gangs have no keys."""
    status_from: tuple[dict[str, Any], ...] | None = None
    """Who may reach the status port of a job with a NetworkPolicy, as its peers; empty: everybody; None: no policies."""
    cluster_id: str = ""
    """What tells this cluster from others; empty where it is not known."""
    cordon_dry_run: bool = False
    """Whether it only tells which nodes it would cordon."""
    cordon_images: tuple[str, ...] = ()
    """Beginnings of images whose word may cordon a node, besides trainer_image."""
    cordon_resources: tuple[str, ...] = GPU_RESOURCES
    """The resources that are GPUs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One pass's view. `now` is the operator's wall clock in UTC, `waited` the seconds since the event behind this pass."""

    now: datetime
    job: Job
    defaults: Defaults
    pods: tuple[Pod, ...] = ()
    service: ServiceSeen | None = None
    systems: GangSystems = field(default_factory=GangSystems)
    """Looked for only where a gang is to be made, or its groups are to go."""
    groups: tuple[Group, ...] = ()
    """Looked for in the same cases."""
    looked_around: bool = True
    """Whether Service, rival and lingering pods were looked for: only while pods are to be created."""
    rival: str = ""
    """An unfinished job with the same output."""
    lingering: tuple[str, ...] = ()
    """Pods of jobs that are gone, which may still write into the output, or hold this job's names."""
    orphans: tuple[str, ...] = ()
    """Those of them that have no owner: nobody deletes them."""
    progress: PodStatus | None = None
    request_seconds: float = 0.0
    """For how long rank 0 has answered questions that carry the job's open request, by this process's own asking."""
    silent: dict[str, float] = field(default_factory=dict)
    """Seconds for which pods, by uid, have not answered on /status, by this process's own asking."""
    refusing: frozenset[str] = frozenset()
    """Uids of pods whose agents do not take this operator for theirs: they were given another key."""
    warnings: dict[str, str] = field(default_factory=dict)
    """What GPUs of pods, by uid, give to think of, though they still work."""
    held: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """The probes that told so."""
    unmonitored: dict[str, str] | None = field(default_factory=dict)
    """Why nobody watches the GPUs of pods, by uid; None where it is not known yet whether what the job says still holds."""
    nodes: dict[str, Node] = field(default_factory=dict)
    """Nodes of the job's pods that are in trouble, and avoided ones; empty where nodes may not be read."""
    answering: frozenset[str] = frozenset()
    """Uids of pods on nodes in trouble, or that may be, or whom rank 0's agent has lost with all others, whose agent answered
    all the same."""
    pool: Pool | None = None
    """Read only where a decision asked for it."""
    spares: bool = False
    """Whether other nodes surely take the gang's pods from those that they cannot return to; looked for only where asked."""
    waited: float = 0.0
    ended_seconds: float | None = None
    """How long the operator has known of the attempt's first pod that ended badly, by its own clock; None: of none."""
    hindrance: str = ""
    """Why the API server did not take the pods last time, where that may change by itself: a quota, a policy."""
    refusal: str = ""
    """What the API server called invalid in the objects that this job asks for: trying again would not help."""

    @property
    def spec(self) -> TrainingJobSpec:
        """The spec, for policies that run after the job was accepted."""
        if self.job.spec is None:
            raise ValueError("the job was not accepted")
        return self.job.spec

    def unreachable(self, pod: Pod) -> bool:
        """Whether the pod's node is gone, or the cluster has not heard from it for long: its kubelet stops nothing."""
        node = self.nodes.get(pod.node)
        return node is not None and (not node.exists or node.unreachable)

    def asked_to_go(self, pod: Pod) -> bool:
        """Whether somebody deletes the pod, which can still hear of it."""
        return pod.deleting and not pod.gone and not self.on_lost_node(pod)

    def on_lost_node(self, pod: Pod) -> bool:
        """Whether the pod's node is lost to the gang. Trouble alone is not enough while the pod itself still answers.

        Nor is a taint on a node that works, which leaves the pod its grace to save.
        """
        node, answers = self.nodes.get(pod.node), pod.uid in self.answering
        if pod.node_lost:
            return True
        if node is None:
            return pod.tainted and not answers
        return not node.exists or (not node.ready and (pod.tainted or not answers))

    def of_attempt(self, attempt: int) -> tuple[Pod, ...]:
        """Pods of one attempt, by rank: of each the newest that was made, and none that is to be replaced."""
        return newest(self.pods, self.job.status, attempt)

    def members(self, attempt: int) -> tuple[Pod, ...]:
        """Those of them that the attempt's round needs: not the spares, nor others that stand by."""
        idle = standing_by(self.job.status, attempt)
        return tuple(pod for pod in self.of_attempt(attempt) if pod.rank not in idle)

    def superseded(self, attempt: int) -> tuple[Pod, ...]:
        """Pods of one attempt whose place a newer one has taken, or is to take."""
        counts = {pod.rank: pod.incarnation for pod in self.of_attempt(attempt)}
        wanted = _wanted(self.job.status, attempt)
        return tuple(
            pod
            for pod in self.pods
            if pod.attempt == attempt and pod.incarnation < max(counts.get(pod.rank, 0), wanted.get(pod.rank, 0))
        )

    def maintenance(self, attempt: int) -> dict[str, Maintenance]:
        """Why nodes of an attempt's living pods are to be left, by node. For a pod that stands by no gang moves."""
        living = [pod for pod in self.members(attempt) if not pod.stopped]
        return {pod.node: node.maintenance for pod in living if (node := self.nodes.get(pod.node)) and node.maintenance}

    def warned(self, attempt: int) -> dict[str, str]:
        """What GPUs of an attempt's pods give to think of, by node."""
        return {pod.node: message for pod in self.of_attempt(attempt) if (message := self.warnings.get(pod.uid))}

    def of_other_attempts(self, attempt: int) -> tuple[Pod, ...]:
        """Pods that should not be there any more."""
        return tuple(pod for pod in self.pods if pod.attempt != attempt)


def newest(pods: Iterable[Pod], status: TrainingJobStatus, attempt: int) -> tuple[Pod, ...]:
    """Of an attempt's pods the newest incarnation of each rank that is not to be replaced, by rank.

    One that is gone and came back under a new uid counts as the living one. A surge pod is none before the old one has left.
    """
    wanted = _wanted(status, attempt)
    surging = {(one.rank, one.incarnation) for one in status.recovery.surging if attempt == status.attempt}
    chosen: dict[int, Pod] = {}
    for pod in sorted((p for p in pods if p.attempt == attempt), key=lambda p: (p.incarnation, not p.gone)):
        if (pod.rank, pod.incarnation) not in surging and pod.incarnation >= wanted.get(pod.rank, 0):
            chosen[pod.rank] = pod
    return tuple(chosen[rank] for rank in sorted(chosen))


def _wanted(status: TrainingJobStatus, attempt: int) -> dict[int, int]:
    """Rank -> incarnation of the pods that are made anew in this attempt."""
    return {one.rank: one.incarnation for one in status.recovery.replacing} if attempt == status.attempt else {}


def by_rank(pods: Iterable[Pod]) -> dict[int, str]:
    """What people call pods that ranks know by their number alone."""
    return {pod.rank: f"pod {pod.name} on {pod.node}" for pod in pods if pod.node}


def gang_size(spec: TrainingJobSpec, status: TrainingJobStatus, attempt: int) -> int:
    """Pods of an attempt, with its spares: as many as it was begun with."""
    return next((one.node_count for one in status.attempts if one.number == attempt and one.node_count), spec.nodes)


def standing_by(status: TrainingJobStatus, attempt: int) -> frozenset[int]:
    """Ranks of pods that an attempt's round does not need, as far as is known."""
    return frozenset(status.standby if attempt == status.attempt else ())


def absent(size: int, pods: Iterable[Pod], attempt: int) -> list[int]:
    """Ranks of an attempt of that many pods that have none."""
    here = {pod.rank for pod in pods if pod.attempt == attempt and not pod.gone}
    return [rank for rank in range(size) if rank not in here]
