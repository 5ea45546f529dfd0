"""One agent's part of the ring: what it copies, when, and what it forgets.

    ring.begin(round, step, members)  ranks are about to start: what is of another step counts no longer, and the node
                            before is copied from: the one whose pod has the place before this pod's
    ring.come_back()        ... of a pod that was made anew: the one before it has stopped
    ring.ready              what this place's ranks go on from is here, as far as it can be had: of a pod that was made
                            anew, and of one that has another place than before
    ring.went_on_from(step) ... which they did from elsewhere: then what is of that step counts no longer either
    ring.stop()             no rank is left: what counts here now stays as it is
    ring.forget()           the gang trains without this pod, which keeps nothing then

Ranks count by places, and so do files: what is of place 1 stays so, whichever pod has it next. Where a round has another size
than the one before, its ranks need parts of all places that made the step: each node copies those that it lacks, and keeps
them until the newer state of this round is copied.

Two rounds never mix: an agent says which round its memory is of, once all else is forgotten, and takes only what is of its
own. A manifest says the round in which its part was kept: the step that ranks go on from is the only one of an earlier round.
What was on its way when a round ends is left out.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections import defaultdict
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from oarlock_trainer.agent.ring.parts_server import NICE, PartsServer
from oarlock_trainer.agent.ring.peer import Peer, PeerError, Step
from oarlock_trainer.agent.ring.pull import BAD, Begun, NoRoomError, StoppedError, part_of, pull
from oarlock_trainer.agent.ring.restore import Restore
from oarlock_trainer.checkpoint.memory.files import RankFiles
from oarlock_trainer.checkpoint.memory.held import folder_of, held, ranks_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from oarlock_trainer.runtime.assignment import Assignment

log = logging.getLogger(__name__)

_LOOK_SECONDS = 1.0
"""Between two looks whether the node before has something new."""
_GLANCE_SECONDS = 0.2
"""Between two glances at this node's own memory: what is new here is so on all nodes, within moments."""
_PULL_SECONDS = 240.0
"""What a member's part gets that is on another one: the others' ranks wait meanwhile, and give up after START_TIMEOUT."""
_SHARE = 0.25
"""Of the time, and so of the link at most, what copying takes while ranks train: how fast a link is nobody says. The ranks
renew their state only once it is copied, so slow links cost rarer states, not steps."""


