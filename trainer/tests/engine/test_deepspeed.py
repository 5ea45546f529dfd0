"""DeepSpeed's configuration holds none of its traps, and what it cannot do is said before anything is loaded."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from oarlock_api.optimization import Optimizer
from oarlock_api.training import Training
from oarlock_local.pytest_tiers import quick_first
from oarlock_trainer.engine import deepspeed
from oarlock_trainer.engine.deepspeed import configuration
from oarlock_trainer.engine.host_copy import HostCopy
from oarlock_trainer.engine.learning_rate import learning_rate
from oarlock_trainer.runtime.errors import ConfigurationError
from oarlock_trainer.runtime.job import RankInfo

if TYPE_CHECKING:
    from pathlib import Path

    from forked import Forks
    from gang import Gang


def training(**fields: Any) -> Training:
    body = {
        "model": {"family": "Flux1", "path": "/models/flux"},
        "steps": 10,
        "data": {"datasets": [{"name": "photos", "source": {"path": "/data"}}]},
    }
    return Training.model_validate(body | fields)


def test_the_plain_configuration_is_the_measured_one() -> None:
    found = configuration(training(batchSize=2, gradientAccumulation=4), world_size=32)
    zero = found.pop("zero_optimization")
    assert found == {
        "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4, "train_batch_size": 256,
        "gradient_clipping": 1.0, "bf16": {"enabled": True}, "steps_per_print": 2**31, "wall_clock_breakdown": False,
        "timers": {"throughput": {"enabled": False}},
    }  # fmt: skip
    assert zero == {
        "stage": 1, "overlap_comm": True, "contiguous_gradients": True, "reduce_scatter": True,
        "reduce_bucket_size": 500_000_000, "allgather_bucket_size": 500_000_000, "round_robin_gradients": False,
    }  # fmt: skip


@pytest.mark.parametrize("method", ["None", "Value"])
def test_deepspeed_clips_nothing_where_the_job_does_not_ask_for_its_norm(method: str) -> None:
    found = configuration(training(gradientClipping={"method": method, "max": 0.5}), world_size=8)
    assert found["gradient_clipping"] == 0.0


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_no_value_is_left_to_deepspeed_and_no_type_takes_the_path_with_float32_gradients(stage: int) -> None:
    engine = {"strategy": "DeepSpeed", "zeroStage": stage, "overlapCommunication": False, "offloadOptimizer": "CPU"}
    found = configuration(training(engine=engine), world_size=8)
    assert found["zero_optimization"]["stage"] == stage
    assert found["zero_optimization"]["overlap_comm"] is False
    assert found["zero_optimization"]["offload_optimizer"]["device"] == "cpu"
    assert "auto" not in json.dumps(found)
    assert not {"data_types", "communication_data_type", "fp16", "optimizer", "scheduler"} & found.keys()


@pytest.mark.parametrize(("stage", "types"), [(1, None), (2, {"grad_accum_dtype": "fp32"}), (3, None)])
def test_micro_batches_are_added_up_in_float32_where_that_is_kept_for_a_rank_s_share_alone(
    stage: int, types: dict[str, str] | None
) -> None:
    engine = {"strategy": "DeepSpeed", "zeroStage": stage}
    assert configuration(training(engine=engine), world_size=8).get("data_types") == types


def test_the_norm_is_on_its_way_to_the_host_before_the_update(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    class Copied(HostCopy):
        def __init__(self, value: torch.Tensor) -> None:
            asked.append("norm sent")
            super().__init__(value)

    monkeypatch.setattr(deepspeed, "HostCopy", Copied)
    weight = nn.Parameter(torch.ones(2))
    weight.grad = torch.ones(2)
    optimizer, norm = torch.optim.SGD([weight], lr=0.1), torch.tensor(3.0)
    zero = SimpleNamespace(optimizer=optimizer, param_groups=optimizer.param_groups, _global_grad_norm=norm)
    optimizer.register_step_post_hook(lambda *_: asked.append("updated"))

    def step() -> None:
        optimizer.step()
        optimizer.step()  # a sub-group of stage 3 each

    theirs = SimpleNamespace(optimizer=zero, step=step, get_global_grad_norm=lambda: norm)
    engine = deepspeed.DeepSpeedEngine(theirs, RankInfo(rank=0, local_rank=0, world_size=1, local_world_size=1))
    engine.step(0.1)
    assert asked == ["norm sent", "updated", "updated"]
    assert engine.gradient_norm() == 3.0


def test_gathered_buckets_are_even_as_deepspeed_insists() -> None:
    engine = {"strategy": "DeepSpeed", "bucketElements": 60_000_001}
    zero = configuration(training(engine=engine), world_size=8)["zero_optimization"]
    assert (zero["reduce_bucket_size"], zero["allgather_bucket_size"]) == (60_000_001, 60_000_000)


def test_a_bucket_that_the_largest_tensor_does_not_fit_into_is_refused_with_both_sizes() -> None:
    model = nn.Linear(1001, 1000, bias=False, device="meta")
    wanted = training(engine={"strategy": "DeepSpeed", "bucketElements": 1_000_000})
    with pytest.raises(
        ConfigurationError, match="bucketElements is 1000000, and the model's largest tensor has 1001000"
    ):
        deepspeed.initialize(model, wanted, RankInfo(rank=0, local_rank=0, world_size=1, local_world_size=1))


_CHECK = """
import json, sys
from oarlock_api.training import Training
from oarlock_trainer.engine import deepspeed
from oarlock_trainer.runtime.errors import ConfigurationError
try:
    deepspeed.check(Training.model_validate_json(sys.argv[1]))
