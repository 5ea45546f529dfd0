"""One agent's part of the ring: what it copies, when, and what it forgets.

    ring.ready              a pod that was made anew has what it can have of its own part
    ring.begin(round, step) ranks start: what is of another step counts no longer, and the node before it is copied from
    ring.stop()             no rank is left: what counts here now stays as it is

Two rounds never mix: an agent says which round its memory is of, once all else is forgotten, and takes only what is of its
own. What was on its way when a round ends is left out.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from oarlock_api.contract.rounds import InPlace
from oarlock_trainer.agent.ring.parts_server import NICE, PartsServer
from oarlock_trainer.agent.ring.peer import Peer, PeerError
from oarlock_trainer.agent.ring.pull import NoRoomError, StoppedError, part_of, pull
from oarlock_trainer.checkpoint.memory.files import RankFiles
from oarlock_trainer.checkpoint.memory.held import folder_of, held, is_wanted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from oarlock_trainer.runtime.assignment import Assignment

log = logging.getLogger(__name__)

_LOOK_SECONDS = 1.0
"""Between two looks whether the node before has something new, or whether the node after can be reached."""
_REACH_SECONDS = 20.0
"""For the node after: it stands by, and its name is known since the attempt began."""
_SHARE = 0.25
"""Of the time, and so of the link at most, what copying takes while ranks train: how fast a link is nobody says. The ranks
renew their state only once it is copied, so slow links cost rarer states, not steps."""
_BAD = (OSError, ValueError, KeyError, TypeError, IndexError)
"""What a folder that somebody else has touched can raise."""


def is_on(assignment: Assignment) -> bool:
    """Whether the nodes of this gang keep copies for each other. Without a key nobody may have them."""
    pod, job = assignment.pod, assignment.job
    in_place = job.recovery.in_place == InPlace.AUTO and is_wanted(job.recovery.memory.every_steps)
    return pod.replaces_pods and in_place and job.nodes > 1 and assignment.key is not None and job.custom is None


class Ring:
    """Of one agent. Only its main thread may call; a thread of low priority copies."""

    def __init__(self, assignment: Assignment, folder: Path, key: bytes) -> None:
        """Begins to copy back what this pod's ranks had, where others were there before it. `key`: the attempt's."""
        job, node, nodes = assignment.job, assignment.pod.rank, assignment.job.nodes
        self._job_uid, self._attempt = job.job_uid, job.attempt
        self._folder, self._ranks_per_node = folder, assignment.ranks_per_node
        self._node = node
        self._before, self._after = (
            Peer(other, assignment.peers[other], key) for other in ((node - 1) % nodes, (node + 1) % nodes)
        )
        self.server = PartsServer(folder, key, node=node, ranks_per_node=self._ranks_per_node)
        self._changing = threading.Lock()
        self._epoch = 0
        """Counts begin and stop: whoever copies for an earlier one stops."""
        self._wanted = threading.Event()
        self._files: dict[int, RankFiles] = {}
        """Of the ranks of the node before."""
        self._restoring: threading.Thread | None = None
        if assignment.pod.incarnation > 1:
            until = time.monotonic() + job.recovery.standby_seconds / 2
            self._restoring = threading.Thread(target=self._restore, args=(until,), name="ring-restore", daemon=True)
            self._restoring.start()
        threading.Thread(target=self._follow, name="ring", daemon=True).start()

    @property
    def ready(self) -> bool:
        """Whether nothing more is copied back."""
        return self._restoring is None or not self._restoring.is_alive()

    def begin(self, round_: int, step: int | None) -> None:
        """The ranks of a round are about to start, and go on from this step in memory; None: from elsewhere."""
        with self._changing:
            self._epoch += 1
            self.server.round = 0
            try:
                for rank in self._ranks(self._node):  # they do the same, but others may ask before
                    RankFiles(self._folder, rank).claim(keep=step)
                self._files = {rank: RankFiles(self._folder, rank) for rank in self._ranks(self._before.rank)}
                for files in self._files.values():
                    files.claim(keep=step)
            except _BAD as error:
                log.warning("no state of another node is kept: %s", error)
                return
            self.server.round = round_
        self._wanted.set()

    def stop(self) -> None:
        """No rank of the round is left: whatever counts now stays until the next one begins."""
        with self._changing:
            self._epoch += 1
        self._wanted.clear()

    def _ranks(self, node: int) -> range:
        return range(node * self._ranks_per_node, (node + 1) * self._ranks_per_node)

    # The thread that copies

    def _follow(self) -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
        told = ""
        while self._wanted.wait():
            epoch = self._epoch
            try:
                self._copy_newest(epoch)
            except StoppedError:
                pass
            except (PeerError, NoRoomError, *_BAD) as error:
                # One that is on its way is not there yet, and one that was renewed is there again soon.
                if (words := f"{type(error).__name__}") != told or isinstance(error, NoRoomError):
                    log.info("the state of pod %d is not copied just now: %s", self._before.rank, error)
                told = words
                if isinstance(error, NoRoomError):
                    self._wanted.clear()
            time.sleep(_LOOK_SECONDS)

    def _copy_newest(self, epoch: int) -> None:
        round_, steps = self._before.steps(self._before.rank)
        kept = self._kept(self._before.rank)
        newest = max(kept, default=None)
        if not steps or round_ != self.server.round or (newest is not None and steps[0] <= newest):
            return
        for rank, files in self._files.items():
            self._copy(self._before, files, steps[0], rank, keep=newest, share=_SHARE, epoch=epoch)

    def _copy(
        self,
        peer: Peer,
        files: RankFiles,
        step: int,
        rank: int,
        *,
        keep: int | None,
        share: float,
        epoch: int = 0,
        until: float = math.inf,
    ) -> None:
        @contextmanager
        def only_while() -> Iterator[None]:
            with self._changing:
                if epoch != self._epoch or time.monotonic() > until:
                    raise StoppedError
                yield

        raw = peer.manifest(step, rank)
        part = part_of(raw, job_uid=self._job_uid, attempt=self._attempt, step=step, rank=rank)
        pull(peer, part, files, self._folder, rank=rank, keep=keep, share=share, only_while=only_while)

    def _kept(self, node: int) -> list[int]:
        return [step for step, of in held(self._folder, ranks_per_node=self._ranks_per_node).items() if node in of]

    # A pod that was made anew

    def _restore(self, until: float) -> None:
        began = time.monotonic()
        try:
            files = {rank: RankFiles(self._folder, rank) for rank in self._ranks(self._node)}
            for one in files.values():
                one.claim(keep=None)
            for step in self._reached(min(until, began + _REACH_SECONDS))[:2]:
                newest = max(self._kept(self._node), default=None)
                for rank, one in files.items():
                    self._copy(self._after, one, step, rank, keep=newest, share=1.0, until=until)
        except (PeerError, NoRoomError, StoppedError, *_BAD) as error:
            log.warning("not all of this pod's state came back from pod %d: %s", self._after.rank, error)
        found, seconds = self._kept(self._node), round(time.monotonic() - began, 3)
        log.info("state in memory that came back", extra={"steps": found, "pod": self._after.rank, "seconds": seconds})

    def _reached(self, until: float) -> list[int]:
        """The steps that the node after has of this one."""
        while True:
            try:
                return self._after.steps(self._node)[1]
            except PeerError:
                if time.monotonic() > until:
                    raise
                time.sleep(_LOOK_SECONDS)


def ring_of(assignment: Assignment) -> Ring | None:
    """The ring's part of this agent, where there is one."""
    if not is_on(assignment) or assignment.key is None:
        return None
    job = assignment.job
    return Ring(assignment, folder_of(job.job_uid, job.attempt, shared_memory=assignment.shared_memory), assignment.key)
