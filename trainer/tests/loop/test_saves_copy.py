"""What a start makes of the copy that the one before may not have come to."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from saving import Alone, save_alone

from oarlock_api.contract.layout import Owner
from oarlock_trainer.checkpoint.copies import Copies
from oarlock_trainer.checkpoint.fence import Fence
from oarlock_trainer.checkpoint.format import valid_checkpoints
from oarlock_trainer.loop.saves import Saves
from oarlock_trainer.storage.local import LocalFiles

if TYPE_CHECKING:
    from pathlib import Path


def nothing() -> None:
    """Nobody stops."""


@pytest.mark.parametrize("in_memory", [False, True])
def test_the_jobs_newest_checkpoint_is_copied_whether_ranks_go_on_from_it_or_from_memory(
    tmp_path: Path, *, in_memory: bool
) -> None:
    output, copies = tmp_path / "output", Copies(LocalFiles(tmp_path / "store", field="training.checkpoint.upload"))
    save_alone(output, 10, 20)
    resumed = valid_checkpoints(output)[0]
    if in_memory:
        resumed = replace(resumed, path=tmp_path / "shm", in_memory=True)
    session: Any = SimpleNamespace(
        job=SimpleNamespace(
            training=SimpleNamespace(checkpoint=SimpleNamespace(keep=1)),
            file=SimpleNamespace(job_uid="job"),
            output=output,
        ),
        copies=copies,
        fence=Fence(output, Owner("job", 1)),
        saved=None,
        resumed=resumed,
        ranks=Alone(),
    )
    Saves(session).finish_copy(nothing)
    assert [copy.name for copy in copies.newest()] == ["step-20-a1"]
