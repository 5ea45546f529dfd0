"""SIGTERM means: save and leave. The request is only noted here; the loop acts on it where all ranks can agree."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from oarlock_trainer.errors import LeftOnRequest

if TYPE_CHECKING:
    from types import FrameType


class StopRequest:
    """Whether this process was asked to leave."""

    def __init__(self) -> None:
        """Takes SIGTERM from now on."""
        self.requested = False
        signal.signal(signal.SIGTERM, self._note)

    def leave_if_requested(self) -> None:
        """Where there is nothing to save yet: leave at once."""
        if self.requested:
            raise LeftOnRequest("left on request before the first step")

    def _note(self, _signal: int, _frame: FrameType | None) -> None:
        self.requested = True
