"""Copying one rank's part from another agent's memory into this node's: hashed, and only then let count."""

from __future__ import annotations

import hashlib
import mmap
import os
import shutil
import time
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from oarlock_trainer.agent.ring.peer import PeerError
from oarlock_trainer.checkpoint.memory.files import lying_in
from oarlock_trainer.checkpoint.memory.held import parse_state_name, state_name
from oarlock_trainer.runtime import cgroup

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from pathlib import Path

    from oarlock_trainer.agent.ring.peer import Peer
    from oarlock_trainer.checkpoint.memory.files import RankFiles


BAD = (OSError, ValueError, KeyError, TypeError, IndexError)
"""What a folder that somebody else has touched can raise."""


class StoppedError(Exception):
    """What is copied is wanted no more, or its time is up."""


class NoRoomError(Exception):
    """This node has no memory for it. The message says how much."""


@dataclass(frozen=True, slots=True)
class Part:
    """One rank's part of a step: a file of `size` bytes, and the manifest that names it."""

    name: str
    size: int
    sha256: str
    manifest: dict[str, Any]


@dataclass(slots=True)
class Begun:
    """How far one rank's copies have come: of the part with this hash so many bytes lie in this slot already."""

    sha256: str = ""
    slot: int = 0
    bytes: int = 0


def part_of(raw: Any, *, job_uid: str, attempt: int, step: int, rank: int, world: int, rounds: range) -> Part:
    """The part that a manifest is of.

    Raises PeerError where it is none of this job, attempt, rounds and step, and of this one of `world` ranks.
    """
    try:
        if (raw["job_uid"], raw["attempt"], raw["step"], raw["world_size"]) != (job_uid, attempt, step, world):
            raise PeerError(f"the manifest of step {step} is of another job, attempt, step or number of ranks")
        if (round_ := raw.get("round", 1)) not in rounds:
            raise PeerError(f"the manifest of step {step} is of round {round_}, which does not count")
        (file,) = raw["files"]
        name, size, sha256 = str(file["name"]), int(file["size"]), str(file["sha256"])
        if parse_state_name(name)[0] != rank or size < 1 or list(raw["runs"]) != [name]:
            raise PeerError(f"the manifest of step {step} is none of rank {rank}")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise PeerError(f"the manifest of rank {rank} at step {step} is none: {error}") from error
    return Part(name, size, sha256, raw)


def pull(
    peer: Peer,
    part: Part,
    files: RankFiles,
    folder: Path,
    *,
    rank: int,
    keep: int | None,
    share: float,
    begun: Begun | None = None,
    only_while: Callable[[], AbstractContextManager[object]] = nullcontext,
    pause: Callable[[float], object] = time.sleep,
) -> None:
    """Copy a part, and let it count. Step `keep` is not written over. What `begun` tells of it is there already.

    At most `share` of the time goes into asking. Files change within `only_while` alone, which raises StoppedError
    once the part is wanted no more. Raises PeerError, NoRoomError and OSError, and then nothing counts that was not whole.
    """
    check_room(folder, part.size, there=files.taken(files.next_slot(keep=keep)))
    with only_while():
        slot = files.begin(keep=keep)
        descriptor = files.open(slot, part.size)
    begun = begun or Begun()
    if (begun.sha256, begun.slot) != (part.sha256, slot):
        begun.sha256, begun.slot, begun.bytes = part.sha256, slot, 0
    try:
        with mmap.mmap(descriptor, part.size) as content:
            _copy(peer, part, content, begun=begun, share=share, only_while=only_while, pause=pause)
            # In one call: it holds no lock of the interpreter's meanwhile.
            if hashlib.sha256(content).hexdigest() != part.sha256:
                begun.bytes = 0
                raise PeerError(f"rank {rank}'s part was written anew while it was copied")
    finally:
        os.close(descriptor)
    with only_while():
        told = part.manifest
        manifest = lying_in(told, state_name(rank, slot))
        files.complete(int(told["step"]), slot, manifest, world=int(told["world_size"]))


def _copy(
    peer: Peer,
    part: Part,
    content: mmap.mmap,
    *,
    begun: Begun,
    share: float,
    only_while: Callable[[], AbstractContextManager[object]],
    pause: Callable[[float], object],
) -> None:
    while (at := begun.bytes) < part.size:
        with only_while():
            pass
        began = time.monotonic()
        piece = peer.piece(part.name, at)
        if not piece or len(piece) > part.size - at:
            raise PeerError(f"{part.name} has another size than its manifest says")
        content[at : at + len(piece)] = piece
        begun.bytes += len(piece)
        pause((time.monotonic() - began) * (1 / share - 1))


def check_room(folder: Path, size: int, *, there: int) -> None:
    """`there`: bytes of the file that is written over."""
    free = shutil.disk_usage(folder).free
    below_limit = cgroup.free_memory()
    free = free if below_limit is None else min(free, below_limit)
    if size > free + there:
        raise NoRoomError(
            f"a part of {size / 1e9:.2f} GB, and {free / 1e9:.2f} GB are free: raise spec.pod.sharedMemory"
        )
