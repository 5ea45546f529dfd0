"""One rank's state in its node's memory: copied and hashed while training goes on, every few steps.

    begin -> [copy] -> [a thread hashes the copy, and lets it count] -> ranks that start anew go on from it

All ranks begin at the same step, which rides on the small exchange that every step makes anyway. After that none waits for
another: which step all of them have is for whoever starts them anew to find out. Where memory fails on one rank, all give it
up, and training goes on.
"""

from __future__ import annotations

import hashlib
import math
import os
import threading
import time
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from oarlock_api.contract.status import Degradation, pod_of_gang
from oarlock_trainer.checkpoint.format import CheckpointManifest, FileFacts
from oarlock_trainer.checkpoint.layout import ELEMENT, runs_of
from oarlock_trainer.checkpoint.memory.files import RankFiles
from oarlock_trainer.checkpoint.memory.held import state_name, steps_of
from oarlock_trainer.checkpoint.memory.rhythm import Rhythm
from oarlock_trainer.checkpoint.memory.room import Room, clear_others, lacking, measure
from oarlock_trainer.checkpoint.snapshot import Snapshot
from oarlock_trainer.engine import own_gpu
from oarlock_trainer.runtime import channel
from oarlock_trainer.runtime.background import Background
from oarlock_trainer.runtime.errors import FULL

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from oarlock_trainer.checkpoint.format import DataPosition
    from oarlock_trainer.engine.engine import Engine
    from oarlock_trainer.engine.process_group import RankGroup
    from oarlock_trainer.models.adapters.targets import Adapters
    from oarlock_trainer.runtime.job import Job

_NICE = 10
"""Of the thread that hashes: training goes first where cores are few."""
_COPY_SECONDS = 120.0
"""For the ring. Where it does not come so far, as on a network that lets nobody through, the state is renewed without it,
and is waited for no more until it has come so far again."""
_NOT_KEPT = "no state is kept in the nodes' memory, a restart takes the newest checkpoint"
_NOT_COPIED = (
    f"a node's state in memory is not copied to the next node within {_COPY_SECONDS:g} s: where a node is lost, the job goes "
    "on from the newest checkpoint. The log of the pod that lacks its copy says so. See that the job's pods can reach each "
    "other's status port; where it is slow, raise spec.recovery.memory.everySteps"
)
_OFF = -math.inf
"""What a rank tells that has given up: so is the sum of all, whatever the others tell."""


