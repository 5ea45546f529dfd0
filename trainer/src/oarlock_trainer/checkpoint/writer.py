"""Saving while training goes on: the ranks copy, their writer processes write, rank 0 commits.

    begin -> [copy] -> [each rank's process writes its file] -> all have: rank 0 commits in a thread -> a checkpoint

Between `begin` and the commit lie as many steps as it takes. What must be agreed on rides on the small exchange that every
step makes anyway: each rank tells whether it is `ready`, and when all are, all call `advance`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from oarlock_trainer.checkpoint.commit import Commit
from oarlock_trainer.checkpoint.format import CheckpointManifest, FileFacts, shard_name
from oarlock_trainer.checkpoint.layout import ELEMENT, Run, runs_of
from oarlock_trainer.checkpoint.shard_writer import ShardWriter
from oarlock_trainer.checkpoint.snapshot import Snapshot
from oarlock_trainer.runtime.background import Background
from oarlock_trainer.runtime.errors import FULL, StorageError, TrainingEnd

if TYPE_CHECKING:
    from pathlib import Path

    from oarlock_trainer.checkpoint.fence import Fence
    from oarlock_trainer.checkpoint.format import DataPosition
    from oarlock_trainer.engine.engine import Engine
    from oarlock_trainer.engine.process_group import RankGroup
    from oarlock_trainer.models.adapters.targets import Adapters


@dataclass(frozen=True, slots=True)
class SavedCheckpoint:
    """A committed checkpoint.

    `saved_at` RFC 3339; `stall_seconds` how long training stood still for it, `seconds` from its step to its commit.
    """

    step: int
    path: Path
    saved_at: str
    stall_seconds: float
    seconds: float


@dataclass(frozen=True, slots=True)
class NoRoom:
    """A checkpoint for which the storage had no room: it was given up, and training goes on.

    `freed`: an older one was deleted, so that the next may have room.
    """

    step: int
    freed: bool


@dataclass(slots=True)
class _PendingSave:
    """A save that is no checkpoint yet. `commit` is there on rank 0 once all files are."""

    step: int
    position: DataPosition
    updates: int
    runs: tuple[Run, ...]
    began: float
    stall: float = 0.0
    copied: bool = False
    written: bool = False
    commit: Background[Path] | None = None
    saved_at: str = ""


class Writer:
    """Saves checkpoints of one attempt, one at a time."""

    def __init__(
        self,
        output: Path,
        fence: Fence,
        ranks: RankGroup,
        engine: Engine,
        *,
        keep: int,
        adapters: Adapters | None = None,
    ) -> None:
        """`keep` valid checkpoints of this job stay; `adapters` of a LoRA job. Makes memory, and starts the process."""
        self._fence = fence
        self._ranks = ranks
        self._engine = engine
        self._adapters = adapters
        self._commit = Commit(output, fence, keep=keep)
        self._snapshot = Snapshot(sum(run.length for run in runs_of(engine.parts())) * ELEMENT, ranks.device)
        self._shard = ShardWriter(self._snapshot.descriptor)
        self._pending: _PendingSave | None = None

    @property
    def pending(self) -> bool:
        """Whether a save is on its way."""
        return self._pending is not None

    def begin(self, step: int, position: DataPosition) -> None:
        """Save the state after `step` steps. None may be on its way."""
        began = time.monotonic()
        parts = self._engine.parts()
        self._snapshot.begin(parts)
        if self._ranks.rank_info.is_leader:
            self._commit.look_for_room(step, self._snapshot.size * self._ranks.rank_info.world_size)
        self._pending = _PendingSave(step, position, self._engine.updates, runs_of(parts), began)
        self._pending.stall = time.monotonic() - began

    def before_update(self) -> None:
        """Wait until the state may change: it is copied. To be called before each update."""
        pending = self._pending
        if pending is None or pending.copied:
            return
        began = time.monotonic()
        self._snapshot.wait()
        pending.stall += time.monotonic() - began
        self._hand_over(pending)

    def ready(self) -> bool:
        """Whether this rank has done what the others wait for. With all ranks ready, all must call `advance`."""
        pending = self._pending
        if pending is None or not pending.copied:
            return False
        if not pending.written:
            return self._shard.ended()
        return pending.commit is None or pending.commit.ended

    def advance(self) -> SavedCheckpoint | NoRoom | None:
        """Take the next step of the save together. Collective. None: it is still on its way.

        Raises FencedError where the output was taken over meanwhile: then nothing was committed. Raises StorageError.
        """
        pending = self._given()
        if not pending.written:
            return self._all_written(pending)
        saved = self._ranks.decide(lambda: self._committed(pending))
        self._pending = None
        return saved

    def finish(self) -> SavedCheckpoint | NoRoom:
        """Wait until the save that is on its way is a checkpoint. Collective. Raises what `advance` raises."""
        pending = self._given()
        began = time.monotonic()
        self.before_update()
        outcome = None
        while outcome is None:
            if not pending.written:
                self._shard.ended(None)
            elif pending.commit is not None:
                pending.commit.wait(None)
            outcome = self.advance()
        if isinstance(outcome, SavedCheckpoint):
            outcome = replace(outcome, stall_seconds=outcome.stall_seconds + time.monotonic() - began)
        return outcome

    def close(self) -> None:
        """End the writer process."""
        self._shard.close()

    def _hand_over(self, pending: _PendingSave) -> None:
        pending.copied = True
        path = self._commit.temporary(pending.step) / shard_name(self._ranks.rank_info.rank)
        self._shard.begin(path, self._snapshot.size)

    def _all_written(self, pending: _PendingSave) -> NoRoom | None:
        """Every rank's process has ended its file: rank 0 goes on, or all raise what one of them met."""
        told = self._ranks.gather(self._own_file(pending))
        if any(isinstance(one, OSError) and one.errno in FULL for one in told):
            freed = self._ranks.decide(lambda: self._commit.make_room(pending.step))
            self._pending = None
            return NoRoom(pending.step, freed)
        for one in told:
            if isinstance(one, TrainingEnd):
                raise one
            if isinstance(one, OSError):
                with self._commit.writing(pending.step):
                    raise one
        pending.written = True
        if self._ranks.rank_info.is_leader:
            manifest = self._manifest(pending, told)
            pending.commit = Background(lambda: self._commit.commit(manifest))
        return None

    def _own_file(self, pending: _PendingSave) -> tuple[FileFacts, tuple[Run, ...]] | OSError | TrainingEnd:
        try:
            return self._shard.result(), pending.runs
        except (OSError, TrainingEnd) as error:
            return error

    def _manifest(self, pending: _PendingSave, told: list[tuple[FileFacts, tuple[Run, ...]]]) -> CheckpointManifest:
        pending.saved_at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return CheckpointManifest(
            step=pending.step,
            updates=pending.updates,
            attempt=self._fence.owner.attempt,
            job_uid=self._fence.owner.job_uid,
            world_size=self._ranks.rank_info.world_size,
            saved_at=pending.saved_at,
            data=pending.position,
            files=tuple(file for file, _ in told),
            runs={file.name: runs for file, runs in told},
            adapters=self._adapters,
        )

    def _committed(self, pending: _PendingSave) -> SavedCheckpoint | NoRoom:
        if pending.commit is None:
            raise AssertionError("rank 0 alone commits")
        try:
            path = pending.commit.result()
        except StorageError as error:
            if isinstance(error.__cause__, OSError) and error.__cause__.errno in FULL:
                return NoRoom(pending.step, self._commit.make_room(pending.step))
            raise
        return SavedCheckpoint(pending.step, path, pending.saved_at, pending.stall, time.monotonic() - pending.began)

    def _given(self) -> _PendingSave:
        if self._pending is None:
            raise AssertionError("no save is on its way")
        return self._pending
