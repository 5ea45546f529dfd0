"""Ranks for tests of engines: forks a group, lets it train a small model in each of the ways it is told, and tells what came.

    python engine_ranks.py STORE RANKS < cases.json

A case is {"training": fields of spec.training, "steps": n, "poison": step, "gradients": of every element, by micro-batch};
rank 0 answers each with a line of JSON: losses and norms of the steps, rates and largest gradients of the updates as the
optimizer saw them, checksums of the weights before and after the engine was made and at the end, counted and skipped updates,
and how often DeepSpeed waited for the whole device meanwhile.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from oarlock_trainer.ranks import preload

preload.settle_environment()
from oarlock_trainer.runtime.uncompiled import import_torch  # noqa: E402

import_torch()
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from deepspeed.accelerator import get_accelerator  # noqa: E402
from torch import nn  # noqa: E402
from torch.optim.optimizer import register_optimizer_step_post_hook  # noqa: E402
from whole_weights import whole_weights  # noqa: E402

from oarlock_api.training import Training  # noqa: E402
from oarlock_trainer.engine.initialize import initialize  # noqa: E402
from oarlock_trainer.engine.learning_rate import learning_rate  # noqa: E402
from oarlock_trainer.engine.process_group import RankGroup  # noqa: E402
from oarlock_trainer.runtime.errors import TrainingEnd  # noqa: E402
from oarlock_trainer.runtime.job import RankInfo  # noqa: E402

ANSWERS = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # what ranks print is no answer
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


def run(case: dict[str, Any], ranks: RankGroup) -> dict[str, Any]:
    rank_info, steps = ranks.rank_info, case["steps"]
    settings = training(case["training"])
    torch.manual_seed(0)
    model = Model().to(torch.bfloat16)
    told: dict[str, Any] = {"losses": [], "norms": [], "rates": [], "largest": [], "before": checksum(model)}
    counts = []

    def note(optimizer: torch.optim.Optimizer, _args: object, _kwargs: object) -> None:
        updated = [(one, group["lr"]) for group in optimizer.param_groups for one in group["params"]]
        told["rates"].append(updated[0][1])
        told["largest"].append(max(float(one.grad.abs().max()) for one, _ in updated))
        counts[:] = [int(optimizer.state[one]["step"]) for one, _ in updated]

    watching = register_optimizer_step_post_hook(note)
    engine = initialize(model, settings, rank_info)
    told["made"] = checksum(engine.weights)
    waits = count_waits()
    generator = torch.Generator().manual_seed(1)
    target = torch.randn(WIDTH, generator=generator)
    for step in range(steps):
        inputs = torch.randn(GLOBAL_BATCH, WIDTH, generator=generator)
        mine = inputs.split(GLOBAL_BATCH // rank_info.world_size)[rank_info.rank]
        losses = []
        for number, micro in enumerate(mine.chunk(settings.gradient_accumulation)):
            outputs = engine.model(micro.to(torch.bfloat16)).float()
            loss = ((outputs - micro.roll(1, dims=1) * target) ** 2).mean()
            if gradients := case.get("gradients"):  # every element's, before it is divided by the accumulation
                loss = 0.0 * loss + gradients[number] * sum(one.float().sum() for one in engine.weights.parameters())
            if step == case.get("poison") and rank_info.rank == rank_info.world_size - 1:
                loss = loss * float("nan")
            engine.backward(loss)
            engine.step(learning_rate(settings.optimizer, step, steps))
            losses.append(float(loss.detach()))
        (total,) = ranks.sum([sum(losses) / len(losses)])
        told["losses"].append(total / rank_info.world_size)
        told["norms"].append(engine.gradient_norm())
    watching.remove()
    told["waits"] = len(waits)
    return told | {"ended": checksum(engine.weights), "counted": max(counts), "skipped": engine.skipped}


def count_waits() -> list[int]:
    """A list that grows whenever DeepSpeed waits for all that the device has been given."""
    found: list[int] = []
    accelerator = get_accelerator()
    accelerator.synchronize = lambda *_: found.append(1)
    return found


def checksum(model: nn.Module) -> float:
    """Of its whole weights."""
    return sum(float(weight.double().abs().sum()) for _, weight in whole_weights(model))


def rank(number: int, store: str, ranks: int, cases: list[dict[str, Any]]) -> None:
    os.environ["LOCAL_RANK"] = str(number)  # DeepSpeed insists on it
    dist.init_process_group("gloo", store=dist.FileStore(store, ranks), rank=number, world_size=ranks)
    group = RankGroup(
        RankInfo(rank=number, local_rank=number, world_size=ranks, local_world_size=ranks), torch.device("cpu"), None
    )
    for case in cases:
        try:
            told = run(case, group)
        except TrainingEnd as end:
            told = {"end": str(end)}
        if number == 0:
            ANSWERS.write(json.dumps(told) + "\n")
            ANSWERS.flush()


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
