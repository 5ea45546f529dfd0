"""What the planner refuses, with its arithmetic, and what it offers instead."""

from __future__ import annotations

import re
from typing import Any

import pytest
from on_h100s import COMPILED, FLUX, H200, H200_BYTES, on_h100, training

from oarlock_trainer.plan.planner import Plan, plan_for
from oarlock_trainer.runtime.errors import ConfigurationError


def refused(**fields: Any) -> str:
    with pytest.raises(ConfigurationError) as caught:
        on_h100(**fields)
    return str(caught.value)


def test_what_cannot_fit_is_refused_with_its_arithmetic_and_what_would_fit() -> None:
    words = refused(nodes=1, gpus=4)
    assert "98.8 GB are needed on each, 77.0 GB can be used (a model" in words
    assert "  optimizer       35.7   12 bytes of master weight and AdamW moments x 11.9 B / 4 GPUs" in words
    assert "  2 nodes (effective batch 64): 76.2 GB with 56 of 57 blocks recomputed" in words
    assert "  GPUs with more memory: H200, B200" in words


def test_no_recomputation_is_refused_where_it_does_not_fit_and_auto_is_named() -> None:
    words = refused(activationCheckpointing={"mode": "None"})
    assert "302.9 GB are needed" in words
    assert "  activationCheckpointing.mode Auto: 76.6 GB with 51 of 57 blocks recomputed" in words


@pytest.mark.parametrize(
    ("asked", "offered"),
    [
        ({}, "batchSize 1 with gradientAccumulation 8 (the same effective batch): "),
        (
            {"nodes": 1, "resolution": 1536},
            "batchSize 4 with gradientAccumulation 2 (the same effective batch) and activationCheckpointing.mode Auto: ",
        ),
    ],
)
def test_a_smaller_batch_is_offered_as_the_job_has_it_or_else_with_auto_and_the_planner_takes_it(
    asked: dict[str, Any], offered: str
) -> None:
    words = refused(**asked, activationCheckpointing={"mode": "None"})
    (line,) = [line.strip() for line in words.splitlines() if line.strip().startswith("batchSize")]
    assert line.startswith(offered)
    samples, accumulation = (int(number) for number in re.findall(r"(?:batchSize|Accumulation) (\d+)", line))
    plan = on_h100(
        **asked, batchSize=samples, gradientAccumulation=accumulation,
        activationCheckpointing={"mode": "Auto" if "mode Auto" in line else "None"},
    )  # fmt: skip
    assert plan.work.batch.effective == samples * accumulation * plan.work.ranks == 8 * plan.work.ranks


def test_a_refusal_names_the_settings_that_stand_in_the_way() -> None:
    words = refused(nodes=1, batchSize=4, engine={"overlapCommunication": False, "strategy": "DeepSpeed"})
    for remedy in (
        "engine.overlapCommunication true",
        "engine.zeroStage 2",
        "2 nodes (effective batch 64)",
        "optimizer.name Lion",
    ):
        assert f"{remedy}: " in words


@pytest.mark.parametrize("batch", [1, 2, 4, 8])
def test_every_named_remedy_does_fit(batch: int) -> None:
    words = refused(nodes=1, gpus=4, batchSize=batch, activationCheckpointing={"mode": "None"})
    offers = [line for line in words.splitlines() if " GB with " in line]
    assert offers
    for offer in offers:
        assert float(offer.split(": ")[1].split(" GB")[0]) <= 77.0


ZERO_3 = "engine.strategy DeepSpeed and engine.zeroStage 3"
LION = "optimizer.name Lion"
OFFLOAD = "engine.offloadOptimizer CPU (slow)"
PICTURES = {"everySteps": 9, "prompts": [{"name": "boat", "prompt": "a boat"}]}


@pytest.mark.parametrize(
    ("gpus", "asked", "withheld"),
    [
        pytest.param(4, COMPILED, {ZERO_3}, id="no compiled code in stage 3"),
        pytest.param(4, {"validation": PICTURES}, {ZERO_3}, id="no pictures in stage 3"),
        pytest.param(4, {"optimizer": {"options": {"eps": 1e-6}}}, {LION}, id="an option that Lion has not"),
        pytest.param(2, {"optimizer": {"name": "AdamW8Bit"}}, {OFFLOAD, LION}, id="no AdamW8Bit on the CPU"),
        pytest.param(4, {"engine": {"strategy": "DeepSpeed"}}, {"method LoRA"}, id="no LoRA on DeepSpeed"),
    ],
)
def test_no_change_is_offered_that_does_not_go_with_the_rest_of_the_job(
    gpus: int, asked: dict[str, Any], withheld: set[str]
) -> None:
    offered = {line.strip().partition(": ")[0] for line in refused(nodes=1, gpus=4, batchSize=1).splitlines()}
    assert offered > {ZERO_3, LION, OFFLOAD, "method LoRA"}
    words = refused(nodes=1, gpus=gpus, batchSize=1, **asked)
    assert withheld.isdisjoint(line.strip().partition(": ")[0] for line in words.splitlines())
    assert "Any of these makes it fit" in words


def test_a_remedy_of_two_settings_names_both() -> None:
    words = refused(nodes=1, gpus=2, batchSize=1, engine={"strategy": "DeepSpeed", "zeroStage": 2})
    assert "  method LoRA, without engine.strategy and engine.zeroStage: " in words


def test_a_run_that_spreads_nothing_is_offered_the_fewest_gpus_on_which_it_fits_once_it_does() -> None:
    asked = {"batchSize": 4, "activationCheckpointing": {"mode": "Full"}}
    words = refused(nodes=1, gpus=1, **asked, engine={"strategy": "DDP"})
    assert "  engine.strategy Auto on 1 node of 8 GPUs (effective batch 32): " in words
    refused(nodes=1, gpus=4, **asked)
    assert on_h100(nodes=1, gpus=8, **asked).work.batch.effective == 32
    enough = refused(nodes=1, gpus=8, **asked, engine={"strategy": "DDP"})
    assert "engine.zeroStage 1: " in enough
    assert "strategy Auto on" not in enough


def test_a_whole_model_on_one_gpu_is_offered_weights_of_bfloat16_alone_where_they_fit() -> None:
    def alone(gpu_memory_bytes: int, **fields: Any) -> Plan:
        asked = training(batchSize=1, **fields)
        return plan_for(asked, FLUX, world_size=1, local_world_size=1, gpu_memory_bytes=gpu_memory_bytes, gpu_name=H200)

    offer = "optimizer.name AdamWBF16 and engine.strategy DDP: "
    with pytest.raises(ConfigurationError, match=offer):
        alone(H200_BYTES)
    assert offer not in refused(nodes=1, gpus=1, batchSize=1)  # 95 GB
    taken = alone(H200_BYTES, optimizer={"name": "AdamWBF16"}, engine={"strategy": "DDP"})
    assert taken.recomputed <= FLUX.blocks


def test_what_no_single_change_mends_is_said_to_be_so() -> None:
    assert "No single change makes it fit" in refused(nodes=1, gpus=1, batchSize=67)
