"""What of the engine only a GPU can show: kernels beyond 2^31 elements, how often a step waits for the whole device."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from pod_environment import of_pod

from oarlock_trainer.ranks import preload

preload.settle_environment()
import torch  # noqa: E402 - reads the environment that was just settled

from oarlock_trainer.engine.adamw_8bit import make_adamw_8bit  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]
_BEYOND = 2**31 + 4096
_STEPS, _MICRO_BATCHES = 3, 4
_COUNTS = f"""
import json, os
from oarlock_trainer.ranks import preload
preload.settle_environment()
import torch, torch.distributed as dist
from deepspeed.accelerator import get_accelerator
from oarlock_api.training import Training
from oarlock_trainer.engine.initialize import initialize
from oarlock_trainer.runtime.job import RankInfo

os.environ |= {{"LOCAL_RANK": "0", "RANK": "0", "WORLD_SIZE": "1"}}
dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
training = Training.model_validate({{
    "model": {{"family": "Flux1", "path": "/"}}, "steps": 1, "gradientAccumulation": {_MICRO_BATCHES},
    "engine": {{"strategy": "DeepSpeed"}}, "data": {{"datasets": [{{"name": "d", "source": {{"path": "/"}}}}]}},
}})
model = torch.nn.Linear(1024, 1024).to("cuda", torch.bfloat16)
engine = initialize(model, training, RankInfo(rank=0, local_rank=0, world_size=1, local_world_size=1))
accelerator, waits = get_accelerator(), []
theirs = accelerator.synchronize
accelerator.synchronize = lambda *given: (waits.append(1), theirs(*given))
for _ in range({_STEPS}):
    for _ in range({_MICRO_BATCHES}):
        engine.backward(engine.model(torch.randn(8, 1024, device="cuda", dtype=torch.bfloat16)).float().square().mean())
        engine.step(1e-4)
print(json.dumps({{"waits": len(waits), "device": accelerator.device_name()}}))
"""


def test_8_bit_adamw_updates_what_lies_beyond_2_to_the_31_elements() -> None:
    pytest.importorskip("bitsandbytes")  # another Python than the project's may lack it
    weights = torch.nn.Parameter(torch.zeros(_BEYOND, device="cuda", dtype=torch.bfloat16))
    weights.grad = torch.ones_like(weights)
    groups = [{"params": [weights]}]
    make_adamw_8bit(groups, lr=0.5, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0).step()
    assert float(weights[0]) < 0.0
    assert float(weights[-1]) == float(weights[0])
    assert bool((weights[2**31 - 8 :] == weights[0]).all())


def test_a_step_waits_for_the_whole_gpu_no_more_than_once_for_each_micro_batch(
    record_property: Callable[[str, object], None],
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _COUNTS], env=of_pod(gpus=1), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    record_property("waits in a step of four micro-batches", found["waits"] / _STEPS)
    assert found["device"] == "cuda"
    assert found["waits"] <= _STEPS * _MICRO_BATCHES
