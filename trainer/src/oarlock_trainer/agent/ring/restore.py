"""Places' parts that ranks are to go on from and are not here: copied from other members, as far as they have them.

Of a pod that was made anew, all that others have of its place, while it imports. Of a pod that has another place than before,
as a spare that takes a lost one's, the step that its round goes on from; so of each place, where a round has another size.
What cannot be had costs no round: the ranks see that a part lacks, and all go on from the newest checkpoint. So the first
place that cannot be had is the last that is asked for.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from oarlock_trainer.agent.ring.peer import PeerError
from oarlock_trainer.agent.ring.pull import BAD, NoRoomError, StoppedError, check_room

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from oarlock_trainer.agent.ring.copier import Copier
    from oarlock_trainer.agent.ring.peer import Peer
    from oarlock_trainer.checkpoint.memory.files import RankFiles

log = logging.getLogger(__name__)

_LOOK_SECONDS = 1.0
"""Between two looks whether another one can be reached."""
_REACH_SECONDS = 20.0
"""Without anything from the others: they stand by or begin the round, and their names are known since the attempt began."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """One place's parts: the `files` of its ranks, and who is asked for them, in this order."""

    place: int
    files: Mapping[int, RankFiles]
    peers: Sequence[Peer]


class Restorer:
    """Copies in a thread of its own what is wanted, one at a time. Only the agent's main thread may call."""

    def __init__(self, copier: Copier) -> None:
        self._copier = copier
        self._thread: threading.Thread | None = None

    @property
    def ready(self) -> bool:
        """Whether nothing is on its way any more."""
        return self._thread is None or not self._thread.is_alive()

    def start(
        self,
        wanted: Sequence[Wanted],
        step: int | None,
        *,
        seconds: float,
        failed: Callable[[], object],
        bytes_: int = 0,
    ) -> None:
        """Copy these places' parts of this step, or (None) all that others have, within so long. Until the epoch is over.

        `failed` is called, with the lock held, where not all could be had. `bytes_`: of all, where that is known before.
        """
        until = time.monotonic() + seconds
        run = partial(self._run, wanted, step, until=until, epoch=self._copier.epoch, failed=failed, bytes_=bytes_)
        self._thread = threading.Thread(target=run, name="ring-restore", daemon=True)
        self._thread.start()

    def _run(
        self,
        wanted: Sequence[Wanted],
        step: int | None,
        *,
        until: float,
        epoch: int,
        failed: Callable[[], object],
        bytes_: int,
    ) -> None:
        """Never raises what can be expected."""
        began, why = time.monotonic(), ""
        try:
            check_room(self._copier.folder, bytes_, there=0)
            for one in wanted:
                self._restore(one, step, until=until, epoch=epoch).run(until)
        except StoppedError:
            why = "the time is up" if time.monotonic() > until else "the round is over"
        except (PeerError, NoRoomError, *BAD) as error:
            why = str(error)
        pods = ", ".join(sorted({str(peer.rank) for one in wanted for peer in one.peers}, key=int))
        if why:
            log.warning("not all of this pod's state came back from pod %s: %s", pods, why)
            try:
                with self._copier.only_while(epoch, math.inf):  # also where the time was up
                    failed()
            except (StoppedError, *BAD):
                pass  # the next round forgets it
        steps = sorted({found for one in wanted for found in self._copier.kept(one.place)}, reverse=True)
        facts = {"places": [one.place for one in wanted], "steps": steps, "pod": pods}
        log.info("state in memory that came back", extra={**facts, "seconds": round(time.monotonic() - began, 3)})

    def _restore(self, wanted: Wanted, step: int | None, *, until: float, epoch: int) -> _Restore:
        return _Restore(
            wanted=wanted,
            step=step,
            kept=partial(self._copier.kept, wanted.place),
            come=lambda: [self._copier.begun[rank].bytes for rank in wanted.files],
            copy=partial(self._copier.copy, share=1.0, epoch=epoch, until=until),
            only_while=partial(self._copier.only_while, epoch, until),
        )


@dataclass(frozen=True, kw_only=True)
class _Restore:
    """Of one place. `step` None: for all that its peers have.

    `kept`: steps that are here, newest first. `come`: bytes of what is on its way. `copy` lets one rank's part count, or
    raises PeerError and others. Files change within `only_while` alone.
    """

    wanted: Wanted
    step: int | None
    kept: Callable[[], list[int]]
    come: Callable[[], list[int]]
    copy: Callable[..., None]
    only_while: Callable[[], AbstractContextManager[object]]

    def run(self, until: float) -> None:
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
        wrong = None if self.step is None else PeerError(f"no member has step {self.step} of place {self.wanted.place}")
        for peer in self.wanted.peers:
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
        round_, steps = peer.steps(self.wanted.place)
        found = steps[:2] if self.step is None else [one for one in steps if one.step == self.step]
        rounds = range(1, round_ + 1)  # none, where its memory is of no round
        for step in found if rounds else ():
            keep = max(self.kept(), default=None)
            missing = {rank: one for rank, one in self.wanted.files.items() if not one.has(step.step)}
            for rank, one in missing.items():
                self.copy(peer, one, step, rank, rounds=rounds, keep=keep)
        return bool(found and rounds)
