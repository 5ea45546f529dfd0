"""What the planner chooses and proposes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from on_h100s import COMPILED, FLUX, H100_BYTES, on_h100, training

from oarlock_api.status import ResolvedPlan
from oarlock_trainer.models.flux.architecture import shaped
from oarlock_trainer.plan.communication import fabric
from oarlock_trainer.plan.gpus import gpu
from oarlock_trainer.plan.memory import need
from oarlock_trainer.plan.planner import Gpus, choose, plan_for
from oarlock_trainer.plan.work import Workload, same_effective_batch, work_of
from oarlock_trainer.runtime.errors import ConfigurationError

TINY = shaped(double_blocks=2, single_blocks=4, heads=4, head_width=16, text_width=32, pooled_width=32)


def test_the_default_job_on_four_nodes_recomputes_45_of_57_blocks_when_compiled() -> None:
    plan = on_h100(**COMPILED)
    assert (plan.zero_stage, plan.recomputed, plan.bucket_elements) == (1, 45, 500_000_000)
    assert plan.work.lean
    assert plan.speed is not None
    assert plan.speed.seconds == pytest.approx(4.9, abs=0.05)
    assert plan.proposal is not None
    assert (plan.proposal.work.batch.per_rank, plan.proposal.work.batch.accumulation) == (1, 8)
    assert (plan.proposal.zero_stage, plan.proposal.recomputed) == (2, 0)
    assert plan.proposal.work.batch.effective == plan.work.batch.effective == 256


def test_what_is_not_compiled_keeps_more_and_recomputes_more() -> None:
    assert on_h100().recomputed == 51


@pytest.mark.parametrize(("samples", "pixels", "free"), [(4, 1024, 33), (2, 1024, 57), (4, 512, 57), (8, 512, 49)])
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


def test_a_reference_is_as_many_tokens_again_and_one_more_picture() -> None:
    source = {"path": "/data"}
    edits = {"name": "edits", "source": source, "conditioning": {"kind": "Reference", "source": {"path": "/before"}}}
    kontext = {"model": {"family": "Flux1", "flavor": "Kontext", "path": "/m"}}

    def work(*datasets: dict[str, Any]) -> Workload:
        return work_of(training(**kontext, data={"datasets": datasets}), FLUX, ranks=8, ranks_per_node=8)

    photos = {"name": "photos", "source": source}
    assert (work(photos).image_tokens, work(photos).pictures) == (4096, 1)
    assert (work(edits).image_tokens, work(edits).pictures) == (8192, 2)
    small = edits | {"resolution": 512.0, "resolutionType": "PixelArea"}
    both = work(photos, small)
    assert (both.image_tokens, both.pictures) == (4096, 1), "the largest picture may be one without a reference"


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


def test_the_fields_bounds_bound_what_is_proposed() -> None:
    plan = on_h100(batchSize=1, gradientAccumulation=4096, resolution=256)
    assert plan.proposal is None or plan.proposal.work.accumulation <= 4096
    work = replace(plan.work, samples=4096, accumulation=4096)
    assert all(one.samples <= 4096 and one.accumulation <= 4096 for one in same_effective_batch(work))


def test_a_fixed_batch_stays_as_it_is_in_other_micro_batches_and_on_other_gpus() -> None:
    work = on_h100(nodes=3, batchSize=8, effectiveBatch=256).work
    assert (work.batch.effective, work.accumulation) == (256, 2)
    cuts = list(same_effective_batch(work))
    assert [(one.samples, one.accumulation) for one in cuts] == [(4, 3), (2, 6), (1, 11)]
    sizes = [work.on(nodes * 8, 8) for nodes in (1, 2, 4, 5)]
    assert [one and one.accumulation for one in sizes] == [4, 2, 1, None]
    assert {one.batch.effective for one in [*cuts, *sizes] if one} == {256}


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
