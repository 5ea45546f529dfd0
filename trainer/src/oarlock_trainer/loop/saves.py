"""When the loop saves, and what is told of it."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from oarlock_api.contract.status import Degradation, PodPhase
from oarlock_trainer.checkpoint.format import valid_checkpoints
from oarlock_trainer.checkpoint.upload import Upload
from oarlock_trainer.checkpoint.writer import NoRoom
from oarlock_trainer.engine import own_gpu
from oarlock_trainer.runtime import channel
from oarlock_trainer.runtime.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from oarlock_trainer.checkpoint.upload import Copied
    from oarlock_trainer.checkpoint.writer import SavedCheckpoint
    from oarlock_trainer.loop.session import Session
    from oarlock_trainer.runtime.stop import StopRequest

TOLD = 5
"""How many numbers a rank tells in each step."""


class Saves:
    """The checkpoints of one run of the loop. Methods that say so are collective."""

    def __init__(self, session: Session) -> None:
        self._session = session
        keep = session.job.training.checkpoint.keep
        self._upload = Upload(session.copies, session.fence, session.ranks, keep=keep) if session.copies else None
        self._begun = session.saved  # what an attempt begins with need not be saved
        self.newest: Path | None = None
        """The checkpoint that was made last."""
        self._noticed = self._asked = time.monotonic()
        """When a rank could first be told to go that was heard at this step, and at the next one."""
        resumed = session.resumed
        if self._upload and resumed and resumed.manifest.job_uid == session.job.file.job_uid:
            # Who made it may have died before.
            if resumed.in_memory:
                self._upload.take_up(self._newest_of_the_job)
            else:
                self._upload.begin(resumed.path)

    def _newest_of_the_job(self) -> Path | None:
        """In the output, for which whoever goes on from memory does not wait."""
        job = self._session.job
        own = (one for one in valid_checkpoints(job.output) if one.manifest.job_uid == job.file.job_uid)
        return next((one.path for one in own), None)

    def told(self, step: int) -> tuple[float, ...]:
        """What all ranks add up before the update that ends `step`; TOLD numbers.

        Whether this rank is ready to go on with the save that is on its way, and with the copy; and what memory tells.
        """
        memory = self._session.memory
        return (
            float(self._session.writer.ready()),
            float(self._upload is not None and self._upload.ready()),
            *(memory.told(step) if memory else (0.0, 0.0, 0.0)),
        )

    def go_on(self, told: Sequence[float], step: int, *, seconds: float, last: bool) -> None:
        """Go on with what all ranks are ready for, by the sums of what they told. Collective.

        `seconds`: what the step took. The state after the `last` one is saved: it need not be in memory.
        """
        saving, copying, *of_memory = told
        if saving == self._session.ranks.rank_info.world_size:
            self.report(self._session.writer.advance())
        if self._upload and copying == self._session.ranks.rank_info.world_size:
            _tell_copy(self._upload.advance())
        if self._session.memory:
            position = None if last else self._session.position
            self._session.memory.go_on(of_memory, step, seconds=seconds, position=position)

    def finish_copy(self, go_on: Callable[[], None]) -> None:
        """Wait for the copy that is on its way. Collective. `go_on` may raise to stop."""
        if self._upload:
            _tell_copy(self._upload.finish(go_on))

    def due(self, step: int, stop: StopRequest) -> tuple[bool, bool]:
        """Whether this rank wants a checkpoint after `step` steps, and whether as at an eviction. To be asked each step."""
        leads, every = self._session.ranks.rank_info.is_leader, self._session.job.file.recovery.drill_every_steps
        drilling, saving = stop.take_drilling(), stop.take_saving()  # one checkpoint serves both
        drill = drilling or (leads and every is not None and step % every == 0)
        now = time.monotonic()
        self._noticed, self._asked = self._asked, now
        return drill or saving or (leads and self._session.interval.is_due(step, now)), drill

    def begin(self, step: int, *, drill: bool = False) -> None:
        """Save the state after `step` steps, once the save before it has ended. Collective.

        At a drill stand still until that has ended too, and tell how long it took since a notice could have come.
        """
        self._settle()
        self._begin(step)
        if drill and self._settle():
            channel.send(channel.Event.DRILL, step=step, seconds=time.monotonic() - self._noticed)

    def _settle(self) -> bool:
        """Stand still until the save that is on its way, if any, has ended; whether it is a checkpoint."""
        if not self._session.writer.pending:
            return False
        outcome = self._ended()
        self.report(outcome)
        channel.send(channel.Event.PHASE, name=PodPhase.TRAINING)
        return not isinstance(outcome, NoRoom)

    def finish(self, step: int) -> None:
        """Wait until the save that was begun after `step` steps is a checkpoint. Collective.

        Raises StorageError where there is no room for it, and none could be made.
        """
        outcome = self._ended()
        while isinstance(outcome, NoRoom) and outcome.freed:
            self.report(outcome)
            self._begin(step)
            outcome = self._ended()
        if isinstance(outcome, NoRoom):
            raise StorageError(f"{_words(outcome)}. The state after {step} steps is not saved, and no model is written")
        self.report(outcome)

    def have(self, step: int) -> None:
        """Save the state after `step` steps unless it is saved, and wait until it is. Collective. Raises as `finish`."""
        if self._begun != step:
            self.begin(step)
        if self._session.writer.pending:
            self.finish(step)

    def _begin(self, step: int) -> None:
        self._begun = step
        self._session.interval.began(time.monotonic())
        self._session.writer.begin(step, self._session.position(step))

    def _ended(self) -> SavedCheckpoint | NoRoom:
        """Stand still until the save that is on its way has ended."""
        channel.send(channel.Event.PHASE, name=PodPhase.SAVING)
        return self._session.writer.finish()

    def report(self, outcome: SavedCheckpoint | NoRoom | None) -> None:
        """Tell the agent, and the interval, how a save ended; None: it has not yet."""
        if outcome is None:
            return
        full = _words(outcome) if isinstance(outcome, NoRoom) else ""
        _tell_degraded(Degradation.CHECKPOINT_STORAGE_FULL, full)
        if isinstance(outcome, NoRoom):
            self._begun = None
            return
        if self.newest is None and (others := own_gpu.others(self._session.ranks.device)):
            channel.tell(_words_of_others(others))
        self.newest = outcome.path
        self._session.interval.saved(stall=outcome.stall_seconds, seconds=outcome.seconds)
        channel.send(
            channel.Event.CHECKPOINT,
            step=outcome.step,
            path=str(outcome.path),
            savedAt=outcome.saved_at,
            stallSeconds=outcome.stall_seconds,
        )
        if self._upload:
            self._upload.begin(outcome.path)


def _tell_copy(copied: Copied | None) -> None:
    """Say what became of a copy; None: nothing yet."""
    if copied is None:
        return
    failed = (
        f"checkpoint {copied.name} could not be copied to checkpoint.upload: {copied.wrong}" if copied.wrong else ""
    )
    _tell_degraded(Degradation.CHECKPOINT_NOT_COPIED, failed)
    if not failed:
        channel.send(channel.Event.NOTE, message=f"checkpoint {copied.name} is in checkpoint.upload")


def _tell_degraded(kind: Degradation, words: str) -> None:
    """Tell the agent, and the log; empty: it is over."""
    channel.send(channel.Event.DEGRADED, reason=kind, message=words)
    if words:
        sys.stderr.write(f"{words}\n")


def _words(gone: NoRoom) -> str:
    freed = "the oldest checkpoint was deleted to make room" if gone.freed else "no older checkpoint could be deleted"
    remedy = "give the output more room, or set a lower checkpoint.keep"
    return f"no room for the checkpoint of step {gone.step}, {freed}: {remedy}"


def _words_of_others(gpus: list[int]) -> str:
    named = ", ".join(map(str, gpus))
    return (
        f"this rank has taken memory of GPU {named} beside its own, half a gigabyte on each: something in its process calls "
        "CUDA in a thread that has not chosen a GPU"
    )
