"""/status on port 9400: what an agent tells about itself, pulled by the operator.

The reader checks jobUid and podUid, because addresses are reused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from oarlock_api.contract.figures import Figures, parse_figures
from oarlock_api.contract.health import Health, parse_health
from oarlock_api.contract.requests import Answered, Drill, parse_answered, parse_drill
from oarlock_api.contract.rounds import (
    MAX_LOST,
    MAX_ROUNDS,
    LostPod,
    RoundEnd,
    parse_lost,
    parse_members,
    parse_rounds,
)
from oarlock_api.contract.wire import encodable, finite, integer, number, parse_object, text

STATUS_VERSION = 1
MAX_BYTES = 65536
MAX_CHECKS = 8
_MAX_WORDS = 512
"""Characters: eight checks and all degradations at their longest, each character escaped, leave room for the rest."""
_POD_OF_GANG = re.compile(r"pod ([0-9]{1,5}) of the gang")


class PodPhase(StrEnum):
    """Where the agent is."""

    PREFLIGHT = "Preflight"
    STANDBY = "Standby"
    """Ready to train, and without a place so far: a spare, or a pod that was made anew."""
    STARTING = "Starting"
    PREPROCESSING = "Preprocessing"
    TRAINING = "Training"
    SAVING = "Saving"
    VALIDATING = "Validating"
    EXPORTING = "Exporting"
    DONE = "Done"
    FAILED = "Failed"


@dataclass(frozen=True, slots=True)
class CheckpointStatus:
    """The newest valid checkpoint. `path` is absolute in the pod, `saved_at` RFC 3339."""

    step: int
    path: str
    saved_at: str
    stall_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class MemoryStatus:
    """The newest state that all nodes have in memory. `saved_at` RFC 3339; `copied`: None where nodes keep no copies.

    `copied`: each node's part is on the next node, too.
    """

    step: int
    saved_at: str
    copied: bool | None = None


class StepPart(StrEnum):
    """What the time of an optimizer step is spent on."""

    DATA = "data"
    """Waiting for the next batch."""
    FORWARD = "forward"
    """The forward pass and the loss, and the batch's way to the device."""
    BACKWARD = "backward"
    """The backward pass, with the exchange of gradients that goes on beneath it."""
    COMMUNICATION = "communication"
    """What nothing hides: the end of the exchange of gradients, the step of a sharded optimizer without its update, and
    the exchange of every step."""
    OPTIMIZER = "optimizer"
    """The update. Where no other rank is needed for a step: clipping too."""
    CHECKPOINT = "checkpoint"
    """Standing still for a checkpoint."""
    REST = "rest"
    """What is none of the others: reporting."""


class CheckResult(StrEnum):
    """How a check before the start stands."""

    RUNNING = "Running"
    PASSED = "Passed"
    WARNING = "Warning"
    """Worth a look, no reason not to start."""
    FAILED = "Failed"
    NOT_SUPPORTED = "NotSupported"
    """It cannot judge here; the detail says why."""


@dataclass(frozen=True, slots=True)
class PreflightCheck:
    """One check before the start. `result` is a CheckResult, `milliseconds` None while it is not known."""

    name: str
    result: str
    milliseconds: int | None = None
    detail: str = ""


class Degradation(StrEnum):
    """What is not as it should be while training goes on, the worst first: reasons of the job's condition Degraded."""

    NON_FINITE_LOSS = "NonFiniteLoss"
    """The loss of the last step is not finite."""
    CHECKPOINT_STORAGE_FULL = "CheckpointStorageFull"
    """There was no room for the last checkpoint."""
    CHECKPOINT_NOT_COPIED = "CheckpointNotCopied"
    """The last copy into checkpoint.upload failed."""
    MEMORY_OFF = "MemoryOff"
    """recovery.memory is on, and no state is kept."""
    MEMORY_NOT_COPIED = "MemoryNotCopied"
    """A node's state in memory does not reach the next node in time."""
    SLOW_RANK = "SlowRank"
    """One rank computes slower than the others, for long."""
    SLOW_NETWORK = "SlowNetwork"
    """The network between the nodes is slower than it should be, or NCCL takes TCP beside InfiniBand."""


def pod_of_gang(rank: int) -> str:
    """How a rank calls a pod of its gang in a sentence: it knows neither the name of the pod nor its node."""
    return f"pod {rank} of the gang"


def with_names(said: str, names: Mapping[int, str]) -> str:
    """That sentence with the names of these pods, by their ranks; the others stay as they are."""
    return _POD_OF_GANG.sub(lambda found: names.get(int(found[1]), found[0]), said)


