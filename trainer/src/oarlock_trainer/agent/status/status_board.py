"""What is known about this pod's training, for /status and /metrics.

The supervisor's thread writes, the server's threads read: each change replaces one frozen PodStatus.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from oarlock_api.contract.figures import Figures, parse_line
from oarlock_api.contract.status import (
    Degradation,
    PodPhase,
    PodStatus,
    PreflightCheck,
    StepPart,
    parse_checkpoint,
    parse_memory,
    parse_plan,
)
from oarlock_api.contract.wire import integer, number, text
from oarlock_trainer.agent.status.recent_figures import RecentFigures
from oarlock_trainer.runtime.channel import Event

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from oarlock_api.contract.health import Health
    from oarlock_api.contract.requests import Answered, Drill
    from oarlock_api.contract.rounds import LostPod, RoundEnd
    from oarlock_trainer.runtime.assignment import Pod
    from oarlock_trainer.runtime.channel import Message


class StatusBoard:
    """The pod's current status. Progress is taken from one rank, the pod's first: the others' numbers are the same."""

    def __init__(self, pod: Pod, *, job_uid: str, ranks_per_pod: int, clock: Callable[[], str]) -> None:
        self._clock = clock
        self._ranks_per_pod = ranks_per_pod
        self.recent = RecentFigures()
        """For curves; the status has the newest alone."""
        now = clock()
        self._status = PodStatus(
            job_uid=job_uid,
            pod_uid=pod.pod_uid,
            attempt=pod.attempt,
            rank=pod.rank,
            phase=PodPhase.PREFLIGHT,
            heartbeat_at=now,
            started_at=now,
            surges=pod.rank == 0,
        )

    @property
    def status(self) -> PodStatus:
        """The newest status. Any thread may read it."""
        return self._status

    def beat(self, *, hang_after_seconds: float | None = None, silent_seconds: float | None = None) -> None:
        """Note that the supervisor is alive, how long this phase may go without progress, and how long it has."""
        self._set(heartbeat_at=self._clock(), hang_after_seconds=hang_after_seconds, silent_seconds=silent_seconds)

    def enter(self, phase: PodPhase, message: str = "") -> None:
        """Go to a phase; a message stays until the next one."""
        self._set(phase=phase, message=message or self._status.message)

    def note(self, message: str) -> None:
        """Show a sentence in /status until the next one."""
        self._set(message=message)

    def begin_round(self, number: int, ends: tuple[RoundEnd, ...], members: tuple[int, ...]) -> None:
        """Show the newest round, how those before it ended, and its pods by place where those are not 0..nodes-1."""
        self._set(round=number, rounds=ends, members=members)

    def wait_for(self, lost: tuple[LostPod, ...]) -> None:
        """Show the pods that are lost, and whose next incarnation is waited for."""
        self._set(lost=lost)

    def start_anew(self, message: str) -> None:
        """The ranks are gone and begin again: what they told is over, but for the network, which is checked once a pod."""
        slow = {kind: words for kind, words in self._status.degraded.items() if kind == Degradation.SLOW_NETWORK}
        self._set(
            phase=PodPhase.STARTING,
            message=message,
            figures=Figures(),
            step_seconds={},
            resumed_from_step=None,
            degraded=slow,
            memory=None,
            slow_pod=None,
        )

    def check(self, check: PreflightCheck) -> None:
        """Show how a check before the start stands, in the place where it stood before."""
        shown = {one.name: one for one in self._status.preflight} | {check.name: check}
        self._set(preflight=tuple(shown.values()))

    def health(self, health: Health) -> None:
        """Show how the GPUs are."""
        if health is not self._status.health:
            self._set(health=health)

    def answer(self, answered: Answered) -> None:
        """Show what became of the last request."""
        self._set(request=answered)

    def drilled(self, drill: Drill) -> None:
        """Show how long the newest drill took."""
        self._set(drill=drill)

    def slow_rank(self, words: str, pod: int | None) -> None:
        """Show that a rank is slow, why, and of which pod; empty and None: none is."""
        self._degrade(Degradation.SLOW_RANK, words)
        self._set(slow_pod=pod)

    def apply(self, message: Message) -> None:
        """Take in what a rank tells. Unknown events and strange values are left out."""
        fields = message.fields
        if message.event == Event.NOTE:
            self.note(text(fields.get("message"), 1024))
        elif message.rank % self._ranks_per_pod == 0:
            self._apply_progress(message.event, fields)

    def _apply_progress(self, event: str, fields: Mapping[str, Any]) -> None:
        if event == Event.PHASE and (name := text(fields.get("name"), 32)) in frozenset(PodPhase):
            self._set(phase=PodPhase(name))
        elif event == Event.STEP:
            # A loss that is absent or not finite is unknown now, whatever it was before.
            figures, now = parse_line(fields), self._clock()
            if figures.step is not None:
                self.recent.add(figures, time=now)
            self._set(
                figures=figures,
                step_seconds=_step_seconds(fields),
                first_step_at=self._status.first_step_at or now,
            )
            if "loss" in fields:
                finite = self._status.figures.loss is not None
                self._degrade(Degradation.NON_FINITE_LOSS, "" if finite else "the loss of the last step is not finite")
        elif event == Event.DEGRADED and (reason := text(fields.get("reason"), 32)) in frozenset(Degradation):
            self._degrade(Degradation(reason), text(fields.get("message"), 1024))
        else:
            self._set(**_facts(event, fields))

    def _degrade(self, kind: Degradation, words: str) -> None:
        if kind == Degradation.MEMORY_OFF and words:
            self._set(memory=None)
        others = {known: said for known, said in self._status.degraded.items() if known != kind}
        self._set(degraded={**others, kind: words} if words else others)

    def _set(self, **changes: Any) -> None:
        self._status = replace(self._status, **changes)


def _facts(event: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of the status that an event tells the new value of."""
    if event == Event.RESUMED:
        return {"resumed_from_step": integer(fields.get("step"))}
    if event == Event.CHECKPOINT and (saved := parse_checkpoint(fields)):
        return {"checkpoint": saved}
    if event == Event.MEMORY and (held := parse_memory(fields)):
        return {"memory": held}
    if event == Event.PLAN:
        return {"plan": parse_plan(fields)}
    return {"model_path": text(fields.get("path"), 1024)} if event == Event.MODEL else {}


def _step_seconds(fields: Mapping[str, Any]) -> dict[str, float]:
    seconds = {part.value: number(fields.get(f"{part}Seconds")) for part in StepPart}
    return {part: known for part, known in seconds.items() if known is not None}
