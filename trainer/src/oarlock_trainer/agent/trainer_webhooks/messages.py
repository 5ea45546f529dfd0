"""What a trainer tells by webhooks, in the words that ranks of ours use: steps and phases, and GPUs that it blames.

Its steps are believed: they are shown, and where the job sets hangSeconds, their absence is a hang. What it says of a GPU
is a claim: the processes start anew, and only if the driver says the same is a node taken from anybody (gpu_guard.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oarlock_api.contract.health import GpuVerdict
from oarlock_api.contract.report import Gpu
from oarlock_api.contract.status import PodPhase
from oarlock_trainer.agent.trainer_webhooks.payloads import Fault, Saved, Stage, Step, Trouble
from oarlock_trainer.health import error_text
from oarlock_trainer.health.error_text import ErrorSource as Kind
from oarlock_trainer.health.symptom import Symptom
from oarlock_trainer.runtime.channel import Event, Message

if TYPE_CHECKING:
    from collections.abc import Callable

    from oarlock_trainer.agent.trainer_webhooks.inbox import Inbox
    from oarlock_trainer.agent.trainer_webhooks.payloads import Payload

PROBE = "webhook"
"""In contract.report.CLAIMED."""
_LASTING = (PodPhase.EXPORTING, PodPhase.DONE)
"""What comes after the last step, and does not end with a stage within it."""


class TrainerMessages:
    """What the trainer tells, as messages of rank `rank`. `now` is a clock that only goes forward, `stamp` RFC 3339."""

    def __init__(
        self, inbox: Inbox, *, rank: int, attempt: int, now: Callable[[], float], stamp: Callable[[], str]
    ) -> None:
        self._inbox = inbox
        self._rank = rank
        self._goes_on = attempt > 1
        """Whether training has begun before, in an earlier attempt or round."""
        self._now = now
        self._stamp = stamp
        self._begin()

    def _begin(self) -> None:
        self._base = self._phase = PodPhase.STARTING
        self._resumed: int | None = None
        self._step: int | None = None
        self._step_at = 0.0
        self._claims: list[Symptom] = []

    @property
    def descriptor(self) -> int:
        """Readable when something has come."""
        return self._inbox.descriptor

    def received(self) -> list[Message]:
        """What has come since the last call, as a rank would have told it."""
        return [message for payload in self._inbox.take() for message in self._messages(payload)]

    def forget(self) -> None:
        """The trainer that told all of it is gone; the next one goes on from where it finds itself."""
        self._inbox.take()
        self._goes_on = True
        self._begin()

    def claims(self) -> list[Symptom]:
        """What `received` has heard against GPUs since the last call."""
        claims, self._claims = self._claims, []
        return claims

    def _messages(self, payload: Payload) -> list[Message]:
        if isinstance(payload, Step):
            return self._stepped(payload)
        if isinstance(payload, Saved):
            saved = {"step": payload.step, "path": payload.path, "savedAt": self._stamp()}
            return [Message(Event.CHECKPOINT, self._rank, saved)]
        if isinstance(payload, Stage):
            return self._entered(payload)
        if isinstance(payload, Fault):
            return self._blamed(payload)
        if isinstance(payload, Trouble):
            return [self._note(payload.message)]
        return [self._sign()]

    def _stepped(self, payload: Step) -> list[Message]:
        messages = []
        if self._resumed is None and (payload.resumed or self._goes_on):
            # Without a word of its own: whoever goes on has its first new step behind it.
            self._resumed = payload.resumed or max(payload.step - 1, 0)
            messages.append(Message(Event.RESUMED, self._rank, {"step": self._resumed}))
        if payload.step in (self._step, self._resumed, 0):
            return [*messages, self._sign()]
        now = self._now()
        pace = None
        if self._step is not None and payload.step > self._step:
            pace = (now - self._step_at) / (payload.step - self._step)
        self._step, self._step_at = payload.step, now
        if self._base is PodPhase.STARTING:
            self._base = PodPhase.TRAINING
        fields = {
            "step": payload.step,
            "total": payload.total,
            "epoch": payload.epoch,
            "learningRate": payload.learning_rate,
            "secondsPerStep": pace,
            **({} if payload.loss is None else {"loss": payload.loss}),  # one that is told as null is not finite
        }
        return [*messages, *self._go_to(self._base), Message(Event.STEP, self._rank, fields)]

    def _entered(self, payload: Stage) -> list[Message]:
        if payload.phase in _LASTING:
            self._base = payload.phase
        return self._go_to(self._base if payload.over else payload.phase) or [self._sign()]

    def _go_to(self, phase: PodPhase) -> list[Message]:
        if phase is self._phase:
            return []
        self._phase = phase
        return [Message(Event.PHASE, self._rank, {"name": str(phase)})]

    def _blamed(self, payload: Fault) -> list[Message]:
        found = error_text.find(payload.message)
        if found and found[0] is not Kind.GPU:
            # SimpleTuner calls any CUDA and NCCL error a GPU's fault, memory that runs out and lost peers too.
            return [self._note(payload.message)]
        claim = Symptom(
            probe=PROBE,
            verdict=GpuVerdict.RESTART_PROCESS if payload.ends_it else GpuVerdict.HOLD,
            words=f"is blamed by the trainer ({payload.type}): {payload.message}"[:512],
            value=payload.type,
            at=self._stamp(),
            gpu=None if payload.index is None or payload.index < 0 else Gpu(index=payload.index, name=payload.name),
        )
        self._claims.append(claim)
        return [self._sign()]

    def _note(self, message: str) -> Message:
        return Message(Event.NOTE, self._rank, {"message": message})

    def _sign(self) -> Message:
        return Message(Event.WORKING, self._rank, {})