@dataclass(frozen=True, slots=True)
class PlanStatus:
    """How the job is fitted into its GPUs. ZeRO's stage is 0 for none; the memory is a GPU's at its peak, by the model."""

    effective_batch: int
    zero_stage: int
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class PodStatus:
    """One agent's view of itself. A value that is not known yet is None, never a made-up zero.

    `figures` and `step_seconds` are those of the last step, the latter by its parts (StepPart).
    `first_step_at` is when the first optimizer step of this attempt ended, `started_at` when the agent started,
    both RFC 3339 on the pod's clock: only their difference means something elsewhere. `hang_after_seconds` is how long
    this phase may now go without progress before the agent itself ends the pod with 83, None while it judges nothing:
    whoever finds the agent silent for longer than that by far need not wait for it; `silent_seconds` is how long it has
    gone. `degraded` has a sentence for each
    Degradation that holds. `request` is the last that was asked of rank 0, `drill` the newest of this attempt.
    `slow_pod` is the pod of the rank that SlowRank tells of, by its own rank. `round` counts the starts of all ranks within
    this attempt, `rounds` has the newest of those that ended, as rank 0's agent tells them; what came before has `round`.
    `lost` are the pods that it waits for the next incarnation of. `members` are the pods of the current round by their
    places, where those are not the first `nodes` of the gang in their order; else it is empty, as where there is no room.
    `surges`: this is rank 0's agent, and of a release that knows surge pods.
    """

    job_uid: str
    pod_uid: str
    attempt: int
    rank: int
    phase: str
    heartbeat_at: str
    started_at: str = ""
    first_step_at: str = ""
    resumed_from_step: int | None = None
    figures: Figures = field(default_factory=Figures)
    step_seconds: Mapping[str, float] = field(default_factory=dict)
    plan: PlanStatus | None = None
    checkpoint: CheckpointStatus | None = None
    memory: MemoryStatus | None = None
    degraded: Mapping[str, str] = field(default_factory=dict)
    model_path: str = ""
    message: str = ""
    hang_after_seconds: float | None = None
    silent_seconds: float | None = None
    preflight: tuple[PreflightCheck, ...] = ()
    health: Health = field(default_factory=Health)
    request: Answered | None = None
    drill: Drill | None = None
    slow_pod: int | None = None
    round: int = 1
    rounds: tuple[RoundEnd, ...] = ()
    lost: tuple[LostPod, ...] = ()
    members: tuple[int, ...] = ()
    surges: bool = False

    def to_json(self) -> str:
        """One JSON object."""
        saved, plan = self.checkpoint, self.plan
        fields: dict[str, Any] = {
            "version": STATUS_VERSION,
            "jobUid": self.job_uid,
            "podUid": self.pod_uid,
            "attempt": self.attempt,
            "rank": self.rank,
            "phase": self.phase,
            **self.figures.to_fields(),
            "stepSeconds": {part: finite(seconds) for part, seconds in self.step_seconds.items()},
            "plan": plan
            and {
                "effectiveBatch": plan.effective_batch,
                "zeroStage": plan.zero_stage,
                "memoryBytes": plan.memory_bytes,
            },
            "checkpoint": saved
            and {
                "step": saved.step,
                "path": saved.path,
                "savedAt": saved.saved_at,
                "stallSeconds": finite(saved.stall_seconds),
            },
            "degraded": {kind.value: _sentence(words) for kind in Degradation if (words := self.degraded.get(kind))},
            "health": self.health.to_fields(),
            "startedAt": self.started_at,
            "firstStepAt": self.first_step_at,
            "resumedFromStep": self.resumed_from_step,
            "modelPath": self.model_path,
            "message": self.message[:1024],
            "hangAfterSeconds": finite(self.hang_after_seconds),
            "preflight": [
                {
                    "name": check.name[:32],
                    "result": check.result[:32],
                    "milliseconds": check.milliseconds,
                    "detail": check.detail[:_MAX_WORDS],
                }
                for check in self.preflight[:MAX_CHECKS]
            ],
            "heartbeatAt": self.heartbeat_at,
            **({} if self.silent_seconds is None else {"silentSeconds": finite(self.silent_seconds)}),
            **({"request": self.request.to_fields()} if self.request else {}),
            **({"drill": self.drill.to_fields()} if self.drill else {}),
            **({"memory": _memory_fields(self.memory)} if self.memory else {}),
            **({} if self.slow_pod is None else {"slowPod": self.slow_pod}),
            **({} if self.round == 1 else {"round": self.round}),
            **({"rounds": [one.to_fields() for one in self.rounds[-MAX_ROUNDS:]]} if self.rounds else {}),
            **({"lost": [pod.to_fields() for pod in self.lost[: MAX_LOST + 1]]} if self.lost else {}),
            **({"surges": True} if self.surges else {}),
            **({"members": list(self.members)} if self.members else {}),
        }
        body = _written(fields)
        if self.members and len(body.encode()) > MAX_BYTES:
            del fields["members"]  # the longest by far, where a gang is large
            return _written(fields)
        return body


