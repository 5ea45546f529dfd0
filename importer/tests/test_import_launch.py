"""accelerate's file, its flags, and DeepSpeed's configuration."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Imported


def test_processes_without_a_file_are_gpus(
    imported: Callable[..., Imported], simple: dict[str, Any], folder: dict[str, Any]
) -> None:
    job = imported(simple | {"num_processes": 16, "num_machines": 2, "dynamo_backend": "inductor"}, folder)
    assert (job.spec["nodes"], job.spec["gpusPerNode"]) == (2, 8)
    assert job.spec["training"]["compile"]["mode"] == "Default"


def test_the_file_outranks_the_options_and_flags_outrank_the_file(
    imported: Callable[..., Imported], simple: dict[str, Any], folder: dict[str, Any]
) -> None:
    options = simple | {
        "num_processes": 2,
        "mixed_precision": "no",
        "accelerate_extra_args": "--num_processes 8 --use_deepspeed --zero_stage=2 --deepspeed_multinode_launcher standard",
    }
    job = imported(options, folder, accelerate={"num_processes": 4, "mixed_precision": "fp8"})
    assert job.spec["gpusPerNode"] == 8
    assert job.spec["training"]["precision"] == "FP8"
    assert job.spec["training"]["engine"] == {"strategy": "DeepSpeed", "zeroStage": 2, "offloadOptimizer": "None"}
    assert "outranks" in job.ignored["num_processes"]
    assert "outranks" in job.ignored["mixed_precision"]


def test_processes_have_to_be_spread_evenly(
    imported: Callable[..., Imported], simple: dict[str, Any], folder: dict[str, Any]
) -> None:
    job = imported(simple, folder, accelerate={"num_machines": 3, "num_processes": 8})
    assert "8 processes cannot be spread evenly over 3 machines" in job.refused["num_processes"]


def test_the_cpu_has_no_gpus(imported: Callable[..., Imported], simple: dict[str, Any], folder: dict[str, Any]) -> None:
    assert imported(simple, folder, accelerate={"use_cpu": True}).spec["gpusPerNode"] == 0


@pytest.mark.parametrize(
    ("file", "refused"),
    [
        ({"distributed_type": "FSDP"}, "distributed_type"),
        ({"fsdp_config": {"fsdp_version": 2}}, "fsdp_config"),
        ({"mixed_precision": "fp16"}, "mixed_precision"),
        ({"deepspeed_config": {"zero_stage": 0}}, "zero_stage"),
        ({"deepspeed_config": {"zero_stage": 3, "offload_param_device": "cpu"}}, "offload_param_device"),
        ({"deepspeed_config": {"offload_optimizer_device": "nvme"}}, "offload_optimizer_device"),
        ({"deepspeed_config": {"optimizer": {"type": "OneBitAdam"}}}, "optimizer.type"),
        ({"deepspeed_config": {"scheduler": {"type": "OneCycle"}}}, "scheduler.type"),
        ({"deepspeed_config": {"gradient_accumulation_steps": 1.5}}, "gradient_accumulation_steps"),
        ({"deepspeed_config": {"gradient_clipping": "much"}}, "gradient_clipping"),
        ({"deepspeed_config": {"deepspeed_config_file": "gone.json"}}, "deepspeed_config"),
        ({"dynamo_config": "INDUCTOR"}, "dynamo_config"),
        ({"dynamo_config": {"dynamo_backend": "TENSORRT"}}, "dynamo_backend"),
        ({"dynamo_config": {"dynamo_backend": "INDUCTOR", "dynamo_mode": "reduce-overhead"}}, "dynamo_mode"),
    ],
)
def test_what_is_not_here_is_refused(
    file: dict[str, Any],
    refused: str,
    imported: Callable[..., Imported],
    simple: dict[str, Any],
    folder: dict[str, Any],
) -> None:
    assert list(imported(simple, folder, accelerate=file).refused) == [refused]


DEEPSPEED = {
    "bf16": {"enabled": True},
    "gradient_accumulation_steps": "auto",
    "gradient_clipping": "auto",
    "train_micro_batch_size_per_gpu": "auto",
    "zero_optimization": {
        "stage": 2,
        "offload_optimizer": {"device": "cpu", "pin_memory": True},
        "overlap_comm": True,
        "reduce_bucket_size": 5e8,
    },
    "optimizer": {"type": "Lion", "params": {"lr": 2e-5, "betas": [0.95, 0.98], "weight_decay": "auto"}},
    "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_num_steps": 20, "warmup_type": "linear"}},
}


@pytest.mark.parametrize("way", ["inline", "file", "file of accelerate"])
def test_the_own_configuration_of_deepspeed_decides(
    way: str, imported: Callable[..., Imported], simple: dict[str, Any], folder: dict[str, Any]
) -> None:
    options = simple | {"gradient_accumulation_steps": 4, "adam_weight_decay": 0.3, "max_grad_norm": 5}
    files = {"ds.json": json.dumps(DEEPSPEED)}
    if way == "inline":
        job = imported(options | {"deepspeed_config": json.dumps(DEEPSPEED)}, folder)
    elif way == "file":
        job = imported(options | {"deepspeed_config": "ds.json"}, folder, files=files)
    else:
        file = {"deepspeed_config": {"deepspeed_config_file": "ds.json"}}
        job = imported(options, folder, accelerate=file, files=files)
    training = job.spec["training"]
    assert training["engine"] == {
        "strategy": "DeepSpeed",
        "zeroStage": 2,
        "offloadOptimizer": "CPU",
        "overlapCommunication": True,
        "bucketElements": 500_000_000,
    }
    assert training["gradientAccumulation"] == 4
    assert training["gradientClipping"] == {"method": "None"}
    assert training["optimizer"] == {
        "name": "Lion",
        "learningRate": 2e-5,
        "betas": [0.95, 0.98],
        "weightDecay": 0.3,
        "weightDecayOn": "All",
        "schedule": {"name": "Linear", "warmupSteps": 20, "endLearningRate": 0},
    }
    assert "scheduler.params.warmup_num_steps" not in job.differing


def test_zero_stage_2_is_what_accelerate_takes_where_none_is_said(
    imported: Callable[..., Imported], simple: dict[str, Any], folder: dict[str, Any]
) -> None:
    job = imported(simple, folder, accelerate={"distributed_type": "DEEPSPEED"})
    assert job.spec["training"]["engine"]["zeroStage"] == 2


def test_a_file_that_is_none_of_accelerate_is_refused(
    imported: Callable[..., Imported], simple: dict[str, Any], folder: dict[str, Any]
) -> None:
    assert "content" in imported(simple, folder, accelerate=["num_machines"]).refused
