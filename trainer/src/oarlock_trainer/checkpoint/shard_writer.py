"""A rank's hold on the process that writes its part of a checkpoint (shard_process.py)."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from typing import TYPE_CHECKING

from oarlock_trainer.checkpoint.format import FileFacts
from oarlock_trainer.runtime.errors import StorageError
from oarlock_trainer.runtime.parent import pipe

if TYPE_CHECKING:
    from pathlib import Path

_TRIES = 5


class ShardWriter:
    """Writes the first bytes of a shared memory into files, one after another. A process that dies is replaced."""

    def __init__(self, memory: int) -> None:
        """`memory` is a descriptor. To be made by the rank's main thread: the process dies with the thread that made it."""
        self._memory = memory
        self._order: tuple[Path, int] | None = None
        self._tries = 0
        self._answer = b""
        self._process = self._start()

    def begin(self, path: Path, size: int) -> None:
        """Write `size` bytes into `path`. The one before must have ended."""
        self._order, self._tries, self._answer = (path, size), 0, b""
        self._send()

    def ended(self, seconds: float | None = 0.0) -> bool:
        """Whether the file is written, or has failed; waits so long for it, None = for as long as it takes."""
        while not self._answer.endswith(b"\n"):
            if not select.select([pipe(self._process.stdout)], [], [], seconds)[0]:
                return False
            received = os.read(pipe(self._process.stdout).fileno(), 65536)
            self._answer += received
            if not received:
                self._again()
        return True

    def result(self) -> FileFacts:
        """The written file, by its bare name; waits for it.

        Raises OSError as the storage did, and StorageError where the process died again and again.
        """
        self.ended(None)
        path, size = self._given()
        answer = json.loads(self._answer)
        if "error" in answer:
            raise OSError(answer["error"], answer["message"], str(path))
        return FileFacts(path.name, size, answer["sha256"])

    def close(self) -> None:
        """End the process, and whatever it is at."""
        self._process.kill()
        self._process.communicate()

    def _again(self) -> None:
        """The memory still holds what was to be written."""
        code = self._process.wait()
        path, _ = self._given()
        if self._tries >= _TRIES:
            raise StorageError(
                f"the process that writes {path} ended {_TRIES} times, last with {code} (minus a signal's number): if the "
                "node was out of memory, raise pod.resources.limits.memory"
            )
        self._process = self._start()
        self._answer = b""
        self._send()

    def _send(self) -> None:
        path, size = self._given()
        self._tries += 1
        order = json.dumps({"file": str(path), "size": size}) + "\n"
        try:
            pipe(self._process.stdin).write(order.encode())
            pipe(self._process.stdin).flush()
        except BrokenPipeError:
            self._again()

    def _given(self) -> tuple[Path, int]:
        if self._order is None:
            raise AssertionError("nothing was begun")
        return self._order

    def _start(self) -> subprocess.Popen[bytes]:
        program = ["-m", "oarlock_trainer.checkpoint.shard_process"]
        options = ["--memory", str(self._memory), "--parent", str(os.getpid())]
        return subprocess.Popen(
            [sys.executable, *program, *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[self._memory],
        )
