"""A job of Qwen-Image-Edit of one rank, in this process: what its text encoder makes is read and compared here."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import distributed

from oarlock_api.contract.job_file import JobFile
from oarlock_api.training import Training
from oarlock_trainer.engine import process_group
from oarlock_trainer.runtime.job import Job, RankInfo

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from oarlock_trainer.engine.process_group import RankGroup


def edit_job(output: Path, model: Path, *, pictures: Path, references: Path, **fields: Any) -> Job:
    """One data set with references, which is flipped, and of which captions are left out."""
    edits = {
        "name": "edits", "source": {"path": str(pictures)}, "randomFlip": True,
        "conditioning": {"kind": "Reference", "source": {"path": str(references)}},
    }  # fmt: skip
    body = {
        "model": {"family": "QwenImage", "flavor": "Edit", "path": str(model)}, "steps": 1, "resolution": 64,
        "objective": {"captionDropout": 0.3}, "data": {"datasets": [edits]},
    } | fields  # fmt: skip
    file = JobFile(
        job="edit", namespace="default", job_uid="uid", attempt=1, nodes=1, gpus_per_node=0,
        output_directory=str(output), training=body,
    )  # fmt: skip
    rank_info = RankInfo(rank=0, local_rank=0, world_size=1, local_world_size=1)
    return Job(file=file, training=Training.model_validate(body), rank_info=rank_info, simulate_gpus=False)


@contextmanager
def alone(job: Job) -> Iterator[RankGroup]:
    """Its only rank."""
    torch.set_num_threads(1)  # as ranks on the CPU have it
    try:
        yield process_group.join(job, store=distributed.HashStore())
    finally:
        process_group.leave()


def noise(width: int, height: int, seed: int) -> np.ndarray:
    """Coarse: it is another picture mirrored, however small it is seen."""
    coarse = np.random.default_rng(seed).integers(0, 256, (height // 16, width // 16, 3), dtype=np.uint8)
    return coarse.repeat(16, axis=0).repeat(16, axis=1)
