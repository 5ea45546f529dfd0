"""What an agent hands out of its node's memory to the gang's other agents: steps, manifests, and pieces of files.

All of it is asked for with the attempt's key, as /status is. Words are signed; a file's bytes are held to the hash in its
manifest by whoever takes them. A question is for one pod's agent: its rank is in the path.
"""

from __future__ import annotations

import json
import os
import re
import stat
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from oarlock_api.contract import gang_key
from oarlock_trainer.agent.status.from_within import Answer
from oarlock_trainer.checkpoint.memory.held import held, manifest_name, parse_state_name, state_name

if TYPE_CHECKING:
    from pathlib import Path

PIECE = 8 << 20
"""Bytes that one answer has at most: done well within a client's time at the status port."""
ADDRESSEE = "memory"
"""What stands in the place of a pod's UID: agents do not know those of each other."""
NICE = 10
"""Of threads that move parts: training goes first where cores are few."""
MOST_WORDS = 64 << 20
"""Bytes of a manifest: it names each run of the rank's parts."""
_AT_ONCE = 2
_PATH = re.compile(r"/memory/(\d{1,5})/(steps|manifest|state)/(\d{1,18})(?:/(\d{1,18}))?(?:/(\d{1,18}))?")


def steps_path(holder: int, owner: int) -> str:
    """The whole steps of place `owner` in the memory of node `holder`."""
    return f"/memory/{holder}/steps/{owner}"


def manifest_path(holder: int, step: int, rank: int, *, world: int) -> str:
    """The manifest of one rank's part."""
    return f"/memory/{holder}/manifest/{step}/{rank}/{world}"


def state_path(holder: int, name: str, offset: int) -> str:
    """A piece of a file that a manifest names. Raises ValueError where it is no such name."""
    rank, slot = parse_state_name(name)
    return f"/memory/{holder}/state/{rank}/{slot}/{offset}"


class PartsServer:
    """Of the node whose rank is `node`. Any thread may ask. `round`: which one what lies there is of."""

    def __init__(self, folder: Path, key: bytes, *, node: int, ranks_per_node: int) -> None:
        self._folder, self._key = folder, key
        self._node, self._ranks_per_node = node, ranks_per_node
        self._readers = threading.BoundedSemaphore(_AT_ONCE)
        self.round = 0

    @staticmethod
    def has(path: str) -> bool:
        """Whether a path, without its query, is one of these."""
        return path.startswith("/memory/")

    def answer(self, target: str) -> Answer:
        """What is at a path with its query. Never raises OSError: what can't be read is not there."""
        path = target.partition("?")[0]
        found = _PATH.fullmatch(path)
        if found is None or int(found[1]) != self._node:
            return _words(404, "no such part")
        if not gang_key.asked_by_one_of_us(self._key, target, pod_uid=ADDRESSEE, now=time.time()):
            return _words(403, "parts are handed to the gang's own agents alone")
        if not self._readers.acquire(blocking=False):
            return _words(503, "others read just now: ask again")
        try:
            with suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
            return self._read(target, found[2], [int(one) for one in found.groups()[2:] if one is not None])
        except (OSError, ValueError):
            return _words(404, "it is not there")
        finally:
            self._readers.release()

    def _read(self, target: str, kind: str, numbers: list[int]) -> Answer:
        if kind == "steps" and len(numbers) == 1:
            found = held(self._folder, ranks_per_node=self._ranks_per_node)
            steps = [[step, size] for step, size, places in found if numbers[0] in places]
            return self._signed(target, json.dumps({"round": self.round, "steps": steps}))
        if kind == "manifest" and len(numbers) == 3:
            step, rank, world = numbers
            manifest = json.loads((self._folder / manifest_name(step, rank, world=world)).read_text(encoding="utf-8"))
            return self._signed(target, json.dumps(manifest))  # in one line
        if kind == "state" and len(numbers) == 3:
            return self._piece(*numbers)
        return _words(404, "no such part")

    def _signed(self, target: str, body: str) -> Answer:
        said = gang_key.answer(self._key, target, body).encode()
        return Answer(200, "application/json", len(said), [said])

    def _piece(self, rank: int, slot: int, offset: int) -> Answer:
        file = os.open(
            self._folder / state_name(rank, slot), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        )
        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                return _words(404, "it is no file")
            piece = os.pread(file, PIECE, offset)
        finally:
            os.close(file)
        return Answer(200, "application/octet-stream", len(piece), [piece])


def _words(code: int, text: str) -> Answer:
    body = f"{text}\n".encode()
    return Answer(code, "text/plain", len(body), [body])
