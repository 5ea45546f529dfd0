"""Ranks for tests of engines: forks a group, lets it train a small model in each of the ways it is told, and tells what came.

    python engine_ranks.py STORE RANKS < cases.json

A case is {"training": fields of spec.training, "steps": n, "poison": step}; the answer to each, a line of JSON from rank 0:
losses, norms, updates and skipped, the weights' and the masters' checksums.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from oarlock_trainer import warm

warm.settle_environment()
from oarlock_trainer.uncompiled import import_torch  # noqa: E402

import_torch()
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402

from oarlock_api.training import Training  # noqa: E402
from oarlock_trainer.engine.initialize import initialize  # noqa: E402
from oarlock_trainer.engine.process_group import Ranks  # noqa: E402
from oarlock_trainer.engine.whole_weights import whole_weights  # noqa: E402
from oarlock_trainer.errors import TrainingEnd  # noqa: E402
from oarlock_trainer.job import Place  # noqa: E402

GLOBAL_BATCH = 16
WIDTH = 32


class Model(nn.Module):
    """Layers of very different sizes: none is a multiple of another, or of the number of ranks."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(WIDTH, 131), nn.Linear(131, 67), nn.Linear(67, WIDTH)])
        self.scale = nn.Parameter(torch.ones(WIDTH))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            inputs = inputs + layer(inputs).tanh() if layer.in_features == layer.out_features else layer(inputs).tanh()
        return inputs * self.scale


def training(fields: dict[str, Any]) -> Training:
    body = {
        "model": {"family": "Flux1", "path": "/models/flux"},
        "steps": 10,
        "optimizer": {"learningRate": 1e-2},
        "data": {"datasets": [{"name": "photos", "source": {"path": "/data"}}]},
    }
    return Training.model_validate(body | fields)


def run(case: dict[str, Any], ranks: Ranks) -> dict[str, Any]:
    place = ranks.place
    settings = training(case["training"])
    torch.manual_seed(0)
    engine = initialize(Model().to(torch.bfloat16), settings, place)
    generator = torch.Generator().manual_seed(1)
    told: dict[str, Any] = {"losses": [], "norms": [], "started": checksum(engine), "updates": []}
    each = GLOBAL_BATCH // place.world_size // settings.gradient_accumulation
    target = torch.randn(WIDTH, generator=generator)
    for step in range(case["steps"]):
        inputs = torch.randn(GLOBAL_BATCH, WIDTH, generator=generator)
        mine = inputs.split(GLOBAL_BATCH // place.world_size)[place.rank]
        losses = []
        for micro in mine.split(each):
            outputs = engine.model(micro.to(torch.bfloat16)).float()
            loss = ((outputs - micro.roll(1, dims=1) * target) ** 2).mean()
            if step == case.get("poison"):
                loss = loss * float("nan")
            engine.backward(loss)
            engine.step(settings.optimizer.learning_rate)
            losses.append(float(loss.detach()))
        (total,) = ranks.sum([sum(losses) / len(losses)])
        told["losses"].append(total / place.world_size)
        told["norms"].append(engine.gradient_norm())
    return told | {"ended": checksum(engine), "skipped": engine.skipped}


def checksum(engine: Any) -> float:
    """Of the model's weights, whole."""
    with torch.no_grad():
        return float(sum(weight.double().abs().sum() for _, weight in whole_weights(engine.weights)))


def rank(number: int, store: str, ranks: int, cases: list[dict[str, Any]]) -> None:
    os.environ["LOCAL_RANK"] = str(number)  # DeepSpeed insists on it
    dist.init_process_group("gloo", store=dist.FileStore(store, ranks), rank=number, world_size=ranks)
    group = Ranks(
        Place(rank=number, local_rank=number, world_size=ranks, local_world_size=ranks), torch.device("cpu"), None
    )
    for case in cases:
        try:
            told = run(case, group)
        except TrainingEnd as end:
            told = {"end": str(end)}
        if number == 0:
            sys.stdout.write(json.dumps(told) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    store, ranks = sys.argv[1], int(sys.argv[2])
    cases = json.load(sys.stdin)
    children = []
    for number in range(1, ranks):
        child = os.fork()
        if child == 0:
            rank(number, store, ranks, cases)
            os._exit(0)
        children.append(child)
    rank(0, store, ranks, cases)
    os._exit(max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0 for child in children) if children else 0)
