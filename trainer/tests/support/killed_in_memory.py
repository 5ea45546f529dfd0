"""A rank that is killed in the midst of a state that goes into memory, after one that is whole.

python killed_in_memory.py FOLDER copying|hashing|counting
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any, NoReturn

from remembering import remember, step
from saving import Plain

from oarlock_trainer.checkpoint.memory import files, memory
from oarlock_trainer.checkpoint.snapshot import Snapshot


def die(*_: Any, **__: Any) -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("still alive")


def main() -> None:
    folder, moment = Path(sys.argv[1]), sys.argv[2]
    engine = Plain()
    kept = remember(folder, engine=engine)
    step(kept, 1)
    kept.told(2)  # waits for the first
    for part in engine.parts():
        part.values.fill_(7.0)
    if moment == "copying":
        copy = Snapshot._copy_all

        def half(self: Snapshot, parts: Any) -> None:
            copy(self, parts[:1])
            die()

        Snapshot._copy_all = half  # type: ignore[method-assign]
    elif moment == "hashing":
        memory.hashlib.sha256 = die  # type: ignore[attr-defined]
    else:
        files.write_bytes = die  # type: ignore[attr-defined]
    step(kept, 2)
    assert kept._writing
    kept._writing.wait(None)


main()
