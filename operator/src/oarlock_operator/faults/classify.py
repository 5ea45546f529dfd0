"""What one pod's ending means: its class, and whose budget a restart is charged to."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from oarlock_api.contract.exit_codes import ExitCode, FailureClass, failure_class
from oarlock_api.contract.health import GpuVerdict
from oarlock_api.contract.kubelet_words import NEVER_RAN
from oarlock_api.contract.program_endings import program_ending
from oarlock_api.history import FaultGPU
from oarlock_operator.faults.missing_program import COMMAND_NOT_FOUND, missing_program, remedy
from oarlock_operator.model.observation import Ending, Pod
from oarlock_operator.model.reasons import Reason


class Budget(StrEnum):
    """Which count a restart raises. NONE: restarting is no use, the job fails. VOLUNTARY: others asked for it."""

    APPLICATION = "application"
    INFRASTRUCTURE = "infrastructure"
    VOLUNTARY = "voluntary"
    NONE = "none"


class Avoid(StrEnum):
    """What an ending says of its node: nothing, that another one is better, or that it must not be used."""

    NO = "no"
    RATHER = "rather"
    STRICTLY = "strictly"


@dataclass(frozen=True, slots=True)
class Fault:
    """One pod's ending, understood. `reason` is CamelCase for status and Events, `message` a sentence for people."""

    pod: Pod
    failure_class: FailureClass
    reason: str
    message: str
    budget: Budget
    avoid: Avoid = Avoid.NO
    cordon: bool = False
    """Evidence against the node's hardware: it should be taken from everybody, not from this job alone."""
    rule: str = ""
    """The rule of the job's own (spec.recovery.rules) that made it what it is."""
    held: tuple[str, ...] = ()
    """Probes of a GPU that warned and works on; empty where something ended."""

    @property
    def gpu(self) -> FaultGPU | None:
        """The GPU that its report names."""
        gpu = self.pod.report.gpu if self.pod.report else None
        return FaultGPU(index=gpu.index, uuid=gpu.uuid or None, serial=gpu.serial or None) if gpu else None

    @property
    def killed_with_its_agent(self) -> bool:
        """Whether its container was killed, or lost with its node, before anybody in it could say a word."""
        ended = self.pod.ending
        return ended is not None and not ended.report and (ended.code == KILLED or ended.unexplained)

    @property
    def refused_by_node(self) -> bool:
        """Whether its container never ran, for what another node may have."""
        ended = self.pod.ending
        return ended is not None and (ended.code is None or ended.reason in NEVER_RAN) and self.avoid is not Avoid.NO

    @property
    def node_may_do_it_again(self) -> bool:
        """Whether the next start may end the same way, for a reason of nodes: attempts then keep apart in time."""
        return self.refused_by_node or (self.pod.ending is not None and self.pod.ending.unexplained)

    @property
    def xid(self) -> int | None:
        """The driver's number, where its report has one."""
        return self.pod.report.xid if self.pod.report else None

    @property
    def verdict(self) -> GpuVerdict | None:
        """What a GPU's fault calls for; None for all others."""
        if self.failure_class != FailureClass.GPU:
            return None
        if self.held:
            return GpuVerdict.HOLD
        return GpuVerdict.REPLACE_NODE if self.avoid is Avoid.STRICTLY else GpuVerdict.RESTART_PROCESS

    @property
    def victim(self) -> bool:
        """Its peers broke, not it. A pod that is simply gone is what its peers lost, and no victim."""
        return self.failure_class == FailureClass.PEER_LOST and self.pod.ending is not None


