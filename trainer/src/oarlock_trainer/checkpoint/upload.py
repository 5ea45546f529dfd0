"""Copying checkpoints into a store while training goes on: each rank its share, rank 0 what makes the copy count.

    begin -> [each rank's thread sends its files] -> all have: rank 0 sends manifest and marker in a thread -> a copy

It goes by the same small exchange as the saves (writer.py): each rank tells whether it is `ready`, and when all are, all call
`advance`. One copy is made at a time; a checkpoint that comes meanwhile is not copied, the next one is. What fails is told
and never ends training: the copy that is begun next is a whole one again. The last checkpoint of a run is always copied: one
that its attempt or round did not come to copy, the next one does, with as many ranks as it has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from oarlock_trainer.checkpoint.format import MANIFEST, parse_manifest
from oarlock_trainer.engine.process_group import PREPROCESS_TIMEOUT
from oarlock_trainer.runtime.background import Background
from oarlock_trainer.runtime.errors import TrainingEnd, storage
from oarlock_trainer.runtime.heartbeat import alive

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from oarlock_trainer.checkpoint.copies import Copies
    from oarlock_trainer.checkpoint.fence import Fence
    from oarlock_trainer.engine.process_group import RankGroup


@dataclass(frozen=True, slots=True)
class Copied:
    """How the copy of a checkpoint ended: `wrong` says why there is none, empty = there is."""

    name: str
    wrong: str = ""


@dataclass(frozen=True, slots=True)
class _Sent:
    """What a rank has sent its share of: a checkpoint's name, and its manifest, which may be gone from the output by now."""

    name: str
    manifest: bytes


@dataclass(slots=True)
class _PendingCopy:
    name: str
    """Of the checkpoint, for people."""
    sending: Background[_Sent | None]
    sent: bool = False
    commit: Background[None] | None = None

    @property
    def current(self) -> Background[Any] | None:
        """What this rank waits for; None where it waits for others alone."""
        return self.commit if self.sent else self.sending


class Upload:
    """The copies of one attempt's checkpoints."""

    def __init__(self, copies: Copies, fence: Fence, ranks: RankGroup, *, keep: int) -> None:
        """`keep` copies of this job stay."""
        self._copies = copies
        self._fence = fence
        self._ranks = ranks
        self._keep = keep
        self._pending: _PendingCopy | None = None
        self._passed_over: Path | None = None

    def begin(self, path: Path) -> None:
        """Copy a checkpoint, unless one is being copied. Every rank calls it for the same ones."""
        self._passed_over = path if self._pending else None
        if self._pending is None:
            self._pending = _PendingCopy(path.name, Background(lambda: self._send(path)))

    def take_up(self, newest: Callable[[], Path | None]) -> None:
        """Copy the newest checkpoint, whose copy a round before may not have come to; before any other. Every rank calls it.

        Each looks for it by `newest` beside training. Where they find different ones, which is while one is made, none is
        copied: that one is next.
        """

        def send() -> _Sent | None:
            with storage("looking for the newest checkpoint"):
                path = newest()
            return self._send(path) if path else None

        self._pending = _PendingCopy("the newest", Background(send))

    def ready(self) -> bool:
        """Whether this rank has done what the others wait for. With all ranks ready, all must call `advance`."""
        pending = self._pending
        return pending is not None and (pending.current is None or pending.current.ended)

    def advance(self) -> Copied | None:
        """Take the next step of the copy together. Collective. None: it is still on its way."""
        pending = self._pending
        if pending is None:
            raise AssertionError("no copy is on its way")
        if pending.sent:
            copied = self._ranks.decide(lambda: Copied(pending.name, _wrong(pending.commit)))
            self._pending = None
            return copied
        wrong = _wrong(pending.sending)
        sent = None if wrong else pending.sending.result()
        told = self._ranks.gather((sent.name if sent else "", wrong))
        names, wrongs = ({each[part] for each in told} for part in (0, 1))
        if any(wrongs) or len(names) > 1 or not sent:
            self._pending = None
            return Copied(pending.name, max(wrongs)) if any(wrongs) else None
        pending.name, pending.sent = sent.name, True
        if self._ranks.rank_info.is_leader:
            pending.commit = Background(lambda: self._commit(sent))
        return None

    def finish(self, go_on: Callable[[], None]) -> Copied | None:
        """Wait until the last checkpoint is copied, or can't be. Collective. `go_on` may raise to stop."""
        copied = None
        while self._pending is not None:
            self._ranks.bound_waiting(PREPROCESS_TIMEOUT)
            current = self._pending.current
            self._ranks.shares(lambda: _wait(current, go_on), go_on)  # noqa: B023 - it is called here
            copied = self.advance()
            if self._pending is None and self._passed_over:
                self.begin(self._passed_over)
        return copied

    def _send(self, path: Path) -> _Sent:
        """Send this rank's share."""
        rank_info = self._ranks.rank_info
        with storage(f"copying {path}"):
            manifest = (path / MANIFEST).read_bytes()
        made = parse_manifest(manifest.decode())
        if not self._copies.holds(path.name, job_uid=made.job_uid):
            self._copies.retract(path.name)
            mine = made.files[rank_info.rank :: rank_info.world_size]
            self._copies.send(path, [file.name for file in mine])
        return _Sent(path.name, manifest)

    def _commit(self, sent: _Sent) -> None:
        self._fence.check()
        if not self._copies.holds(sent.name, job_uid=parse_manifest(sent.manifest.decode()).job_uid):
            self._copies.commit(sent.name, sent.manifest)
        self._copies.rotate(self._keep, job_uid=self._fence.owner.job_uid)


def _wrong(work: Background[Any] | None) -> str:
    """Why ended work failed; empty where it did not."""
    try:
        if work is not None:
            work.result()
    except (TrainingEnd, OSError) as error:
        return str(error)
    return ""


def _wait(work: Background[Any] | None, go_on: Callable[[], None]) -> None:
    if work is not None:
        work.join(alive(go_on))