except ConfigurationError as error:
    sys.exit(str(error))
"""


_OPERATORS: list[tuple[dict[str, Any], str]] = [
    ({}, ""),
    ({"optimizer": {"name": "Lion"}}, ""),
    ({"engine": {"offloadOptimizer": "CPU"}}, "cpu_adam"),
    ({"engine": {"offloadOptimizer": "CPU"}, "optimizer": {"name": "Lion"}}, "cpu_lion"),
    ({"optimizer": {"name": "Lion", "options": {"fused": True}}}, "fused_lion"),
]
"""Fields of a job, and the operator of DeepSpeed's that it needs."""


@pytest.mark.parametrize(("fields", "operator"), quick_first(_OPERATORS, 3))
def test_an_operator_without_a_compiler_for_it_ends_before_weights_are_read_and_says_what_helps(
    forks: Forks, fields: dict[str, Any], operator: str, tmp_path: Path
) -> None:
    wanted = training(**fields).model_dump_json(by_alias=True, exclude_none=True)
    done = forks(_CHECK, wanted, environment={"PATH": str(tmp_path), "TORCH_EXTENSIONS_DIR": str(tmp_path)})
    if not operator:
        assert done.returncode == 0, done.stderr
    else:
        assert f"needs DeepSpeed's operator {operator}, which this image does not hold" in done.stderr
        assert f"built with DS_BUILD_{operator.upper()}=1" in done.stderr


SCHEDULE = {"name": "Polynomial", "power": 2.0, "warmupSteps": 2, "endLearningRate": 1e-5}


@pytest.mark.deep
@pytest.mark.parametrize(("ranks", "name"), [(1, "AdamW"), (2, "Lion"), (4, "AdamW8Bit")])
def test_a_run_on_any_number_of_ranks_reports_the_formulas_rate_and_a_norm_for_every_update(
    gang: Gang, tmp_path: Path, ranks: int, name: str
) -> None:
    optimizer = {"name": name, "learningRate": 1e-3, "schedule": SCHEDULE}
    clipping = {"method": "Value", "max": 0.01}
    fields = {"steps": 6, "batchSize": 1, "checkpoint": {}, "optimizer": optimizer, "gradientClipping": clipping}
    run = gang.run(tmp_path, gang.training(**fields), ranks=ranks)
    assert set(run.codes.values()) == {0}, gang.log()
    every = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    lines = [line for line in every if "loss" in line]
    expected = [learning_rate(Optimizer.model_validate(optimizer), step, 6) for step in range(6)]
    assert [line["learningRate"] for line in lines] == pytest.approx(expected, rel=1e-6)
    assert all(line["gradientNorm"] > 0 for line in lines)


@pytest.mark.deep
@pytest.mark.parametrize("name", ["Lion", "AdamW8Bit"])
def test_a_run_that_was_asked_to_leave_goes_on_with_the_losses_that_it_would_have_had(
    gang: Gang, tmp_path: Path, name: str
) -> None:
    def leave(event: dict[str, Any]) -> None:
        if event["event"] == "step" and event["step"] == 2:
            gang.ask_to_leave()

    optimizer = {"name": name, "learningRate": 1e-3, "weightDecayOn": "Matrices"}
    objective = {"timesteps": "Beta", "betaAlpha": 3.0, "minNoise": 0.1, "maxNoise": 0.9, "weighting": "CosMap"}
    training = gang.training(checkpoint={}, optimizer=optimizer, objective=objective)
    whole = gang.run(tmp_path / "whole", training)
    gang.run(tmp_path / "left", training, on_event=leave)
    resumed = gang.run(tmp_path / "left", training, attempt=2)
    assert resumed.codes == {0: 0, 1: 0}, gang.log()
    assert 0 < len(resumed.losses) < len(whole.losses)
    assert resumed.losses == {step: whole.losses[step] for step in resumed.losses}


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("name", ["AdamW", "Lion"])
@pytest.mark.parametrize("fields", [{}, {"zeroStage": 2}, {"zeroStage": 3}, {"offloadOptimizer": "CPU"}])
def test_on_a_gpu_a_run_trains_with_every_stage_and_with_offloading(
    gpu_gang: Gang, tmp_path: Path, fields: dict[str, Any], name: str
) -> None:
    engine, optimizer = {"strategy": "DeepSpeed"} | fields, {"name": name, "learningRate": 1e-4}
    settings = gpu_gang.training(steps=4, checkpoint={}, engine=engine, optimizer=optimizer)
    run = gpu_gang.run(tmp_path, settings, ranks=1, gpus_per_node=1)
    assert run.codes == {0: 0}, gpu_gang.log()
    assert len(run.losses) == 4
