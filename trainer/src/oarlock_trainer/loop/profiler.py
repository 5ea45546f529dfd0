"""Records some steps on every rank: a Chrome trace, and on GPUs a snapshot of their memory.

    <output>/profile/attempt-<a>/rank-<r>.trace.json.gz      for `oarlock-trainer profile`, or chrome://tracing, Perfetto
    <output>/profile/attempt-<a>/rank-<r>.memory.pickle      for pytorch.org/memory_viz
    <output>/profile/attempt-<a>/rank-<r>.clock.json         how far this rank's clock is ahead of rank 0's

Clocks of nodes differ. Before the first recorded step all ranks leave the same small exchange some times and note when:
the median of the differences is a rank's offset, right within the time in which an exchange reaches all (about 0.1 ms).
Nothing is recorded, and nothing costs, before and after the steps that were asked for. A later round of the attempt records
only where an earlier one was cut off.
"""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Any

import torch

from oarlock_api.contract.layout import PROFILE, PROFILE_CLOCK, PROFILE_TRACE
from oarlock_trainer.runtime import channel
from oarlock_trainer.runtime.atomic_write import write_json
from oarlock_trainer.runtime.errors import storage
from oarlock_trainer.runtime.uncompiled import bring_back

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from oarlock_api.profiling import Profile
    from oarlock_trainer.engine.process_group import RankGroup
    from oarlock_trainer.loop.session import Session

MEMORY = "memory.pickle"
_ROUNDS = 9
_ALLOCATIONS = 200_000
"""Events of the allocator that a snapshot holds, with the lines of Python that caused them."""


def folder(output: Path, attempt: int) -> Path:
    """Where an attempt's recordings lie."""
    return output / PROFILE / f"attempt-{attempt}"


class Profiler:
    """What the loop tells of its steps. Without settings it does nothing."""

    def __init__(self, settings: Profile | None, session: Session) -> None:
        """Records `settings.steps` steps of this attempt, as far as it has so many."""
        self._session = session
        self._from = session.first + settings.after if settings else -1
        self._until = self._from + settings.steps if settings else -1
        self._running: Any = None

    def begin(self, step: int) -> None:
        """`step` steps are done, and the next begins. Collective where it is the first that is recorded."""
        if step != self._from:
            return
        place, ranks = folder(self._session.job.output, self._session.job.file.attempt), self._session.ranks
        self._files = {
            end: place / f"rank-{ranks.rank_info.rank}.{end}" for end in (PROFILE_TRACE, MEMORY, PROFILE_CLOCK)
        }
        with storage(f"making {place}"):
            place.mkdir(parents=True, exist_ok=True)
            recorded = self._files[PROFILE_TRACE].exists()
        if all(ranks.gather(recorded)):
            return
        write_json(self._files[PROFILE_CLOCK], {"rank": ranks.rank_info.rank, "aheadNanoseconds": ahead(ranks)})
        bring_back()  # torch's profiler asks its compiler for its settings
        activities = [torch.profiler.ProfilerActivity.CPU]
        if ranks.device.type == "cuda":
            activities.append(torch.profiler.ProfilerActivity.CUDA)
            torch.cuda.memory._record_memory_history(max_entries=_ALLOCATIONS)  # noqa: SLF001 - torch documents it so
        self._running = torch.profiler.profile(activities=activities, record_shapes=True)
        self._running.start()

    def end(self, done: int, *, last: bool) -> None:
        """`done` steps are done. Waits for the GPU and writes, after the last step that is recorded. Collective then."""
        if self._running is None or (done != self._until and not last):
            return
        running, self._running = self._running, None
        if self._session.ranks.device.type == "cuda":
            torch.cuda.synchronize()
        running.stop()
        # Large traces take minutes to write, in which the interpreter cannot beat, and other ranks other minutes. No agent is
        # to take that for a hang; the barrier's own timeout bounds it.
        with channel.waiting():
            self._write(running)
            self._session.ranks.barrier()
        if self._session.ranks.rank_info.is_leader:
            channel.send(channel.Event.NOTE, message=f"steps {self._from + 1} to {done} are recorded below {PROFILE}")

    def _write(self, recorded: Any) -> None:
        path = self._files[PROFILE_TRACE]
        with storage(f"writing {path}"):
            if self._session.ranks.device.type == "cuda":
                torch.cuda.memory._dump_snapshot(str(self._files[MEMORY]))  # type: ignore[no-untyped-call]  # noqa: SLF001
                torch.cuda.memory._record_memory_history(enabled=None)  # noqa: SLF001
            whole_later = path.with_name(f".{path.name}")
            recorded.export_chrome_trace(str(whole_later))
            whole_later.replace(path)


def ahead(ranks: RankGroup, rounds: int = _ROUNDS) -> int:
    """Nanoseconds by which this rank's clock is ahead of rank 0's. Collective."""
    left = []
    for _ in range(rounds):
        ranks.barrier()
        left.append(time.time_ns())
    return offset(left, ranks.gather(left)[0])


def offset(own: Sequence[int], first: Sequence[int]) -> int:
    """Median difference of two ranks' times of the same moments."""
    return round(statistics.median(mine - theirs for mine, theirs in zip(own, first, strict=True)))