_REASONS = {
    FailureClass.GPU: Reason.GPU_FAULT,
    FailureClass.PEER_LOST: Reason.PEER_LOST,
    FailureClass.HANG: Reason.HANG,
    FailureClass.STORAGE: Reason.STORAGE_FAULT,
    FailureClass.CONFIGURATION: Reason.CONFIGURATION_ERROR,
    FailureClass.PREFLIGHT: Reason.PREFLIGHT_FAILED,
    FailureClass.APPLICATION: Reason.APPLICATION_ERROR,
    FailureClass.FENCED: Reason.OUTPUT_IN_USE,
    FailureClass.REQUESTED: Reason.LEFT_ON_REQUEST,
    FailureClass.NODE_LOST: Reason.NODE_LOST,
}
_ENDINGS = (
    Reason.PROCESS_KILLED,
    Reason.KILLED_AFTER_GRACE,
    Reason.OOM_KILLED,
    Reason.GPU_OUT_OF_MEMORY,
    Reason.NON_FINITE_LOSS,
)
"""How a program's end is called more precisely, where its words tell."""
_BAD_NODE = {ExitCode.REPLACE_NODE, ExitCode.PREFLIGHT}
"""Codes whose report speaks against the node itself."""
_APPLICATION = {FailureClass.APPLICATION, FailureClass.HANG}
_HOPELESS = {FailureClass.CONFIGURATION, FailureClass.FENCED}
_BUDGETS = {
    **dict.fromkeys(FailureClass, Budget.INFRASTRUCTURE),
    **dict.fromkeys(_APPLICATION, Budget.APPLICATION),
    **dict.fromkeys(_HOPELESS, Budget.NONE),
    FailureClass.REQUESTED: Budget.VOLUNTARY,
}


_NOT_THE_NODES = frozenset({"DeadlineExceeded"})
"""Reasons of a pod that failed without a container's exit code, and that another node would give as well
(active_deadline.go). All others, TopologyAffinityError, OutOfcpu, NodeShutdown or one of a release to come, may be another
node's to run."""
KILLED = 128 + 9


def classify(pod: Pod, *, overdue: bool = False, node_lost: bool = False) -> Fault | None:
    """The fault of a pod of the current attempt, None for one that works or ended well.

    A pod that is gone, though nobody here asked for it, is a fault too: its rank is missing. One that is being deleted is
    saving and will say how it ends, until it is `overdue`, or until its node is lost.
    """
    if pod.succeeded:
        return None
    if (pod.ending is None or pod.ending.code is None) and (pod.node_lost or node_lost):
        what = f"node {pod.node or 'unknown'} of pod {pod.name} is lost"
        return Fault(pod, FailureClass.NODE_LOST, Reason.NODE_LOST, what, Budget.INFRASTRUCTURE, Avoid.RATHER)
    if (pod.own_limit or pod.disrupted) and (pod.stopped or (pod.deleting and overdue)):
        return _evicted(pod)
    if pod.ending is not None:
        return _ended(pod, pod.ending)
    if pod.gone or (pod.deleting and overdue):
        return _disappeared(pod, "is gone" if pod.gone else "was to be gone by now")
    return None


def _evicted(pod: Pod) -> Fault:
    """Outranks any exit code: it was killed, or told to go, for this alone."""
    where = pod.node or "its node"
    if pod.own_limit:
        what = f"pod {pod.name} was evicted from {where}: {pod.own_limit}"
        return Fault(pod, FailureClass.APPLICATION, Reason.LIMIT_EXCEEDED, what, Budget.APPLICATION)
    # Whoever needed the node took it, and neither the program nor the node is at fault.
    what = f"pod {pod.name} had to leave {where} ({pod.disrupted})"
    return Fault(pod, FailureClass.REQUESTED, Reason.EVICTED, what, Budget.VOLUNTARY)


def missing(name: str, attempt: int, rank: int) -> Fault:
    """The fault of a pod that was there and of which nothing is left."""
    return _disappeared(Pod(name=name, uid="", attempt=attempt, rank=rank, gone=True), "is gone")


def _disappeared(pod: Pod, what: str) -> Fault:
    return Fault(
        pod,
        FailureClass.PEER_LOST,
        Reason.POD_DISAPPEARED,
        f"pod {pod.name} {what}, and Oarlock did not ask for it",
        Budget.INFRASTRUCTURE,
    )


