"""Where this round's ranks began, and the newest checkpoint, by what this pod's ranks tell of both."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oarlock_api.contract.status import CheckpointStatus, PodStatus


class Saved:
    """Of one agent. `step` is the newest checkpoint's that can be gone on from, -1 where nobody has told of one."""

    def __init__(self) -> None:
        self.step = -1
        self._checkpoint: CheckpointStatus | None = None
        """The newest that ranks told of."""
        self._from: int | None = None
        self._begun = False

    def begin(self, step: int | None) -> None:
        """The ranks of a round start, and are told to go on from this step in memory; None: from a checkpoint."""
        self._from, self._begun = step, False

    def hear(self, status: PodStatus) -> int | None:
        """Take in what the ranks tell; returns the step that they went on from (0: none), once in a round."""
        went_on_from = None if self._begun else _began_at(status)
        if went_on_from is not None:
            self._begun = True
            if went_on_from != self._from:
                self.step = went_on_from  # whichever was told of before can't be gone on from
        if status.checkpoint and status.checkpoint != self._checkpoint:
            self._checkpoint, self.step = status.checkpoint, status.checkpoint.step
        return went_on_from


def _began_at(status: PodStatus) -> int | None:
    if status.resumed_from_step is None and status.figures.step is not None:
        return 0
    return status.resumed_from_step
