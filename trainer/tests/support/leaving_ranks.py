"""The built-in trainer's rank, whose launcher is asked to leave after step 2: `--program leaving_ranks:main`."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from oarlock_trainer.loop import train
from oarlock_trainer.ranks import preload

_report = train.report


def _report_and_ask(*arguments: Any, step: int, **fields: Any) -> None:
    _report(*arguments, step=step, **fields)
    if step == 2 and os.environ["RANK"] == "0":
        _ask()


def _ask() -> None:
    """Ask the launcher, and go on once it has passed that on to this rank.

    By a handler: whichever thread the kernel gives the signal to, this one runs it. A signal that the main thread alone
    blocked, to wait for it, would be lost to another one if it came before the waiting.
    """
    asked: list[int] = []
    takes: Any = signal.getsignal(signal.SIGTERM)

    def heard(number: int, frame: Any) -> None:
        takes(number, frame)
        asked.append(number)

    signal.signal(signal.SIGTERM, heard)
    os.kill(os.getppid(), signal.SIGTERM)
    while not asked:
        time.sleep(0.005)
    signal.signal(signal.SIGTERM, takes)


def main() -> int:
    preload.import_everything()
    train.report = _report_and_ask
    return train.main()
