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
from typing import TYPE_CHECKING

from oarlock_trainer.agent.ring.copier import Copier
from oarlock_trainer.agent.ring.parts_server import NICE, PartsServer
from oarlock_trainer.agent.ring.peer import Peer, PeerError
from oarlock_trainer.agent.ring.pull import BAD, NoRoomError, StoppedError
from oarlock_trainer.agent.ring.restore import Restorer, Wanted
from oarlock_trainer.checkpoint.memory.files import RankFiles, remove_all, remove_all_but
from oarlock_trainer.checkpoint.memory.held import by_rank, folder_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from oarlock_trainer.runtime.assignment import Assignment

log = logging.getLogger(__name__)

_LOOK_SECONDS = 1.0
"""Between two looks whether the node before has something new."""
_GLANCE_SECONDS = 0.2
"""Between two glances at this node's own memory: what is new here is so on all nodes, within moments."""
_PULL_SECONDS = 240.0
"""What parts get that are on other members: the others' ranks wait meanwhile, and give up after START_TIMEOUT."""
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
        self._folder = folder
        self._pod, self._own = pod.rank, tuple(range(job.nodes))
        self._peers, self._key = assignment.peers, key
        self._seconds = job.recovery.standby_seconds / 2
        self.server = PartsServer(folder, key, node=pod.rank, ranks_per_node=assignment.ranks_per_node)
        self._copier = Copier(assignment, folder)
        self._restorer = Restorer(self._copier)
        self._wanted = threading.Event()
        self._full_epoch = -1
        """In which there was no room for a copy."""
        self._files: dict[int, RankFiles] = {}
        """Of this place's ranks, those of the node before, and those whose parts this round begins with."""
        self._members: tuple[int, ...] = ()
        """Pods of the round, by place."""
        self._be_of((*self._own, pod.rank) if assignment.is_spare else self._own)
        self._from: int | None = None
        """The step in memory that this round's ranks went on from."""
        self._has_all_parts = False
        """Whether parts of other places than this one's and the one before may lie here: those of that step."""
        # Another pod than the next one can have this place's part where members are chosen.
        others = range(1, assignment.pods if job.spares or job.elastic else 2)
        self._has_copies = [self._peer((pod.rank + distance) % assignment.pods) for distance in others]
        self._may_come_back = pod.incarnation > 1 and not assignment.is_spare
        if not pod.surge:
            self.come_back()
        threading.Thread(target=self._follow, name="ring", daemon=True).start()

    def come_back(self) -> None:
        """Copy back what the pod before this one had, once, where there was one."""
        if not self._may_come_back:
            return
        self._may_come_back = False
        files = {rank: RankFiles(self._folder, rank) for rank in self._copier.ranks(self._place)}
        wanted = Wanted(place=self._place, files=files, peers=self._has_copies)
        try:
            for one in files.values():
                one.claim(keep=None)
        except BAD as error:
            log.warning("what the pod before had does not come back: %s", error)
            return
        self._restorer.start([wanted], None, seconds=self._seconds, failed=lambda: None)

    @property
    def ready(self) -> bool:
        """Whether nothing more is copied for this place's ranks."""
        return self._restorer.ready

    def begin(self, round_: int, step: int | None, members: tuple[int, ...] = (), *, made_by: int = 0) -> None:
        """The ranks of a round are about to start, and go on from this step in memory; None: from elsewhere.

        `members` are its pods by place, this one among them; none where they are 0..nodes-1. Where this place's part is on
        another one, it is copied from there; whoever can't have it is ready without, and its ranks say so to the others.
        `made_by`: places that made the step, where they were more or fewer (0: as many); then it is so for all their parts.
        """
        with self._copier.changing:
            self._copier.epoch += 1
            self.server.round = 0
            before, self._from = self._members, step
            self._has_all_parts = step is not None and made_by > 0
            try:
                self._be_of(members or self._own)
                needed = self._needed(step, made_by)
                self._claim(step, needed)
            except BAD as error:
                log.warning("no state of another node is kept: %s", error)
                return
            self.server.round = round_
        if step is not None:
            here = self._copier.places(step)
            if lacking := [place for place in needed if place not in here]:
                self._restore(lacking, step, before)
        self._wanted.set()

    def went_on_from(self, step: int | None) -> None:
        """The ranks have told which step they went on from; None: not yet.

        Where it is not the one in memory, as where a part of it was damaged, they will come to that step with other figures.
        They forget their own parts of it.
        """
        if step is None or self._from in (None, step):
            return
        with self._copier.changing:
            self._copier.epoch += 1
            self._from = None
            try:
                self._forget_others()
                for rank in self._copier.ranks(self._place_before) if len(self._members) > 1 else ():
                    self._files[rank].claim(keep=None)
            except BAD as error:
                self.server.round = 0
                log.warning("no state of another node is kept: %s", error)

    def stop(self) -> None:
        """No rank of the round is left: whatever counts now stays until the next one begins."""
        with self._copier.changing:
            self._copier.epoch += 1
            self._wanted.clear()

    def forget(self) -> None:
        """A round has begun without this pod: what lies here is of no round any more, and takes no memory."""
        with self._copier.changing:
            self._copier.epoch += 1
            self._wanted.clear()
            self.server.round = 0
            try:
                remove_all(self._folder)
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
        self._copier.begun.clear()

    def _needed(self, step: int | None, made_by: int) -> list[int]:
        """Places whose parts this node's ranks begin with; the one after its own first: not all ask the same at once."""
        if step is None:
            return []
        return [(self._place + 1 + one) % made_by for one in range(made_by)] or [self._place]

    def _claim(self, step: int | None, needed: Iterable[int]) -> None:
        """Of what lies here, only step `step` counts on, of these places, this one and the one before. Raises OSError."""
        places = {*needed, self._place, self._place_before}
        self._files = {rank: RankFiles(self._folder, rank) for one in places for rank in self._copier.ranks(one)}
        remove_all_but(self._folder, self._files)
        there = by_rank(self._folder)
        for rank, files in self._files.items():  # this place's ranks do the same, but others may ask before
            files.claim(keep=step, names=there.get(rank, ()))
        if self._has_all_parts:  # room for what is copied
            self._copier.begun.clear()
            for files in self._files.values():
                files.trim()

    def _restore(self, places: list[int], step: int, before: tuple[int, ...]) -> None:
        """`before`: the members of the round before: who had a place, and who had its copy, are asked first."""
        others = self._members[self._place + 1 :] + self._members[: self._place]
        wanted = []
        for place in places:
            likely = [before[one % len(before)] for one in (place, place + 1)] if place < len(before) else []
            asked = sorted(others, key=lambda rank: rank not in likely)
            files = {rank: self._files[rank] for rank in self._copier.ranks(place)}
            wanted.append(Wanted(place=place, files=files, peers=[self._peer(rank) for rank in asked]))
        size = 0
        if self._has_all_parts:  # all are about as large as those that are here
            size = max(files.bytes_of(step) for files in self._files.values())
            size *= sum(not files.has(step) for one in wanted for files in one.files.values())
        seconds = min(self._seconds, _PULL_SECONDS)
        self._restorer.start(wanted, step, seconds=seconds, failed=self._forget_others, bytes_=size)

    def _forget_others(self) -> None:
        """What is of neither this place nor the one before. Raises OSError."""
        remove_all_but(self._folder, {*self._copier.ranks(self._place), *self._copier.ranks(self._place_before)})
        self._has_all_parts = False

    # The thread that copies

    def _follow(self) -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
        told = ""
        while self._wanted.wait():
            with self._copier.changing:
                epoch = self._copier.epoch if self._wanted.is_set() else None
            if epoch is None:  # stopped since
                continue
            try:
                if len(self._members) > 1 and self.ready and epoch != self._full_epoch:
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
                    self._full_epoch = epoch  # the next round asks anew
            self._rest()

    def _rest(self) -> None:
        """Until the next look: at once where this node's ranks have a newer step than is copied of the node before."""
        until = time.monotonic() + _LOOK_SECONDS
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(left, _GLANCE_SECONDS))
            if self._newest(self._place) > self._newest(self._place_before):
                return

    def _newest(self, place: int) -> int:
        return max(self._copier.kept(place), default=-1)

    def _copy_newest(self, epoch: int) -> None:
        before, files = self._before, self._files  # of another round, once the next one begins: then nothing is copied
        ranks = self._copier.ranks(self._place_before)
        round_, steps = before.steps(self._place_before, round_=self.server.round)
        newest = self._newest(self._place_before)
        if not steps or round_ != self.server.round or steps[0].step <= newest:
            return
        rounds = range(1 if steps[0].step == self._from else round_, round_ + 1)
        keep = newest if newest >= 0 else None
        for rank in [rank for rank in ranks if not files[rank].has(steps[0].step)]:
            self._copier.copy(before, files[rank], steps[0], rank, rounds=rounds, keep=keep, share=_SHARE, epoch=epoch)

    def _forget_what_is_older(self, epoch: int) -> None:
        """Other places' parts, once this node has what it keeps of a newer state. Raises StoppedError and OSError.

        Any node that has not come so far has all parts of the older one still.
        """
        if not self._has_all_parts or self._from is None:
            return
        with self._copier.only_while(epoch, math.inf):
            if min(self._newest(self._place), self._newest(self._place_before)) > self._from:
                self._forget_others()


def ring_of(assignment: Assignment) -> Ring | None:
    """The ring's part of this agent, where there is one."""
    if not assignment.keeps_copies or assignment.key is None:
        return None
    job = assignment.job
    return Ring(assignment, folder_of(job.job_uid, job.attempt, shared_memory=assignment.shared_memory), assignment.key)
