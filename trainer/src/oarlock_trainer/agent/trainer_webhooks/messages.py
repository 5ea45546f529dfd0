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
    from oarlock_trainer.agent.trainer_webhooks.payloads import Told

PROBE = "webhook"
"""In contract.report.CLAIMED."""
_LASTING = (PodPhase.EXPORTING, PodPhase.DONE)
"""What comes after the last step, and does not end with a stage within it."""


class TrainerMessages:
    """The trainer's story so far, told as global rank `rank`. `now` is a clock that only goes forward, `stamp` RFC 3339."""

    def __init__(
        self, inbox: Inbox, *, rank: int, attempt: int, now: Callable[[], float], stamp: Callable[[], str]
    ) -> None:
        self._inbox = inbox
        self._rank = rank
        self._attempt = attempt
        self._now = now
        self._stamp = stamp
        self._base = self._phase = PodPhase.STARTING
        self._resumed: int | None = None
        self._step: int | None = None
        self._step_at = 0.0
        self._claims: list[Symptom] = []

    @property
    def descriptor(self) -> int:
        """Readable when something was told."""
        return self._inbox.descriptor

    def received(self) -> list[Message]:
        """What was told since the last call, as a rank would have told it."""
        return [message for told in self._inbox.take() for message in self._messages(told)]

    def claims(self) -> list[Symptom]:
        """What `received` has heard against GPUs since the last call."""
        claims, self._claims = self._claims, []
        return claims

    def _messages(self, told: Told) -> list[Message]:
        if isinstance(told, Step):
            return self._stepped(told)
        if isinstance(told, Saved):
            saved = {"step": told.step, "path": told.path, "savedAt": self._stamp()}
            return [Message(Event.CHECKPOINT, self._rank, saved)]
        if isinstance(told, Stage):
            return self._entered(told)
        if isinstance(told, Fault):
            return self._blamed(told)
        if isinstance(told, Trouble):
            return [self._note(told.message)]
        return [self._sign()]

    def _stepped(self, told: Step) -> list[Message]:
        messages = []
        if self._resumed is None and (told.resumed or self._attempt > 1):
            # Without a word of its own: whoever goes on has its first new step behind it.
            self._resumed = told.resumed or max(told.step - 1, 0)
            messages.append(Message(Event.RESUMED, self._rank, {"step": self._resumed}))
        if told.step in (self._step, self._resumed, 0):
            return [*messages, self._sign()]
        now = self._now()
        pace = None
        if self._step is not None and told.step > self._step:
            pace = (now - self._step_at) / (told.step - self._step)
        self._step, self._step_at = told.step, now
        if self._base is PodPhase.STARTING:
            self._base = PodPhase.TRAINING
        fields = {
            "step": told.step,
            "total": told.total,
            "epoch": told.epoch,
            "learningRate": told.learning_rate,
            "secondsPerStep": pace,
            **({} if told.loss is None else {"loss": told.loss}),  # one that is told as null is not finite
        }
        return [*messages, *self._go_to(self._base), Message(Event.STEP, self._rank, fields)]

    def _entered(self, told: Stage) -> list[Message]:
        if told.phase in _LASTING:
            self._base = told.phase
        return self._go_to(self._base if told.over else told.phase) or [self._sign()]

    def _go_to(self, phase: PodPhase) -> list[Message]:
        if phase is self._phase:
            return []
        self._phase = phase
        return [Message(Event.PHASE, self._rank, {"name": str(phase)})]

    def _blamed(self, told: Fault) -> list[Message]:
        found = error_text.find(told.message)
        if found and found[0] is not Kind.GPU:
            # SimpleTuner calls any CUDA and NCCL error a GPU's fault, memory that runs out and lost peers too.
            return [self._note(told.message)]
        claim = Symptom(
            probe=PROBE,
            verdict=GpuVerdict.RESTART_PROCESS if told.ends_it else GpuVerdict.HOLD,
            words=f"is blamed by the trainer ({told.type}): {told.message}"[:512],
            value=told.type,
            at=self._stamp(),
            gpu=None if told.index is None or told.index < 0 else Gpu(index=told.index, name=told.name),
        )
        self._claims.append(claim)
        return [self._sign()]

    def _note(self, message: str) -> Message:
        return Message(Event.NOTE, self._rank, {"message": message})

    def _sign(self) -> Message:
        return Message(Event.WORKING, self._rank, {})
