"""A repository as people publish it, a store that tells what is read of it, and the job that wants its model."""

from __future__ import annotations

import shutil
from functools import partial
from typing import TYPE_CHECKING

from saving import RANK_INFO

from oarlock_api.contract.job_file import JobFile
from oarlock_api.training import Training
from oarlock_trainer.models import needed_files
from oarlock_trainer.models.flux.family import FLUX1
from oarlock_trainer.models.source_kinds import StoreSource
from oarlock_trainer.runtime.job import Job
from oarlock_trainer.storage.local import LocalFiles

if TYPE_CHECKING:
    from pathlib import Path

FIELD = "training.model.s3"


def nothing(*_: int) -> None:
    """Nobody waits and nobody listens."""


class Counting(LocalFiles):
    """A store that tells what is read of it."""

    def __init__(self, place: Path) -> None:
        super().__init__(place, field=FIELD)
        self.reads: list[tuple[str, int]] = []

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        self.reads.append((name, start))
        return super().read(name, start, length)


def publish(model: Path, place: Path) -> Path:
    """A model with the copies of its weights that people publish beside it, and that nobody here reads."""
    shutil.copytree(model, place)
    for extra in (
        "flux1-dev.safetensors",
        "README.md",
        "transformer/diffusion_pytorch_model.bin",
        "transformer/diffusion_pytorch_model.fp16.safetensors",
        "text_encoder/model.onnx",
        "text_encoder_2/flax_model.msgpack",
    ):
        (place / extra).write_bytes(b"not wanted")
    return place


def names_below(place: Path) -> set[str]:
    return {path.relative_to(place).as_posix() for path in place.rglob("*") if path.is_file()}


def source_of(place: Path, scratch: Path) -> tuple[StoreSource, Counting]:
    files = Counting(place)
    return StoreSource(FIELD, files, partial(needed_files.of_model, family=FLUX1), scratch), files


def job_of(uid: str, output: Path, *, attempt: int = 1) -> Job:
    training = Training.model_validate(
        {
            "model": {"family": "Flux1", "hub": {"repo": "o/m"}}, "steps": 1,
            "data": {"datasets": [{"name": "d", "source": {"path": "/d"}}]},
        }
    )  # fmt: skip
    file = JobFile(
        job="flux", namespace="default", job_uid=uid, attempt=attempt, nodes=1, gpus_per_node=0,
        output_directory=str(output), training={},
    )  # fmt: skip
    return Job(file=file, training=training, rank_info=RANK_INFO, simulate_gpus=False)
