"""A training program that joins its gang as the real one does, and then waits."""

from __future__ import annotations

import os

from fake_programs import _announce, _wait_for

from oarlock_trainer import channel, warm
from oarlock_trainer.errors import TrainingEnd
from oarlock_trainer.job import read_job
from oarlock_trainer.uncompiled import import_torch


def imports_torch() -> None:
    warm.settle_environment()
    import_torch()
    from oarlock_trainer.engine import collective  # noqa: F401, PLC0415


def joins() -> int:
    from oarlock_trainer.engine import collective, process_group  # noqa: PLC0415 - torch is not imported yet at the top

    try:
        collective.join(read_job(os.environ), go_on=lambda: None)
    except TrainingEnd as end:
        channel.send(channel.Event.FAILURE, code=int(end.code), summary=str(end))
        return int(end.code)
    _announce()
    _wait_for("finish")
    process_group.leave()
    return 0


def joins_soon_or_never() -> int:
    """The same, of a gang whose pods come up within seconds."""
    from oarlock_trainer.engine import collective  # noqa: PLC0415

    collective._APART_SECONDS = 6.0
    return joins()
