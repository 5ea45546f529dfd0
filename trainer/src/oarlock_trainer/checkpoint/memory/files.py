"""One rank's files in a node's memory, and the manifests that make them count: for ranks, and for the agent.

Two slots take turns. A third one holds, while that counts, what another number of ranks has made.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from oarlock_trainer.checkpoint.memory.held import (
    by_rank,
    manifest_name,
    parse_manifest_name,
    parse_state_name,
    state_name,
)
from oarlock_trainer.runtime.atomic_write import TEMPORARY, write_bytes

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping
    from pathlib import Path

SLOTS = (0, 1)
_ASIDE = 2
"""Where a part stays that another number of ranks made: those of now need both slots, in another size."""
_BLOCK = 512
"""Bytes that stat(2) counts in."""


class RankFiles:
    """The files of `rank` in `folder`. What only an earlier life of it can have left is used again."""

    def __init__(self, folder: Path, rank: int) -> None:
        """Touches nothing yet."""
        self._folder, self._rank = folder, rank
        self._slot_of: dict[int, int] = {}
        """Step that counts -> where it lies."""
        self._worlds: dict[int, int] = {}
        """Step that counts -> how many ranks made it."""

    def claim(self, *, keep: int | None, names: Iterable[str] | None = None) -> None:
        """Make the folder where it is not there; of what counted before, only step `keep` does on. Raises OSError.

        `names` of all that lies there of this rank, where they are known.
        """
        self._folder.mkdir(mode=0o700, exist_ok=True)
        there = self._folder.lstat()
        if not stat.S_ISDIR(there.st_mode) or there.st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, "it belongs to somebody else", str(self._folder))
        self._worlds, self._slot_of = {}, {}
        for name in by_rank(self._folder).get(self._rank, ()) if names is None else names:
            found = parse_manifest_name(name)
            if found and found.step == keep and keep not in self._worlds:
                self._worlds[keep] = found.world
                self._slot_of[keep] = self._slot(keep)
            elif found or name.startswith(TEMPORARY):
                # Ranks that go on from elsewhere may come to other figures at this step: the two must not mix.
                (self._folder / name).unlink(missing_ok=True)
        self._clear_aside()

    def set_aside(self, step: int) -> None:
        """Keep a step that counts out of both slots, until a newer one counts and the next begins. Raises OSError."""
        slot = self._slot_of[step]
        if slot == _ASIDE:
            return
        told = json.loads(self._manifest(step).read_text(encoding="utf-8"))
        manifest = lying_in(told, state_name(self._rank, _ASIDE))
        self._state(_ASIDE).unlink(missing_ok=True)
        self._state(_ASIDE).hardlink_to(self._state(slot))
        write_bytes(self._manifest(step), manifest.encode())
        self._state(slot).unlink()
        self._slot_of[step] = _ASIDE

    def _clear_aside(self) -> None:
        """What a kill has left halfway: a part set aside that does not count, or its old name beside it."""
        aside = self._state(_ASIDE)
        if _ASIDE not in self._slot_of.values():
            aside.unlink(missing_ok=True)
            return
        for path in map(self._state, SLOTS):
            if path.exists() and path.samefile(aside):
                path.unlink()

    def trim(self) -> None:
        """Give back the slots in which nothing counts. Raises OSError."""
        for slot in set(SLOTS) - set(self._slot_of.values()):
            self._state(slot).unlink(missing_ok=True)

    def taken(self, *slots: int) -> int:
        """Bytes that the files in these slots have now; of both where none is named."""
        paths = [self._state(slot) for slot in slots or SLOTS]
        return sum(path.stat().st_blocks * _BLOCK for path in paths if path.exists())

    def make(self, size: int) -> list[int]:
        """Descriptors of both files, of `size` bytes, all of them taken now: here it shows where memory is short.

        Raises OSError.
        """
        first = self.open(SLOTS[0], size)
        try:
            return [first, self.open(SLOTS[1], size)]
        except OSError:
            os.close(first)
            raise

    def open(self, slot: int, size: int) -> int:
        """A descriptor of one of them, of `size` bytes, all of them taken. Raises OSError."""
        made = os.open(self._state(slot), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            os.ftruncate(made, size)
            os.posix_fallocate(made, 0, size)  # writing into a map that has no room would end the process
        except OSError:
            os.close(made)
            raise
        return made

    def has(self, step: int) -> bool:
        """Whether the state after `step` steps counts."""
        return step in self._slot_of

    @property
    def newest(self) -> int | None:
        """The newest step that counts."""
        return max(self._slot_of, default=None)

    def bytes_of(self, step: int) -> int:
        """Of a step's part; 0 where it does not count, or somebody has removed it."""
        with suppress(OSError):
            return self._state(self._slot_of[step]).stat().st_size if step in self._slot_of else 0
        return 0

    def world(self, step: int) -> int:
        """How many ranks made a step that counts."""
        return self._worlds[step]

    def saved_at(self, step: int) -> str:
        """When a step that counts was the state of training, RFC 3339; empty where that can't be read."""
        try:
            return str(json.loads(self._manifest(step).read_text(encoding="utf-8"))["saved_at"])
        except (OSError, ValueError, KeyError, TypeError):
            return ""

    def next_slot(self, *, keep: int | None = None) -> int:
        """Where the next state is to be written: not over step `keep`, or else over the newest one that counts."""
        newest = keep if keep in self._slot_of else self.newest
        slot = _ASIDE if newest is None else self._slot_of[newest]
        return SLOTS[0] if slot == _ASIDE else 1 - slot

    def begin(self, *, keep: int | None = None) -> int:
        """`next_slot`; what lies there counts no longer."""
        slot = self.next_slot(keep=keep)
        counts = any(of in SLOTS for of in self._slot_of.values())
        over = {slot, _ASIDE} if counts else {slot}
        for step in [step for step, of in self._slot_of.items() if of in over and step != keep]:
            self._forget(step)
        if _ASIDE not in self._slot_of.values():
            self._state(_ASIDE).unlink(missing_ok=True)
        return slot

    def complete(self, step: int, slot: int, manifest: str, *, world: int) -> None:
        """Let what one of `world` ranks has written count. Raises OSError."""
        self._worlds[step] = world
        write_bytes(self._manifest(step), manifest.encode())
        self._slot_of[step] = slot

    def remove(self) -> None:
        """All of this rank's, and the folder with the last rank's. The memory is free once no process maps it."""
        _remove(self._folder, by_rank(self._folder).get(self._rank, ()))
        with suppress(OSError):  # not the last one
            self._folder.rmdir()

    def _forget(self, step: int) -> None:
        self._manifest(step).unlink()
        self._slot_of.pop(step, None)
        del self._worlds[step]

    def _state(self, slot: int) -> Path:
        return self._folder / state_name(self._rank, slot)

    def _manifest(self, step: int) -> Path:
        return self._folder / manifest_name(step, self._rank, world=self._worlds[step])

    def _slot(self, step: int) -> int:
        written = json.loads(self._manifest(step).read_text(encoding="utf-8"))
        return parse_state_name(written["files"][0]["name"])[1]


def lying_in(manifest: Mapping[str, Any], name: str) -> str:
    """A part's manifest, where its file has this name instead. Raises KeyError and others where it is none of a part."""
    (file,) = manifest["files"]
    told = {**manifest, "files": [{**file, "name": name}], "runs": {name: manifest["runs"][file["name"]]}}
    return f"{json.dumps(told, sort_keys=True)}\n"


def remove_all_but(folder: Path, ranks: Container[int]) -> None:
    """Remove what lies there of other ranks than these; the folder stays, for theirs. Raises OSError."""
    for rank, names in by_rank(folder).items():
        if rank not in ranks:
            _remove(folder, names)


def remove_all(folder: Path) -> None:
    """Remove what lies there, and the folder. Raises OSError."""
    remove_all_but(folder, ())
    with suppress(OSError):  # somebody else's file is in it
        folder.rmdir()


def _remove(folder: Path, names: Iterable[str]) -> None:
    for name in sorted(names, key=lambda name: name.endswith(".state")):  # what makes a state count goes first
        (folder / name).unlink(missing_ok=True)
