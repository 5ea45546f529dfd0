"""Losses on unseen data give way to a request to leave. One rank, the tiny model."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import distributed

from oarlock_api.contract.job_file import JobFile
from oarlock_api.training import Training
from oarlock_trainer.engine import process_group
from oarlock_trainer.loop.evaluation import evaluate
from oarlock_trainer.models import transformer
from oarlock_trainer.models.objective.loss import MicroBatch
from oarlock_trainer.runtime.job import Job, RankInfo

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BATCHES = 5


class Loader:
    """Batches of noise, and how many of them were taken."""

    def __init__(self, shape: Any) -> None:
        self._shape = shape
        self.taken = 0

    def evaluation(self) -> Iterator[tuple[int, MicroBatch]]:
        noise = torch.Generator().manual_seed(1)

        def drawn(*size: int) -> torch.Tensor:
            return torch.randn(1, *size, generator=noise)

        for _ in range(BATCHES):
            self.taken += 1
            yield 1, MicroBatch(
                latents=drawn(self._shape.in_channels // 4, 4, 4), noise=drawn(self._shape.in_channels // 4, 4, 4),
                text=drawn(3, self._shape.joint_attention_dim).bfloat16(),
                pooled=drawn(self._shape.pooled_projection_dim).bfloat16(),
                sigmas=torch.tensor([0.5]), guidance=torch.ones(1), text_mask=None,
            )  # fmt: skip


@pytest.mark.parametrize("asked_after", [BATCHES + 2, 2])
def test_asked_to_leave_it_ends_at_the_next_batch_and_tells_no_loss(
    tmp_path: Path, tiny_flux: Path, asked_after: int
) -> None:
    source = {"path": "/data"}
    body = {
        "model": {"family": "Flux1", "path": str(tiny_flux)},
        "steps": 1,
        "data": {
            "datasets": [{"name": "seen", "source": source}, {"name": "new", "source": source, "role": "Evaluation"}]
        },
    }
    file = JobFile(
        job="flux", namespace="default", job_uid="uid", attempt=1, nodes=1, gpus_per_node=0,
        output_directory=str(tmp_path), training=body,
    )  # fmt: skip
    rank_info = RankInfo(rank=0, local_rank=0, world_size=1, local_world_size=1)
    job = Job(file=file, training=Training.model_validate(body), rank_info=rank_info, simulate_gpus=False)
    ranks = process_group.join(job, store=distributed.HashStore())
    model: Any = transformer.load(tiny_flux)
    loader: Any = Loader(model.config)
    found = evaluate(
        nullcontext(model), loader, job, ranks, has_guidance=model.config.guidance_embeds,
        leaving=lambda: loader.taken >= asked_after,
    )  # fmt: skip
    process_group.leave()
    assert loader.taken == min(asked_after, BATCHES)
    assert found.keys() == ({"new"} if asked_after > BATCHES else set())
    assert model.training
