"""Has a rank's arithmetic be float32, and writes down what each step computes, which must be the same on any number of ranks.

A model of bfloat16 would round differences of the last bit up to ones that no tolerance tells from a mistake.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from oarlock_trainer.loop import train, trained_model
from oarlock_trainer.models.objective.loss import MicroBatch


def compute_in_float32() -> None:
    """The model's weights, and the texts that give the type of its inputs."""
    load, to = trained_model.load_model, MicroBatch.to

    def whole(*arguments: Any, **options: Any) -> Any:
        return load(*arguments, **options).float()

    def moved(batch: MicroBatch, device: torch.device) -> MicroBatch:
        there = to(batch, device)
        return replace(there, text=there.text.float(), pooled=there.pooled.float())

    trained_model.load_model = whole
    MicroBatch.to = moved  # type: ignore[method-assign]


def write_down(folder: Path) -> None:
    """A line for each sample that counts: its step and round, a digest of its picture, one of all that was drawn for it."""
    gradients = train._gradients

    def written(session: Any, batch: Any, step: int, *arguments: Any) -> Any:
        rank, round_ = session.ranks.rank_info.rank, session.job.round
        with (folder / f"{rank}.jsonl").open("a") as file:
            for micro_batch, weight in zip(batch.micro_batches, batch.weights, strict=True):
                for place in range(len(micro_batch.sigmas)) if weight else ():
                    picture = _digest(micro_batch.latents[place])
                    drawn = _digest(micro_batch.noise[place], micro_batch.sigmas[place], micro_batch.text[place])
                    told = {"step": step, "round": round_, "rank": rank, "picture": picture, "drawn": drawn}
                    file.write(json.dumps(told) + "\n")
        return gradients(session, batch, step, *arguments)

    train._gradients = written


def _digest(*tensors: torch.Tensor) -> str:
    return hashlib.sha256(b"".join(one.double().numpy().tobytes() for one in tensors)).hexdigest()
