"""The process that writes one rank's part of each checkpoint, out of shared memory, while the rank trains on.

A thread would compete with training for the interpreter's lock. This is a program of its own, without torch: it starts
in tens of milliseconds, and an end of it, however sudden, costs no more than writing the part again.

    python -m oarlock_trainer.checkpoint.shard_process --memory FD --parent PID

It reads orders, {"file": PATH, "size": BYTES}, and answers each when its bytes are on the storage: {"sha256": HEX}, or
{"error": ERRNO, "message": TEXT}. It ends with its input, and with its parent.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import mmap
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from oarlock_trainer.runtime.parent import die_with

if TYPE_CHECKING:
    from collections.abc import Sequence

_CHUNK = 8 << 20
"""Bytes that are hashed while they are still in the processor's cache from being written."""
_NICE = 10
"""Training goes first where cores are few."""


def write(memory: memoryview, file: Path) -> str:
    """Write all of `memory` into `file`, wait until the storage has it; its SHA-256."""
    file.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    with file.open("wb", buffering=0) as target:
        for start in range(0, len(memory), _CHUNK):
            chunk = memory[start : start + _CHUNK]
            digest.update(chunk)
            while chunk:
                chunk = chunk[target.write(chunk) :]
        os.fsync(target.fileno())
    return digest.hexdigest()


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until the input ends."""
    parser = argparse.ArgumentParser(prog="python -m oarlock_trainer.checkpoint.shard_process")
    parser.add_argument("--memory", type=int, required=True, help="descriptor of the memory that is written")
    parser.add_argument("--parent", type=int, required=True, help="pid of the rank: this process dies with it")
    options = parser.parse_args(arguments)
    die_with(options.parent)
    os.nice(_NICE)
    memory = memoryview(mmap.mmap(options.memory, 0, access=mmap.ACCESS_READ))
    for line in sys.stdin:
        order = json.loads(line)
        answer: dict[str, object]
        try:
            answer = {"sha256": write(memory[: order["size"]], Path(order["file"]))}
        except OSError as error:
            answer = {"error": error.errno, "message": error.strerror}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
