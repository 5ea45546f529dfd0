"""The built-in trainer's rank, whose launcher is asked to leave after step 2: `--program leaving_ranks:main`."""

from __future__ import annotations

import os
import signal
from typing import Any

from oarlock_trainer.loop import train
from oarlock_trainer.ranks import preload

_report = train.report


def _report_and_ask(*arguments: Any, step: int, **fields: Any) -> None:
    _report(*arguments, step=step, **fields)
    if step == 2 and os.environ["RANK"] == "0":
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        os.kill(os.getppid(), signal.SIGTERM)
        assert signal.sigtimedwait({signal.SIGTERM}, 60), "the launcher passed nothing on"
        os.kill(os.getpid(), signal.SIGTERM)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


def main() -> int:
    preload.import_everything()
    train.report = _report_and_ask
    return train.main()
