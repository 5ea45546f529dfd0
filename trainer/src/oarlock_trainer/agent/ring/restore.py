"""A place's parts that ranks are to go on from and are not here: copied from other members, as far as they have them.

Of a pod that was made anew, all that others have of its place, while it imports. Of a pod that has another place than before,
as a spare that takes a lost one's, the step that its round goes on from; so of each place, where a round has another size.
What cannot be had costs no round: the ranks see that a part lacks, and all go on from the newest checkpoint.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from oarlock_trainer.agent.ring.peer import PeerError
from oarlock_trainer.agent.ring.pull import BAD, NoRoomError, StoppedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from oarlock_trainer.agent.ring.peer import Peer
    from oarlock_trainer.checkpoint.memory.files import RankFiles

log = logging.getLogger(__name__)

_LOOK_SECONDS = 1.0
"""Between two looks whether another one can be reached."""
_REACH_SECONDS = 20.0
"""Without anything from the others: they stand by or begin the round, and their names are known since the attempt began."""


@dataclass(frozen=True, kw_only=True)
class Restore:
    """Of one place's ranks, whose `files` these are. `peers` are asked in their order; `step` None: for all that they have.

    `kept`: steps that are here, newest first. `come`: bytes of what is on its way. `copy` lets one rank's part count, or
    raises PeerError and others. Files change within `only_while` alone.
    """

    peers: Sequence[Peer]
    step: int | None
    place: int
    files: Mapping[int, RankFiles]
    kept: Callable[[], list[int]]
    come: Callable[[], list[int]]
    copy: Callable[..., None]
    only_while: Callable[[], AbstractContextManager[object]]

    def run(self, until: float) -> None:
        """Copy, and say in the log what came. Never raises what can be expected."""
        began, pods = time.monotonic(), ", ".join(str(peer.rank) for peer in self.peers)
        try:
            with self.only_while():
                for one in self.files.values():
                    one.claim(keep=self.step)
            self._copy_all(until)
        except (PeerError, NoRoomError, StoppedError, *BAD) as error:
            why = "the time is up" if isinstance(error, StoppedError) else error
            log.warning("not all of place %d's state came from pod %s: %s", self.place, pods, why)
        seconds = round(time.monotonic() - began, 3)
        facts = {"place": self.place, "steps": self.kept(), "pod": pods, "seconds": seconds}
        log.info("state in memory that came back", extra=facts)

    def _copy_all(self, until: float) -> None:
        """Copy all that is wanted, and ask again while anything comes. Raises PeerError and others."""
        here, give_up_at = None, time.monotonic() + _REACH_SECONDS
        while True:
            try:
                self._ask_all()
            except PeerError:
                now = time.monotonic()
                come = self.kept(), self.come()
                if come != here:
                    here, give_up_at = come, now + _REACH_SECONDS
                if now > min(give_up_at, until):
                    raise
                time.sleep(_LOOK_SECONDS)
            else:
                return

    def _ask_all(self) -> None:
        """Each in turn, until one had something. Raises PeerError where the next time may be better."""
        wrong = None if self.step is None else PeerError(f"no member has step {self.step} of place {self.place}")
        for peer in self.peers:
            with self.only_while():
                pass
            try:
                if self._copy_from(peer):
                    return
            except PeerError as error:
                wrong = error
        if wrong:
            raise wrong

    def _copy_from(self, peer: Peer) -> bool:
        """Whether it had anything that is wanted. Raises PeerError and others."""
        round_, steps = peer.steps(self.place)
        found = steps[:2] if self.step is None else [one for one in steps if one.step == self.step]
        rounds = range(1, round_ + 1)  # none, where its memory is of no round
        for step in found if rounds else ():
            keep = max(self.kept(), default=None)
            missing = {rank: one for rank, one in self.files.items() if not one.has(step.step)}
            for rank, one in missing.items():
                self.copy(peer, one, step, rank, rounds=rounds, keep=keep)
        return bool(found and rounds)