def _written(fields: dict[str, Any]) -> str:
    return encodable(json.dumps(fields, ensure_ascii=False, separators=(",", ":")))


def parse_status(body: str) -> PodStatus:
    """Read /status. Unknown fields are ignored, strange values become None.

    Raises WireError where it is no JSON object of at most 64 KiB.
    """
    raw = parse_object(body, max_bytes=MAX_BYTES)
    return PodStatus(
        job_uid=text(raw.get("jobUid"), 64),
        pod_uid=text(raw.get("podUid"), 64),
        attempt=integer(raw.get("attempt")) or 0,
        rank=integer(raw.get("rank")) or 0,
        phase=text(raw.get("phase"), 32),
        heartbeat_at=text(raw.get("heartbeatAt"), 40),
        started_at=text(raw.get("startedAt"), 40),
        first_step_at=text(raw.get("firstStepAt"), 40),
        resumed_from_step=integer(raw.get("resumedFromStep")),
        figures=parse_figures(raw),
        step_seconds=_seconds(raw.get("stepSeconds")),
        plan=parse_plan(raw.get("plan")),
        checkpoint=parse_checkpoint(raw.get("checkpoint")),
        memory=parse_memory(raw.get("memory")),
        degraded=_degraded(raw.get("degraded")),
        model_path=text(raw.get("modelPath"), 1024),
        message=text(raw.get("message"), 1024),
        hang_after_seconds=number(raw.get("hangAfterSeconds")),
        silent_seconds=number(raw.get("silentSeconds")),
        preflight=_checks(raw.get("preflight")),
        health=parse_health(raw.get("health")),
        request=parse_answered(raw.get("request")),
        drill=parse_drill(raw.get("drill")),
        slow_pod=integer(raw.get("slowPod")),
        round=max(1, integer(raw.get("round")) or 1),
        rounds=parse_rounds(raw.get("rounds")),
        lost=parse_lost(raw.get("lost")),
        members=parse_members(raw.get("members")),
        surges=raw.get("surges") is True,
    )


def parse_checkpoint(raw: object) -> CheckpointStatus | None:
    """Read a checkpoint; None where its step is missing."""
    if not isinstance(raw, Mapping) or (step := integer(raw.get("step"))) is None:
        return None
    return CheckpointStatus(
        step=step,
        path=text(raw.get("path"), 1024),
        saved_at=text(raw.get("savedAt"), 40),
        stall_seconds=number(raw.get("stallSeconds")),
    )


def parse_memory(raw: object) -> MemoryStatus | None:
    """Read a state in memory; None where its step is missing."""
    if not isinstance(raw, Mapping) or (step := integer(raw.get("step"))) is None:
        return None
    copied = raw.get("copied")
    return MemoryStatus(step, text(raw.get("savedAt"), 40), copied if isinstance(copied, bool) else None)


def _memory_fields(memory: MemoryStatus) -> dict[str, Any]:
    copied = {} if memory.copied is None else {"copied": memory.copied}
    return {"step": memory.step, "savedAt": memory.saved_at, **copied}


def parse_plan(raw: object) -> PlanStatus | None:
    """Read a plan; None where anything of it is missing."""
    if not isinstance(raw, Mapping):
        return None
    batch, stage, memory = (integer(raw.get(name)) for name in ("effectiveBatch", "zeroStage", "memoryBytes"))
    return None if batch is None or stage is None or memory is None else PlanStatus(batch, stage, memory)


def _sentence(words: str) -> str:
    """At its longest, without characters that JSON would write as six."""
    return "".join(one if one.isprintable() else " " for one in words[:_MAX_WORDS])


def _degraded(raw: object) -> dict[str, str]:
    """What this reader knows of it: a reason that it cannot name it cannot explain."""
    known = {kind.value: text(raw.get(kind), _MAX_WORDS) for kind in Degradation} if isinstance(raw, dict) else {}
    return {kind: words for kind, words in known.items() if words}


def _seconds(raw: object) -> dict[str, float]:
    known = {part.value: number(raw.get(part)) for part in StepPart} if isinstance(raw, dict) else {}
    return {part: seconds for part, seconds in known.items() if seconds is not None}


def _checks(raw: object) -> tuple[PreflightCheck, ...]:
    return tuple(
        PreflightCheck(
            name=text(one.get("name"), 32),
            result=text(one.get("result"), 32),
            milliseconds=integer(one.get("milliseconds")),
            detail=text(one.get("detail"), _MAX_WORDS),
        )
        for one in (raw[:MAX_CHECKS] if isinstance(raw, list) else ())
        if isinstance(one, dict)
    )
