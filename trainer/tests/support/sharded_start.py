"""Two ranks that start to train with weights in shares, and tell what each of them held on the way.

    sharded_start.py STORE MODEL

Rank 0 prints a list of JSON, one entry for each rank: the most whole elements that it had while the model was loaded, those
of the largest parameter, the bytes of weights that it read and those of them all, whether the shares together are the
weights of the files, and which attention a warm-up saw. Then the model is loaded anew, and the storage fails rank 0 in the
middle: each rank prints a line of JSON, [its number, the exit code that it ends with].
"""

from __future__ import annotations

import errno
import json
import os
import sys
from pathlib import Path
from typing import Any, Self

from oarlock_trainer.ranks import preload

preload.settle_environment()
from oarlock_trainer.runtime.uncompiled import import_torch  # noqa: E402

import_torch()
import safetensors  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from safetensors import safe_open  # noqa: E402
from whole_weights import whole_weights  # noqa: E402

from oarlock_api.contract.exit_codes import ExitCode  # noqa: E402
from oarlock_api.contract.job_file import JobFile  # noqa: E402
from oarlock_api.engine import Attention  # noqa: E402
from oarlock_api.training import Training  # noqa: E402
from oarlock_trainer.engine.initialize import sharder  # noqa: E402
from oarlock_trainer.engine.process_group import RankGroup  # noqa: E402
from oarlock_trainer.engine.sharded import elements  # noqa: E402
from oarlock_trainer.loop.setup import Setup  # noqa: E402
from oarlock_trainer.loop.trained_model import load_model, make_engine  # noqa: E402
from oarlock_trainer.models import transformer  # noqa: E402
from oarlock_trainer.models.flux.family import FLUX1  # noqa: E402
from oarlock_trainer.models.warm_up import Shape, warm_up  # noqa: E402
from oarlock_trainer.plan.parameters import read_architecture  # noqa: E402
from oarlock_trainer.plan.planner import plan_for  # noqa: E402
from oarlock_trainer.runtime.errors import PeerLostError, TrainingEnd, lost_a_peer  # noqa: E402
from oarlock_trainer.runtime.job import Job, RankInfo  # noqa: E402

ANSWERS = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # what ranks print is no answer
RANKS = 2


def setup_of(rank_info: RankInfo, model: Path) -> Setup:
    """The setup of a job, as far as its engine needs it."""
    body = {
        "model": {"family": "Flux1", "path": str(model)},
        "steps": 2,
        "batchSize": 1,
        "engine": {"strategy": "DeepSpeed", "zeroStage": 3},
        "data": {"datasets": [{"name": "photos", "source": {"path": "/data"}}]},
    }
    file = JobFile(
        job="flux", namespace="default", job_uid="uid", attempt=1, nodes=1, gpus_per_node=0, output_directory="/output",
        training=body,
    )  # fmt: skip
    job = Job(file=file, training=Training.model_validate(body), rank_info=rank_info, simulate_gpus=False)
    rest: Any = dict.fromkeys(
        ("locations", "hub", "fence", "copies", "resumed", "memory", "ring", "batch", "prepared", "validation")
    )
    return Setup(job=job, ranks=RankGroup(rank_info, torch.device("cpu"), None), **rest)


class Counted:
    """A file of safetensors; `bytes` are those of all tensors that were read of any, up to `most`: then reading fails."""

    bytes = 0
    most = sys.maxsize

    def __init__(self, *given: Any, **named: Any) -> None:
        self._opened = safe_open(*given, **named)

    def __enter__(self) -> Self:
        self._file = self._opened.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.__exit__(None, None, None)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def get_tensor(self, name: str) -> torch.Tensor:
        tensor: torch.Tensor = self._file.get_tensor(name)
        Counted.bytes += tensor.nbytes
        if Counted.bytes > Counted.most:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return tensor


def start(rank_info: RankInfo, model: Path) -> dict[str, Any]:
    held: list[torch.nn.Parameter] = []
    most: list[int] = []
    load = transformer.load

    def watched(*given: Any, placed: Any, **named: Any) -> Any:
        def seen(parameter: torch.nn.Parameter) -> None:
            held.append(parameter)
            most.append(sum(one.numel() for one in held))
            placed(parameter)

        return load(*given, placed=seen, **named)

    transformer.load = watched  # type: ignore[assignment]
    safetensors.safe_open = Counted  # type: ignore[assignment, misc]
    setup = setup_of(rank_info, model)
    training = setup.job.training
    shape = read_architecture(model, FLUX1)
    plan = plan_for(training, shape, world_size=RANKS, local_world_size=RANKS, gpu_memory_bytes=None)
    loaded = make_engine(setup, plan)[0].weights
    read = Counted.bytes
    whole = {name: weight.clone() for name, weight in whole_weights(loaded)}
    return {
        "most": max(most),
        "largest": max(map(elements, held)),
        "read": read,
        "whole": sum(map(elements, held)) * 2,
        "same": all(torch.equal(whole[name], weight) for name, weight in load(model).named_parameters()),
        "attention": warm_up(loaded, [Shape(4, 4, 3)], training, kernel=Attention.SDPA),
    }


def fail(rank_info: RankInfo, model: Path, readable: int) -> ExitCode:
    """Load the model where no more than so many bytes of it can be read; returns how this rank ends."""
    Counted.most = Counted.bytes + readable
    setup = setup_of(rank_info, model)
    try:
        load_model(setup, sharder(setup.job.training, rank_info))
    except TrainingEnd as end:
        return end.code
    except RuntimeError as error:
        if not lost_a_peer(error):
            raise
        return PeerLostError.code
    return ExitCode.DONE


def rank(number: int, store: str, model: Path) -> None:
    os.environ["LOCAL_RANK"] = str(number)  # DeepSpeed insists on it
    dist.init_process_group("gloo", store=dist.FileStore(store, RANKS), rank=number, world_size=RANKS)
    rank_info = RankInfo(rank=number, local_rank=number, world_size=RANKS, local_world_size=RANKS)
    told = start(rank_info, model)
    every: list[Any] = [None] * RANKS
    dist.all_gather_object(every, told)
    if number == 0:
        ANSWERS.write(json.dumps(every) + "\n")
    ANSWERS.write(json.dumps([number, fail(rank_info, model, told["whole"] // 2)]) + "\n")
    ANSWERS.flush()


if __name__ == "__main__":
    child = os.fork()
    rank(0 if child == 0 else 1, sys.argv[1], Path(sys.argv[2]))  # rank 0 is gone as soon as it ends
    os._exit(0 if child == 0 else os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0)
