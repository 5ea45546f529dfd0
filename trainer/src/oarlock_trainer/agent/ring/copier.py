"""Copying parts into this node's folder, as long as they are wanted: for the ring, and for what is restored."""

from __future__ import annotations

import math
import threading
import time
from collections import defaultdict
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from oarlock_trainer.agent.ring.pull import Begun, StoppedError, part_of, pull
from oarlock_trainer.checkpoint.memory.held import held

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from oarlock_trainer.agent.ring.peer import Peer, Step
    from oarlock_trainer.checkpoint.memory.files import RankFiles
    from oarlock_trainer.runtime.assignment import Assignment


class Copier:
    """Of one agent. `changing` is held while files change. `epoch` counts what is wanted: a copy for an earlier one stops."""

    def __init__(self, assignment: Assignment, folder: Path) -> None:
        self.folder, self._ranks_per_node = folder, assignment.ranks_per_node
        self._job_uid, self._attempt = assignment.job.job_uid, assignment.job.attempt
        self.changing = threading.Lock()
        self.epoch = 0
        self.begun: defaultdict[int, Begun] = defaultdict(Begun)
        """Rank -> what of its part a copy that failed has brought."""

    def ranks(self, place: int) -> range:
        """Of the ranks of a place."""
        return range(place * self._ranks_per_node, (place + 1) * self._ranks_per_node)

    def kept(self, place: int) -> list[int]:
        """Steps of which all of a place's parts are here, newest first."""
        return [step for step, _, of in held(self.folder, ranks_per_node=self._ranks_per_node) if place in of]

    def places(self, step: int) -> set[int]:
        """Those all of whose parts of a step are here."""
        found = held(self.folder, ranks_per_node=self._ranks_per_node)
        return {place for one, _, of in found if one == step for place in of}

    @contextmanager
    def only_while(self, epoch: int, until: float) -> Iterator[None]:
        """Hold the lock. Raises StoppedError once something else is wanted, or the time is up."""
        with self.changing:
            if epoch != self.epoch or time.monotonic() > until:
                raise StoppedError
            yield

    def copy(
        self,
        peer: Peer,
        files: RankFiles,
        step: Step,
        rank: int,
        *,
        rounds: range,
        keep: int | None,
        share: float,
        epoch: int,
        until: float = math.inf,
    ) -> None:
        """Let one rank's part count here, once it is whole. Raises PeerError, NoRoomError, StoppedError and those of BAD."""
        world = step.size * self._ranks_per_node
        part = part_of(
            peer.manifest(step.step, rank, world=world),
            job_uid=self._job_uid,
            attempt=self._attempt,
            step=step.step,
            rank=rank,
            world=world,
            rounds=rounds,
        )
        begun, only_while = self.begun[rank], partial(self.only_while, epoch, until)
        pull(peer, part, files, self.folder, rank=rank, keep=keep, share=share, begun=begun, only_while=only_while)
