"""A training program that joins its gang as the real one does, and then waits."""

from __future__ import annotations

import os

from fake_programs import _announce, _wait_for

from oarlock_trainer.ranks import preload
from oarlock_trainer.runtime import channel
from oarlock_trainer.runtime.errors import TrainingEnd
from oarlock_trainer.runtime.job import read_job
from oarlock_trainer.runtime.uncompiled import import_torch


def imports_torch() -> None:
    preload.settle_environment()
    import_torch()
    from oarlock_trainer.preflight.collective import check  # noqa: F401, PLC0415


def joins() -> int:
    from oarlock_trainer.engine import process_group  # noqa: PLC0415 - torch is not imported yet at the top
    from oarlock_trainer.preflight.collective import check  # noqa: PLC0415 - torch is not imported yet at the top

    try:
        check.join(read_job(os.environ), go_on=lambda: None)
    except TrainingEnd as end:
        channel.send(channel.Event.FAILURE, code=int(end.code), summary=str(end))
        return int(end.code)
    _announce()
    _wait_for("finish")
    process_group.leave()
    return 0


def joins_soon_or_never() -> int:
    """The same, of a gang whose pods come up within a second."""
    from oarlock_trainer.preflight.collective import check  # noqa: PLC0415

    check._APART_SECONDS, check._APART = 1.0, 0
    return joins()