def _ended(pod: Pod, ending: Ending) -> Fault:
    where = f"pod {pod.name}" + (f" on {pod.node}" if pod.node else "")
    if message := cannot_run(ending):
        return Fault(pod, FailureClass.CONFIGURATION, Reason.CONFIGURATION_ERROR, f"{where}: {message}", Budget.NONE)
    if ending.report is None and ending.reason in NEVER_RAN:
        # Its image has the program: a hook of the GPUs' driver, a full disk or the runtime itself is the node's.
        said = f"{where}: {ending.reason}: {ending.message or 'its runtime does not say why'}"
        return Fault(pod, FailureClass.PREFLIGHT, ending.reason, said, Budget.INFRASTRUCTURE, Avoid.RATHER)
    if ending.code is None:
        said = ": ".join(part for part in (ending.reason, ending.message) if part) or "no container ran"
        # An eviction costs nothing; this pod was never let in.
        reason = Reason.REFUSED_BY_NODE if ending.reason == Reason.EVICTED else ending.reason or Reason.POD_FAILED
        # An init container that failed leaves no reason: it is the pod's own.
        avoid = Avoid.RATHER if ending.reason and reason not in _NOT_THE_NODES else Avoid.NO
        return Fault(pod, FailureClass.PREFLIGHT, reason, f"{where}: {said}", Budget.INFRASTRUCTURE, avoid)
    if ending.unexplained:
        return _lost_sight_of(pod, ending, where)
    own_word = ending.report.code if ending.report else None
    if pod.deleting and ending.code == KILLED and own_word == ExitCode.LEFT_ON_REQUEST:
        # Its ranks had saved, and it waited for those of others.
        return _ended(pod, replace(ending, code=ExitCode.LEFT_ON_REQUEST))
    kind = failure_class(ending.code)
    avoid = Avoid.STRICTLY if ending.code in _BAD_NODE else Avoid.NO
    # Code 87 speaks of this pod's needs; of the hardware only where it names a GPU. Code 80 can be had by any program
    # that exits with it: without the driver's evidence this job keeps off the node, and others keep it.
    named = ending.code == ExitCode.PREFLIGHT and ending.report is not None and ending.report.gpu is not None
    proven = ending.code == ExitCode.REPLACE_NODE and ending.report is not None and ending.report.proven
    broken = proven or named
    message = _killed(pod, ending) if ending.code == KILLED and not ending.report else _message(ending)
    reason = Reason.OOM_KILLED if ending.reason == Reason.OOM_KILLED else _REASONS[kind]
    if reason is Reason.APPLICATION_ERROR and (told := program_ending(message)):
        reason = next(one for one in _ENDINGS if one == told)
    return Fault(pod, kind, reason, f"{where}: {message}", _BUDGETS[kind], avoid, broken)


def _lost_sight_of(pod: Pod, ending: Ending, where: str) -> Fault:
    """The fault of a container that is there no more, and that nobody saw end."""
    if pod.node_restarted:
        reason, what = Reason.NODE_RESTARTED, f"node {pod.node} was restarted under pod {pod.name}"
    else:
        reason = Reason.END_UNKNOWN
        what = f"{where}: nobody knows how it ended, as where its node or the container runtime was restarted"
    said = f"{what} ({ending.reason}, exit code {ending.code})"
    return Fault(pod, FailureClass.NODE_LOST, reason, said, Budget.INFRASTRUCTURE, Avoid.RATHER)


def cannot_run(ending: Ending) -> str:
    """Why the container's program never ran, where its image has none; empty for all other endings."""
    if ending.report is not None:
        return ""
    never_ran = ending.code is None or ending.reason in NEVER_RAN
    if never_ran and (program := missing_program(ending.message)):
        message = f"its image has no program {program}: {remedy(program, initial=ending.code is None)}"
        return f"{message}. The container runtime says: {ending.message}"
    if ending.code == COMMAND_NOT_FOUND and ending.reason not in NEVER_RAN:
        said = f": {ending.message}" if ending.message else ""
        return f"exit code {COMMAND_NOT_FOUND}, its image lacks a program that its start needs{said}"
    return ""


def _killed(pod: Pod, ending: Ending) -> str:
    """What is known of a container whose agent was killed with it: the last lines of its log are no reason."""
    said = f"killed by SIGKILL (exit code {KILLED})"
    if ending.reason == Reason.OOM_KILLED:
        return f"{said}, out of memory: raise spec.pod.resources.limits.memory, or have the program take less"
    if pod.deleting:
        return f"{said}, because the time that it had to save was over"
    return f"{said}, as where the node runs out of memory: its kernel's log (dmesg) tells, unless somebody killed it by hand"


def _message(ending: Ending) -> str:
    if ending.report and ending.report.summary:
        return ending.report.summary
    code = ending.code or 0
    known = next((c.name for c in ExitCode if c == code), "")
    said = f"exit code {code}" + (f" ({known})" if known else f" (signal {code - 128})" if code > 128 else "")
    return f"{said}: {ending.message}" if ending.message else said
