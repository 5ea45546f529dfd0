"""What the planner chooses, proposes and refuses."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oarlock_api.status import ResolvedPlan
from oarlock_api.training import Training
from oarlock_trainer.errors import ConfigurationError
from oarlock_trainer.plan.communication import fabric
from oarlock_trainer.plan.gpus import gpu
from oarlock_trainer.plan.memory import need
from oarlock_trainer.plan.parameters import Architecture
from oarlock_trainer.plan.planner import Gpus, Plan, choose, plan_for
from oarlock_trainer.plan.work import same_effective_batch, work_of

FLUX = Architecture()
TINY = Architecture(double_blocks=2, single_blocks=4, heads=4, head_width=16, text_width=32, pooled_width=32)
H100 = "NVIDIA H100 80GB HBM3"
H100_BYTES = 85_520_809_984
H200 = "NVIDIA H200"
H200_BYTES = 150_754_820_096
COMPILED = {"compile": {"mode": "Default"}}


def training(**fields: Any) -> Training:
    body: dict[str, Any] = {
        "model": {"family": "Flux1", "path": "/models/flux"},
        "steps": 10,
        "batchSize": 8,
        "data": {"datasets": [{"name": "photos", "source": {"path": "/data"}}]},
    }
    return Training.model_validate(body | fields)


def on_h100(*, nodes: int = 4, gpus: int = 8, **fields: Any) -> Plan:
    return plan_for(
        training(**fields), FLUX, world_size=nodes * gpus, local_world_size=gpus, gpu_memory_bytes=H100_BYTES,
        gpu_name=H100,
    )  # fmt: skip


def refused(**fields: Any) -> str:
    with pytest.raises(ConfigurationError) as caught:
        on_h100(**fields)
    return str(caught.value)


def test_the_default_job_on_four_nodes_recomputes_47_of_57_blocks_when_compiled() -> None:
    plan = on_h100(**COMPILED)
    assert (plan.zero_stage, plan.recomputed, plan.bucket_elements) == (1, 47, 500_000_000)
    assert plan.work.lean
    assert plan.speed is not None
    assert plan.speed.seconds == pytest.approx(4.9, abs=0.05)
    assert plan.proposal is not None
    assert (plan.proposal.work.batch.per_rank, plan.proposal.work.batch.accumulation) == (1, 8)
    assert (plan.proposal.zero_stage, plan.proposal.recomputed) == (2, 0)
    assert plan.proposal.work.batch.effective == plan.work.batch.effective == 256


def test_what_is_not_compiled_keeps_more_and_recomputes_more() -> None:
    assert on_h100().recomputed == 53


@pytest.mark.parametrize(("samples", "pixels", "free"), [(4, 1024, 27), (2, 1024, 57), (4, 512, 57), (8, 512, 43)])
def test_smaller_batches_and_pictures_leave_more_blocks_alone(samples: int, pixels: int, free: int) -> None:
    plan = on_h100(batchSize=samples, resolution=pixels, **COMPILED)
    assert 57 - plan.recomputed == pytest.approx(free, abs=1)


def test_stage_2_is_taken_where_gradients_are_accumulated_and_only_with_strategy_auto() -> None:
    accumulated = {"batchSize": 2, "gradientAccumulation": 4}
    assert on_h100(**accumulated, **COMPILED).zero_stage == 2
    named = on_h100(**accumulated, **COMPILED, engine={"strategy": "DeepSpeed", "zeroStage": 1})
    assert named.zero_stage == 1
    assert named.recomputed > 0


def test_stage_1_is_kept_where_a_slow_fabric_makes_every_exchange_expensive() -> None:
    job = training(batchSize=2, gradientAccumulation=4, **COMPILED)
    kind = gpu("H100")
    plan = choose(
        work_of(job, FLUX, ranks=32, ranks_per_node=8),
        job,
        Gpus(memory=kind.memory, kind=kind, fabric=fabric("1x100G", gpu=kind)),
    )
    assert plan.zero_stage == 1


@pytest.mark.parametrize(
    ("modes", "tuning", "pictures"),
    [
        (["Cache", "Cache"], {}, 0),
        (["Cache", "OnDemand"], {}, 4),
        (["OnTheFly", "Cache"], {"vaeBatchSize": 2}, 2),
    ],
)
def test_pictures_that_are_encoded_while_training_are_planned_for(
    modes: list[str], tuning: dict[str, int], pictures: int
) -> None:
    datasets = [
        {"name": f"d{number}", "source": {"path": "/data"}, "imageEmbeds": {"mode": mode}}
        for number, mode in enumerate(modes)
    ]
    plan = on_h100(data={"datasets": datasets, "tuning": tuning})
    assert plan.work.encoded == pictures
    assert (plan.memory.of("encoder") > 0) == (pictures > 0)
    assert plan.recomputed >= on_h100().recomputed


def test_blocks_are_lean_only_where_that_recomputes_less_than_without_and_the_job_leaves_it_open() -> None:
    assert not on_h100(**COMPILED, batchSize=1, gradientAccumulation=8).work.lean
    room = on_h100(**COMPILED, batchSize=2, gradientAccumulation=4)
    assert (room.work.lean, room.recomputed) == (True, 0)
    assert not on_h100().work.lean
    asked = on_h100(**COMPILED, activationCheckpointing={"mode": "Full"})
    assert not asked.work.lean
    assert need(room.work, recomputed=0).total < need(replace(room.work, lean=False), recomputed=0).total - 10e9
    assert "recomputed, of others what is pointwise" in room.words().replace("0 of 57 blocks ", "")


def test_nobodys_batch_is_changed() -> None:
    plan = on_h100(**COMPILED)
    assert (plan.work.samples, plan.work.accumulation) == (8, 1)


@pytest.mark.parametrize(
    ("mode", "blocks"),
    [({"mode": "Full"}, 57), ({"mode": "Partial", "percent": 93}, 54), ({"mode": "Partial", "percent": 99}, 57)],
)
def test_a_number_of_blocks_that_was_asked_for_is_kept(mode: dict[str, Any], blocks: int) -> None:
    assert on_h100(activationCheckpointing=mode).recomputed == blocks


JOBS = st.builds(
    lambda nodes, **fields: {"nodes": nodes, **fields},
    nodes=st.integers(1, 16),
    batchSize=st.integers(1, 16),
    gradientAccumulation=st.integers(1, 4),
    resolution=st.sampled_from([256, 512, 768, 1024, 1536]),
    method=st.sampled_from(["Full", "LoRA"]),
    compile=st.sampled_from([{"mode": "None"}, {"mode": "Default"}]),
    optimizer=st.sampled_from([{"name": "AdamW"}, {"name": "Lion"}, {"name": "AdamW8Bit"}]),
)


@given(job=JOBS)
def test_a_plan_fits_recomputes_no_block_in_vain_and_proposes_only_what_is_faster(job: dict[str, Any]) -> None:
    try:
        plan = on_h100(**job)
    except ConfigurationError as refusal:
        assert "does not fit" in str(refusal)  # noqa: PT017 - either is right, which one depends on the job
        return
    assert plan.memory.total <= 77e9
    assert plan.recomputed == 0 or need(plan.work, recomputed=plan.recomputed - 1).total > 76.9e9
    assert plan.speed is not None
    if plan.proposal:
        assert plan.proposal.speed is not None
        assert plan.proposal.speed.seconds < plan.speed.seconds
        assert plan.proposal.work.batch.effective == plan.work.batch.effective


def test_what_cannot_fit_is_refused_with_its_arithmetic_and_what_would_fit() -> None:
    words = refused(nodes=1, gpus=4)
    assert "99.0 GB are needed on each, 77.0 GB can be used (a model" in words
    assert "  optimizer       35.7   12 bytes of master weight and AdamW moments x 11.9 B / 4 GPUs" in words
    assert "  2 nodes (effective batch 64): 72.3 GB with 57 of 57 blocks recomputed" in words
    assert "  GPUs with more memory: H200, B200" in words


def test_no_recomputation_is_refused_where_it_does_not_fit_and_auto_is_named() -> None:
    words = refused(activationCheckpointing={"mode": "None"})
    assert "349.1 GB are needed" in words
    assert "  activationCheckpointing.mode Auto: 73.0 GB with 53 of 57 blocks recomputed" in words


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


def test_the_fields_bounds_bound_what_is_proposed() -> None:
    plan = on_h100(batchSize=1, gradientAccumulation=4096, resolution=256)
    assert plan.proposal is None or plan.proposal.work.accumulation <= 4096
    work = replace(plan.work, samples=4096, accumulation=4096)
    assert all(one.samples <= 4096 and one.accumulation <= 4096 for one in same_effective_batch(work))


def test_adapters_run_on_ddp_on_a_single_gpu() -> None:
    plan = on_h100(nodes=1, gpus=1, batchSize=1, method="LoRA")
    assert (plan.zero_stage, plan.recomputed) == (0, 0)
    assert plan.memory.of("optimizer") < 10**9


def test_on_the_cpu_nothing_is_refused_recomputed_or_timed() -> None:
    plan = plan_for(training(), FLUX, world_size=2, local_world_size=2, gpu_memory_bytes=None)
    assert (plan.recomputed, plan.speed, plan.proposal) == (0, None, None)


def test_a_gpu_of_an_unknown_type_is_planned_for_by_its_memory() -> None:
    plan = plan_for(
        training(), FLUX, world_size=32, local_world_size=8, gpu_memory_bytes=H100_BYTES, gpu_name="Matrox Mystique"
    )
    assert plan.recomputed == on_h100().recomputed
    assert plan.speed is None


def test_a_small_models_bucket_is_no_larger_than_the_model_and_no_smaller_than_its_largest_tensor() -> None:
    plan = plan_for(training(), TINY, world_size=2, local_world_size=2, gpu_memory_bytes=None)
    assert plan.bucket_elements == plan.work.parameters.trained
    assert plan_for(
        training(engine={"bucketElements": 2_000_000}), TINY, world_size=2, local_world_size=2, gpu_memory_bytes=None
    ).bucket_elements == 2_000_000  # fmt: skip


def test_the_largest_bucket_decides_about_memory() -> None:
    square = on_h100(**COMPILED)
    wider = plan_for(
        training(**COMPILED), FLUX, world_size=32, local_world_size=8, gpu_memory_bytes=H100_BYTES, image_tokens=4368
    )
    assert wider.recomputed > square.recomputed
    assert need(wider.work, recomputed=wider.recomputed) == wider.memory


def test_the_status_takes_a_plan_as_it_is() -> None:
    found = ResolvedPlan.model_validate(on_h100(**COMPILED).status())
    assert (found.effective_batch, found.zero_stage) == (256, 1)
    assert 76e9 < (found.memory_bytes or 0) <= 77e9
