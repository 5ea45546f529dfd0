"""What one pod's ending means: its class, and whose budget a restart is charged to."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from oarlock_api.contract.exit_codes import ExitCode, FailureClass, failure_class
from oarlock_operator.observation import Ending, Pod


class Budget(StrEnum):
    """Which count a restart raises. NONE: restarting is no use, the job fails. VOLUNTARY has no limit."""

    APPLICATION = "application"
    INFRASTRUCTURE = "infrastructure"
    VOLUNTARY = "voluntary"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Fault:
    """One pod's ending, understood. `reason` is CamelCase for status and Events, `message` a sentence for people."""

    pod: Pod
    failure_class: FailureClass
    reason: str
    message: str
    budget: Budget

    @property
    def victim(self) -> bool:
        """Its peers broke, not it. A pod that is simply gone is what its peers lost, and no victim."""
        return self.failure_class == FailureClass.PEER_LOST and self.pod.ending is not None


_REASONS = {
    FailureClass.GPU: "GPUFault",
    FailureClass.PEER_LOST: "PeerLost",
    FailureClass.HANG: "Hang",
    FailureClass.STORAGE: "StorageFault",
    FailureClass.CONFIGURATION: "ConfigurationError",
    FailureClass.PREFLIGHT: "PreflightFailed",
    FailureClass.APPLICATION: "ApplicationError",
    FailureClass.FENCED: "OutputInUse",
    FailureClass.REQUESTED: "LeftOnRequest",
}
VOLUNTARY_REASONS = frozenset({"Evicted", _REASONS[FailureClass.REQUESTED]})
"""Reasons of faults that nobody is to blame for: the pods saved, or were given the time to."""
_APPLICATION = {FailureClass.APPLICATION, FailureClass.HANG}
_HOPELESS = {FailureClass.CONFIGURATION, FailureClass.FENCED}
_BUDGETS = {
    **dict.fromkeys(FailureClass, Budget.INFRASTRUCTURE),
    **dict.fromkeys(_APPLICATION, Budget.APPLICATION),
    **dict.fromkeys(_HOPELESS, Budget.NONE),
    FailureClass.REQUESTED: Budget.VOLUNTARY,
}


def classify(pod: Pod, *, overdue: bool = False) -> Fault | None:
    """The fault of a pod of the current attempt, None for one that works or ended well.

    A pod that is gone, though nobody here asked for it, is a fault too: its rank is missing. One that is being deleted is
    saving and will say how it ends, until it is `overdue`.
    """
    if pod.succeeded:
        return None
    if pod.disrupted and (pod.stopped or (pod.deleting and overdue)):
        # Outranks any exit code: whoever needed the node took it, and neither the program nor the node is at fault.
        what = f"pod {pod.name} had to leave {pod.node or 'its node'} ({pod.disrupted})"
        return Fault(pod, FailureClass.REQUESTED, "Evicted", what, Budget.VOLUNTARY)
    if pod.ending is not None:
        return _ended(pod, pod.ending)
    if pod.gone or (pod.deleting and overdue):
        return _disappeared(pod, "is gone" if pod.gone else "was to be gone by now")
    return None


def missing(name: str, attempt: int, rank: int) -> Fault:
    """The fault of a pod that was there and of which nothing is left."""
    return _disappeared(Pod(name=name, uid="", attempt=attempt, rank=rank, gone=True), "is gone")


def _disappeared(pod: Pod, what: str) -> Fault:
    return Fault(
        pod,
        FailureClass.PEER_LOST,
        "PodDisappeared",
        f"pod {pod.name} {what}, and Oarlock did not ask for it",
        Budget.INFRASTRUCTURE,
    )


def _ended(pod: Pod, ending: Ending) -> Fault:
    where = f"pod {pod.name}" + (f" on {pod.node}" if pod.node else "")
    if ending.code is None:
        said = ": ".join(part for part in (ending.reason, ending.message) if part) or "no container ran"
        return Fault(
            pod, FailureClass.PREFLIGHT, ending.reason or "PodFailed", f"{where}: {said}", Budget.INFRASTRUCTURE
        )
    kind = failure_class(ending.code)
    reason = "OOMKilled" if ending.reason == "OOMKilled" else _REASONS[kind]
    return Fault(pod, kind, reason, f"{where}: {_words(ending)}", _BUDGETS[kind])


def _words(ending: Ending) -> str:
    if ending.report and ending.report.summary:
        return ending.report.summary
    code = ending.code or 0
    known = next((c.name for c in ExitCode if c == code), "")
    said = f"exit code {code}" + (f" ({known})" if known else f" (signal {code - 128})" if code > 128 else "")
    return f"{said}: {ending.message}" if ending.message else said