class Memory:
    """This rank's part. Its methods are called at the same places of the loop on all ranks."""

    def __init__(
        self,
        folder: Path,
        job: Job,
        ranks: RankGroup,
        engine: Engine,
        *,
        every: int | None,
        keep: int | None = None,
        made_by: int | None = None,
        adapters: Adapters | None = None,
        ring: bool = False,
    ) -> None:
        """Begin to make the memory, where all nodes have enough. Collective.

        `every`: steps from one snapshot to the next, None = as often as it costs little. `keep`: the step that the ranks went
        on from, if that was from memory, which `made_by` ranks made; what else lies there counts no longer. `adapters` of a
        LoRA job. `ring`: the nodes' agents keep copies for each other, which need room, too.
        """
        self._folder, self._job, self._ranks, self._engine = folder, job, ranks, engine
        self._adapters = adapters
        self._every, self._rhythm = every, Rhythm(every)
        self._size = max(sum(run.length for run in runs_of(engine.parts())), 1) * ELEMENT
        info = ranks.rank_info
        self._files = RankFiles(folder, info.rank)
        self._before = (info.rank - info.local_world_size) % info.world_size
        self._copies = RankFiles(folder, self._before) if ring else None
        """Of a rank of the node before, which this node's agent writes."""
        self._whole_at = 0.0
        self._lags = self._told_of_lag = False
        """Whether the copy has not come so far in time, and whether that was said."""
        self._off = False
        self._told: tuple[int, bool | None] | None = None
        """What rank 0's agent knows: the step that all have, and whether it is copied."""
        self._beside = False
        """Whether a state was on its way when the step began."""
        self._copying: Snapshot | None = None
        self._writing: Background[float] | None = None
        self._began = self._stall = 0.0
        self._cost: tuple[float, float] | None = None
        self._making: Background[list[Snapshot]] | None = None
        if self._has_room(keep, others=made_by not in (None, ranks.rank_info.world_size)):
            self._making = Background(self._make)

    def told(self, step: int) -> tuple[float, float, float]:
        """Whether this rank is ready for the state after `step` steps, and whether it is due: what all ranks add up.

        And whether this node has the copy that it keeps of the newest state. Where the job itself says how often, the state
        before is waited for.
        """
        ready = copied = False
        due = not self._off and self._rhythm.is_due(step)
        if due and self._every is not None:
            for work in (self._making, self._writing):
                if work:
                    work.wait(None)
        try:
            ready, copied = self._ready()
        except OSError as error:
            remedy = ": raise spec.pod.sharedMemory" if error.errno in FULL else ""
            self._give_up(f"{self._folder}: {error.strerror}{remedy}")
        if self._off:
            return _OFF, 0.0, 0.0
        return float(ready), float(due and self._ranks.rank_info.is_leader), float(copied)

    def go_on(
        self, told: Sequence[float], step: int, *, seconds: float, position: Callable[[int], DataPosition] | None
    ) -> None:
        """Begin with the state after `step` steps, the last of which took `seconds`, if that is what all told.

        `told`: the sums. `position` tells where the data stand after a step; None where this one's state need not be kept.
        """
        ready, due, copied = told
        if ready == _OFF:
            self._give_up("")
            return
        self._rhythm.stepped(seconds, beside=self._beside)
        if self._cost:
            self._rhythm.ended(stall=self._cost[0], seconds=self._cost[1])
            self._cost = None
        everybody = self._ranks.rank_info.world_size
        if ready == everybody:
            self._tell(copied=copied == everybody)
        if due and position and ready == everybody:
            self._begin(step, position(step))
        self._beside = self._writing is not None

    def before_update(self) -> None:
        """Wait until the state may change: it is copied. To be called before each update."""
        if self._copying is None:
            return
        began = time.monotonic()
        self._copying.wait()
        self._copying = None
        self._stall += time.monotonic() - began

    def close(self) -> None:
        """Give the memory back: what it is for is done."""
        if not self._off:
            self._give_back()

    def _has_room(self, keep: int | None, *, others: bool) -> bool:
        """`others`: more or fewer ranks have made what lies there."""
        if others:
            self._ranks.barrier()  # all of this node have read what they go on from
        told = self._ranks.gather(_tried(lambda: self._claim(keep, others=others)))
        if not (words := _first_words(told)):
            told = self._ranks.gather(_tried(self._measure))
            words = _first_words(told)
        per_node = self._ranks.rank_info.local_world_size
        words = words or lacking(told, ranks_per_node=per_node, ring=self._copies is not None)
        if words:
            self._give_up(words if self._ranks.rank_info.is_leader else "")
        return not words

    def _claim(self, keep: int | None, *, others: bool) -> None:
        self._files.claim(keep=keep)
        if keep is None:
            clear_others(self._folder, self._ranks.rank_info)  # such as parts that were copied for nothing
        elif others and self._files.has(keep):
            self._files.set_aside(keep)

    def _measure(self) -> Room:
        has = self._files.taken() + (self._copies.taken() if self._copies else 0)
        return measure(self._folder, node=self._job.node, needs=self._size, has=has)

    def _make(self) -> list[Snapshot]:
        """Room for two states: while one is written, the other one counts."""
        device = self._ranks.device
        if device.type == "cuda":
            own_gpu.choose(device)
        made = [Snapshot(self._size, device, file) for file in self._files.make(self._size)]
        for snapshot in made:
            snapshot.wait()
        return made

    def _ready(self) -> tuple[bool, bool]:
        """Whether the next state may begin, and whether the newest is copied. Raises OSError where memory has failed."""
        if self._making is None or not self._making.ended:
            return False, False
        self._making.result()
        if self._writing is None or not self._writing.ended:
            return (False, False) if self._writing else self._is_copied()
        writing, self._writing = self._writing, None
        self._whole_at = writing.result()
        self._cost = (self._stall, self._whole_at - self._began)
        return self._is_copied()

    def _is_copied(self) -> tuple[bool, bool]:
        """Whether no copy is waited for any more, and whether this node has the same step of the node before it.

        None is written over before all nodes do: so at any moment there is a step that survives the loss of a node.
        """
        newest = self._files.newest
        # What another number of ranks made lies on every node whole, and by other places than these.
        own = newest is not None and self._files.world(newest) == self._ranks.rank_info.world_size
        copied = self._copies is None or not own or newest in steps_of(self._folder, self._before)
        if copied:
            self._lags = False
        elif not self._lags and time.monotonic() - self._whole_at > _COPY_SECONDS:
            self._lags = True
            self._tell_of_lag()
        return copied or self._lags, copied

    def _tell_of_lag(self) -> None:
        info = self._ranks.rank_info
        if not self._told_of_lag and info.local_rank == 0:
            own, before = (pod_of_gang(info.pod_of(rank)) for rank in (info.rank, self._before))
            channel.tell(
                f"the state in memory of {before} is not copied to {own} within {_COPY_SECONDS:g} s, so it is lost with that "
                "pod, and the job would go on from the newest checkpoint: see that the job's pods can reach each "
                "other's status port; where it is slow, raise spec.recovery.memory.everySteps"
            )
        self._told_of_lag = True

    def _tell(self, *, copied: bool) -> None:
        """What all nodes have: to be called where all are ready. A state that only some have whole is none."""
        step = self._files.newest
        known = None if step is None else (step, copied if self._copies else None)
        if known is None or known == self._told or not self._ranks.rank_info.is_leader:
            return
        was_late, self._told = self._told is not None and self._told[1] is False, known
        ring = {} if self._copies is None else {"copied": copied}
        channel.send(channel.Event.MEMORY, step=step, savedAt=self._files.saved_at(known[0]), **ring)
        if was_late == copied and self._copies:
            words = "" if copied else _NOT_COPIED
            channel.send(channel.Event.DEGRADED, reason=Degradation.MEMORY_NOT_COPIED, message=words)

    def _begin(self, step: int, position: DataPosition) -> None:
        if self._making is None:
            raise AssertionError("not ready")
        self._rhythm.began(step)
        self._began = time.monotonic()
        parts = self._engine.parts()
        slot = self._files.begin()
        snapshot = self._making.result()[slot]
        snapshot.begin(parts)
        manifest = CheckpointManifest(
            step=step,
            updates=self._engine.updates,
            attempt=self._job.file.attempt,
            round=self._job.round,
            job_uid=self._job.file.job_uid,
            world_size=self._ranks.rank_info.world_size,
            saved_at=datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            data=position,
            files=(),
            runs={state_name(self._ranks.rank_info.rank, slot): runs_of(parts)},
            adapters=self._adapters,
        )
        self._copying = snapshot
        self._writing = Background(lambda: self._complete(snapshot, manifest, slot))
        self._stall = time.monotonic() - self._began

    def _complete(self, snapshot: Snapshot, manifest: CheckpointManifest, slot: int) -> float:
        """Let the copied state count; returns when it does. Raises OSError."""
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
        snapshot.wait()
        # In one call: it holds no lock of the interpreter's meanwhile.
        sha256 = hashlib.sha256(snapshot.content).hexdigest()
        (name,) = manifest.runs
        whole = replace(manifest, files=(FileFacts(name, snapshot.size, sha256),))
        self._files.complete(whole.step, slot, whole.to_json(), world=whole.world_size)
        return time.monotonic()

    def _give_up(self, words: str) -> None:
        """No state is kept from here on, on this rank. `words`: why, empty where another rank says it."""
        if self._off:
            return
        if words:
            channel.tell(f"{_NOT_KEPT}: {words}")
        if self._ranks.rank_info.is_leader:
            why = words or "another pod's memory failed, and its log says why"
            channel.send(channel.Event.DEGRADED, reason=Degradation.MEMORY_OFF, message=f"{_NOT_KEPT}: {why}")
        self._give_back()

    def _give_back(self) -> None:
        self._off = True
        for work in (self._making, self._writing):
            if work:
                work.wait(None)
        with suppress(OSError, RuntimeError, ValueError):  # it could not be made
            for snapshot in self._making.result() if self._making else ():
                snapshot.close()
        self._making = self._writing = self._copying = None
        with suppress(OSError):  # the pod's end gives it back, too
            clear_others(self._folder, self._ranks.rank_info)
            self._files.remove()
            if self._copies:
                self._copies.remove()


def _tried(work: Callable[[], Any]) -> Any:
    """What it returns, or in words why it could not: the others wait for both."""
    try:
        return work()
    except (OSError, ValueError, KeyError, TypeError) as error:
        return str(error) or type(error).__name__


def _first_words(told: Sequence[Any]) -> str:
    return next((each for each in told if isinstance(each, str)), "")
