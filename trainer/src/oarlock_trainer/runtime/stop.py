"""SIGTERM means: save and leave; SAVE_SIGNAL: save, and go on; DRILL_SIGNAL: save as if to leave, and go on.

Noted here; the loop acts where all ranks can agree.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from oarlock_trainer.runtime.channel import DRILL_SIGNAL, SAVE_SIGNAL
from oarlock_trainer.runtime.errors import LeftOnRequest

if TYPE_CHECKING:
    from types import FrameType


class StopRequest:
    """Whether this process was asked to leave, or to save."""

    def __init__(self) -> None:
        """Takes the signals from now on, and what was asked of this rank since its fork."""
        self.requested = self._saving = self._drilling = False
        signal.signal(signal.SIGTERM, self._note)
        signal.signal(SAVE_SIGNAL, self._note_saving)
        signal.signal(DRILL_SIGNAL, self._note_drilling)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {SAVE_SIGNAL, DRILL_SIGNAL})  # the rank host has blocked them

    def take_saving(self) -> bool:
        """Whether a checkpoint was asked for since the last call."""
        asked, self._saving = self._saving, False
        return asked

    def take_drilling(self) -> bool:
        """Whether a drill was asked for since the last call."""
        asked, self._drilling = self._drilling, False
        return asked

    def leave_if_requested(self) -> None:
        """Where there is nothing to save yet: leave at once."""
        if self.requested:
            raise LeftOnRequest("left on request: there was nothing to save")

    def _note(self, _signal: int, _frame: FrameType | None) -> None:
        self.requested = True

    def _note_saving(self, _signal: int, _frame: FrameType | None) -> None:
        self._saving = True

    def _note_drilling(self, _signal: int, _frame: FrameType | None) -> None:
        self._drilling = True