class Ring:
    """Of one agent. Only its main thread may call; a thread of low priority copies."""

    def __init__(self, assignment: Assignment, folder: Path, key: bytes) -> None:
        """Begins to copy back what this pod's ranks had, where others were there before it and train no more.

        `key`: the attempt's.
        """
        job, pod = assignment.job, assignment.pod
        self._job_uid, self._attempt = job.job_uid, job.attempt
        self._folder, self._ranks_per_node = folder, assignment.ranks_per_node
        self._pod, self._own = pod.rank, tuple(range(job.nodes))
        self._peers, self._key = assignment.peers, key
        self._seconds = job.recovery.standby_seconds / 2
        self.server = PartsServer(folder, key, node=pod.rank, ranks_per_node=self._ranks_per_node)
        self._changing = threading.Lock()
        self._epoch = 0
        """Counts begin and stop: whoever copies for an earlier one stops."""
        self._wanted = threading.Event()
        self._files: dict[int, RankFiles] = {}
        """Of the ranks of the node before."""
        self._begun: defaultdict[int, Begun] = defaultdict(Begun)
        """Rank -> what of its part a copy that failed has brought."""
        self._members: tuple[int, ...] = ()
        """Pods of the round, by place."""
        self._be_of((*self._own, pod.rank) if assignment.is_spare else self._own)
        self._from: int | None = None
        """The step in memory that this round's ranks went on from."""
        self._has_all_parts = False
        """Whether parts of other places than this one's and the one before may lie here: those of that step."""
        self._restoring: threading.Thread | None = None
        # Another pod than the next one can have this place's part where members are chosen.
        others = range(1, assignment.pods if job.spares or job.elastic else 2)
        self._has_copies = [self._peer((pod.rank + distance) % assignment.pods) for distance in others]
        self._may_come_back = pod.incarnation > 1 and not assignment.is_spare
        if not pod.surge:
            self.come_back()
        threading.Thread(target=self._follow, name="ring", daemon=True).start()

    def come_back(self) -> None:
        """Copy back what the pod before this one had, once, where there was one."""
        if self._may_come_back:
            self._may_come_back = False
            self._restore([(self._place, self._has_copies)], None)

    @property
    def ready(self) -> bool:
        """Whether nothing more is copied for this place's ranks."""
        return self._restoring is None or not self._restoring.is_alive()

    def begin(self, round_: int, step: int | None, members: tuple[int, ...] = (), *, made_by: int = 0) -> None:
        """The ranks of a round are about to start, and go on from this step in memory; None: from elsewhere.

        `members` are its pods by place, this one among them; none where they are 0..nodes-1. Where this place's part is on
        another one, it is copied from there; whoever can't have it is ready without, and its ranks say so to the others.
        `made_by`: places that made the step, where they were more or fewer (0: as many); then it is so for all their parts.
        """
        with self._changing:
            self._epoch += 1
            self.server.round = 0
            self._from, self._has_all_parts = step, step is not None and made_by > 0
            try:
                self._be_of(members or self._own)
                needed = range(made_by) if self._has_all_parts else (self._place,)
                ranks = {rank for place in {*needed, self._place} for rank in self._ranks(place)}
                self._forget_all_but({*ranks, *self._ranks(self._place_before)})
                parts = [RankFiles(self._folder, rank) for rank in ranks]
                for files in parts:  # this place's ranks do the same, but others may ask before
                    files.claim(keep=step)
                self._forget_copies(keep=step)
                for files in (*parts, *self._files.values()) if self._has_all_parts else ():
                    files.trim()  # room for what is copied
            except BAD as error:
                log.warning("no state of another node is kept: %s", error)
                return
            self.server.round = round_
        self._wanted.set()
        lacking = [place for place in needed if step is not None and step not in self._kept(place)]
        if lacking:
            others = [self._peer(rank) for rank in self._members[self._place + 1 :] + self._members[: self._place]]
            self._restore([(place, others) for place in lacking], step)

    def went_on_from(self, step: int | None) -> None:
        """The ranks have told which step they went on from; None: not yet.

        Where it is not the one in memory, as where a part of it was damaged, they will come to that step with other figures.
        They forget their own parts of it.
        """
        if step is None or self._from in (None, step):
            return
        with self._changing:
            self._epoch += 1
            self._from = None
            try:
                self._forget_others()
                self._forget_copies(keep=None)
            except BAD as error:
                self.server.round = 0
                log.warning("no state of another node is kept: %s", error)

    def _forget_copies(self, *, keep: int | None) -> None:
        """Of the node before, only step `keep` counts on here. Raises OSError."""
        self._files = {rank: RankFiles(self._folder, rank) for rank in self._ranks(self._place_before)}
        for files in self._files.values():
            files.claim(keep=keep)

    def stop(self) -> None:
        """No rank of the round is left: whatever counts now stays until the next one begins."""
        with self._changing:
            self._epoch += 1
            self._wanted.clear()

    def forget(self) -> None:
        """A round has begun without this pod: what lies here is of no round any more, and takes no memory."""
        with self._changing:
            self._epoch += 1
            self._wanted.clear()
            self.server.round = 0
            try:
                self._forget_all_but(())
            except BAD as error:
                log.warning("what is in memory stays there: %s", error)

    def _peer(self, rank: int) -> Peer:
        return Peer(rank, self._peers[rank], self._key)

    def _be_of(self, members: tuple[int, ...]) -> None:
        if members == self._members:
            return
        self._members = members
        self._place = members.index(self._pod)
        self._place_before = (self._place - 1) % len(members)
        self._before = self._peer(members[self._place_before])
        self._begun.clear()

    def _forget_others(self) -> None:
        """What is of neither this place nor the one before. Raises OSError."""
        self._forget_all_but({*self._ranks(self._place), *self._ranks(self._place_before)})
        self._has_all_parts = False

    def _forget_all_but(self, ranks: Iterable[int]) -> None:
        for rank in ranks_of(self._folder) - set(ranks):
            RankFiles(self._folder, rank).remove()

    def _ranks(self, place: int) -> range:
        return range(place * self._ranks_per_node, (place + 1) * self._ranks_per_node)

    # The thread that copies

    def _follow(self) -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
        told = ""
        while self._wanted.wait():
            with self._changing:
                epoch = self._epoch if self._wanted.is_set() else None
            if epoch is None:  # stopped since
                continue
            try:
                if len(self._members) > 1:
                    self._copy_newest(epoch)
                self._forget_what_is_older(epoch)
            except StoppedError:
                pass
            except (PeerError, NoRoomError, *BAD) as error:
                # One that is on its way is not there yet, and one that was renewed is there again soon.
                if (words := f"{type(error).__name__}") != told or isinstance(error, NoRoomError):
                    log.info("the state of pod %d is not copied just now: %s", self._before.rank, error)
                told = words
                if isinstance(error, NoRoomError):
                    self._give_up(epoch)
            self._rest()

    def _rest(self) -> None:
        """Until the next look: at once where this node's ranks have a newer step than is copied of the node before."""
        until = time.monotonic() + _LOOK_SECONDS
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(left, _GLANCE_SECONDS))
            if max(self._kept(self._place), default=-1) > max(self._kept(self._place_before), default=-1):
                return

    def _give_up(self, epoch: int) -> None:
        with self._changing:
            if epoch == self._epoch:  # the next round asks anew
                self._wanted.clear()

    def _copy_newest(self, epoch: int) -> None:
        before, files = self._before, self._files  # of another round, once the next one begins: then nothing is copied
        round_, steps = before.steps(self._place_before, round_=self.server.round)
        kept = self._kept(self._place_before)
        newest = max(kept, default=None)
        if not steps or round_ != self.server.round or (newest is not None and steps[0].step <= newest):
            return
        rounds = range(1 if steps[0].step == self._from else round_, round_ + 1)
        missing = {rank: one for rank, one in files.items() if not one.has(steps[0].step)}
        for rank, one in missing.items():
            self._copy(before, one, steps[0], rank, rounds=rounds, keep=newest, share=_SHARE, epoch=epoch)

    def _forget_what_is_older(self, epoch: int) -> None:
        """Other places' parts, once this node has what it keeps of a newer state. Raises StoppedError and OSError.

        Any node that has not come so far has all parts of the older one still.
        """
        if not self._has_all_parts or self._from is None:
            return
        with self._only_while(epoch, math.inf):
            own, before = (max(self._kept(place), default=-1) for place in (self._place, self._place_before))
            if min(own, before) > self._from:
                self._forget_others()

    def _copy(
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
        begun, only_while = self._begun[rank], partial(self._only_while, epoch, until)
        pull(peer, part, files, self._folder, rank=rank, keep=keep, share=share, begun=begun, only_while=only_while)

    @contextmanager
    def _only_while(self, epoch: int, until: float) -> Iterator[None]:
        with self._changing:
            if epoch != self._epoch or time.monotonic() > until:
                raise StoppedError
            yield

    def _kept(self, place: int) -> list[int]:
        return [step for step, _, of in held(self._folder, ranks_per_node=self._ranks_per_node) if place in of]

    # What this place's ranks are to go on from

    def _restore(self, wanted: list[tuple[int, list[Peer]]], step: int | None) -> None:
        """Copy these places' parts, each from its peers, in a thread: of this step, or (None) all that they have.

        It stops once anything else begins.
        """
        seconds = self._seconds if step is None else min(self._seconds, _PULL_SECONDS)
        epoch, until = self._epoch, time.monotonic() + seconds
        restores = [self._restore_of(place, peers, step, epoch=epoch, until=until) for place, peers in wanted]

        def run() -> None:
            for restore in restores:
                restore.run(until)

        self._restoring = threading.Thread(target=run, name="ring-restore", daemon=True)
        self._restoring.start()

    def _restore_of(self, place: int, peers: list[Peer], step: int | None, *, epoch: int, until: float) -> Restore:
        ranks = self._ranks(place)
        return Restore(
            peers=peers,
            step=step,
            place=place,
            files={rank: RankFiles(self._folder, rank) for rank in ranks},
            kept=partial(self._kept, place),
            come=lambda: [self._begun[rank].bytes for rank in ranks],
            copy=partial(self._copy, share=1.0, epoch=epoch, until=until),
            only_while=partial(self._only_while, epoch, until),
        )


def ring_of(assignment: Assignment) -> Ring | None:
    """The ring's part of this agent, where there is one."""
    if not assignment.keeps_copies or assignment.key is None:
        return None
    job = assignment.job
    return Ring(assignment, folder_of(job.job_uid, job.attempt, shared_memory=assignment.shared_memory), assignment.key)
