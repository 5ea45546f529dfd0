"""Whether the imported job fits into its GPUs: told with the report, before anybody applies it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def one_process(simple: dict[str, Any]) -> dict[str, Any]:
    """Full-rank training as SimpleTuner's own defaults start it: one process, weights and moments in bfloat16."""
    return simple | {"optimizer": "adamw_bf16"}


def last_task(imported: Any) -> str:
    assert imported.text
    return str(imported.report.tasks[-1])


def test_a_job_that_cannot_fit_is_told_with_its_memory_and_with_what_makes_it_fit(
    imported: Callable[..., Any], one_process: dict[str, Any], folder: dict[str, Any]
) -> None:
    said = last_task(imported(one_process, folder))
    assert said.startswith(
        "change the job, it does not fit into its GPUs: 247.3 GB of each are needed, 77.0 GB can be used"
    )
    assert "1 x 1 H100, which are assumed" in said
    assert "optimizer 142.8" in said
    assert "engine.strategy Auto on 1 node of 8 GPUs (effective batch 32): " in said
    assert "method LoRA, without engine.strategy: " in said


@pytest.mark.parametrize(("processes", "told"), [(4, "change the job"), (8, "see that the GPUs are as large")])
def test_the_gpus_that_are_offered_are_the_fewest_that_do(
    imported: Callable[..., Any], one_process: dict[str, Any], folder: dict[str, Any], processes: int, told: str
) -> None:
    spread = {"distributed_type": "DEEPSPEED", "num_processes": processes, "deepspeed_config": {"zero_stage": 1}}
    said = last_task(imported(one_process, folder, accelerate=spread))
    assert said.startswith(told)
    assert f"1 x {processes} H100" in said


def test_a_job_that_keeps_its_activations_is_offered_gpus_together_with_recomputing_them(
    imported: Callable[..., Any], one_process: dict[str, Any], folder: dict[str, Any]
) -> None:
    said = last_task(imported(one_process | {"gradient_checkpointing": False, "train_batch_size": 8}, folder))
    assert re.search(r"strategy Auto on 1 node of 8 GPUs .* and activationCheckpointing.mode Auto: ", said)


def test_adapters_that_fit_are_told_with_what_they_need(
    imported: Callable[..., Any], simple: dict[str, Any], folder: dict[str, Any]
) -> None:
    said = last_task(imported(simple | {"model_type": "lora"}, folder))
    assert re.match(r"see that the GPUs are as large: \d+\.\d GB of each are needed, 77.0 GB can be used", said)


def test_a_job_without_gpus_has_no_memory_to_see_to(
    imported: Callable[..., Any], simple: dict[str, Any], folder: dict[str, Any]
) -> None:
    found = imported(simple, folder, accelerate={"use_cpu": True})
    assert found.spec["gpusPerNode"] == 0
    assert not [one for one in found.report.tasks if "GPU" in one]
