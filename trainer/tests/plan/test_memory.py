"""Memory of a GPU as a model: the published arithmetic of ZeRO for 12 billion parameters, and what must always hold."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oarlock_api.optimization import EmaDevice, OptimizerName
from oarlock_api.weights import Lora
from oarlock_trainer.engine import adamw_bf16
from oarlock_trainer.models.flux.architecture import shaped
from oarlock_trainer.models.flux.family import FLUX1
from oarlock_trainer.plan.activations import kept_bytes, width_bytes, widths, working_bytes
from oarlock_trainer.plan.memory import GB, host_bytes, need
from oarlock_trainer.plan.parameters import adapters, whole
from oarlock_trainer.plan.work import Workload

FLUX = FLUX1.published
FULL = Workload(family=FLUX1, shape=FLUX, parameters=whole(FLUX), ranks_per_node=8)
LORA = replace(FULL, parameters=adapters(FLUX, Lora(rank=16), FLUX1.presets), adapters=True, stage=0)

STATES = ("weights", "gradients", "buckets", "optimizer", "update", "EMA")


def states(work: Workload) -> float:
    """GB of what does not depend on the pictures."""
    memory = need(work, recomputed=0)
    return sum(memory.of(name) for name in STATES) / GB


@pytest.mark.parametrize(
    ("ranks", "no_overlap", "overlap", "accumulated", "stage_2"),
    [(8, 73.4, 53.6, 74.4, 50.6), (16, 61.5, 40.2, 62.5, 38.7), (32, 55.6, 33.5, 56.6, 32.8), (64, 52.6, 30.2, 53.6, 29.8)],
)  # fmt: skip
def test_weights_gradients_and_states_follow_the_table(
    ranks: int, no_overlap: float, overlap: float, accumulated: float, stage_2: float
) -> None:
    work = replace(FULL, ranks=ranks)
    assert states(replace(work, overlap=False)) == pytest.approx(no_overlap, abs=0.06)
    assert states(work) == pytest.approx(overlap, abs=0.06)
    assert states(replace(work, accumulation=4)) == pytest.approx(accumulated, abs=0.06)
    assert states(replace(work, stage=2)) == states(replace(work, stage=2, accumulation=4))
    assert states(replace(work, stage=2)) == pytest.approx(stage_2, abs=0.06)


def test_a_block_keeps_the_tokens_that_go_through_it_alone() -> None:
    double, single = FLUX.kinds
    apart = (replace(double, text=False), replace(single, image=False))
    for recomputed, kept in (
        (0, (widths(double.kept, compiled=True), widths(single.kept, compiled=True))),
        (double.number + single.number, (1, 1)),
    ):
        found = kept_bytes(apart, recomputed=recomputed, token_bytes=1000, compiled=True, text_share=0.25)
        assert found == round(1000 * (double.number * kept[0] * 0.75 + single.number * kept[1] * 0.25))


def test_stage_2_adds_micro_batches_up_in_float32_which_is_the_updates_gradient() -> None:
    first, second = (need(replace(FULL, ranks=32, stage=stage), recomputed=0) for stage in (1, 2))
    assert second.of("gradients") == pytest.approx(2 * first.of("gradients"), rel=1e-6)
    assert second.of("update") == 0 < first.of("update")
    offloaded = need(replace(FULL, ranks=32, stage=2, offload=True), recomputed=0)
    assert offloaded.of("gradients") == offloaded.of("update") == 0


@pytest.mark.parametrize(
    ("ranks", "adamw", "lion", "eight_bits"),
    [(8, 17.9, 11.9, 8.9), (16, 8.9, 6.0, 4.5), (32, 4.5, 3.0, 2.2), (64, 2.2, 1.5, 1.1)],
)
def test_optimizer_states_are_spread_over_the_ranks(ranks: int, adamw: float, lion: float, eight_bits: float) -> None:
    sizes = {OptimizerName.ADAMW: adamw, OptimizerName.LION: lion, OptimizerName.ADAMW_8BIT: eight_bits}
    for name, expected in sizes.items():
        work = replace(FULL, ranks=ranks, optimizer=name)
        assert need(work, recomputed=0).of("optimizer") / GB == pytest.approx(expected, abs=0.06)


@pytest.mark.parametrize(
    ("tokens", "inputs_alone", "compiled", "lean", "eager"), [(4608, 1.61, 30.3, 18.4, 33), (1536, 0.54, 10.1, 6.1, 11)]
)
def test_activations_of_a_picture_follow_the_table(
    tokens: int, inputs_alone: float, compiled: float, lean: float, eager: float
) -> None:
    one = width_bytes(tokens=tokens, samples=1, width=3072)

    def kept(recomputed: int, **how: bool) -> float:
        return kept_bytes(FLUX.kinds, recomputed=recomputed, token_bytes=one, **how) / GB

    assert kept(57, compiled=True) == pytest.approx(inputs_alone, abs=0.006)
    assert kept(0, compiled=True) == pytest.approx(compiled, abs=0.06)
    assert kept(0, compiled=True, lean=True) == pytest.approx(lean, abs=0.06)
    assert kept(0, compiled=False) == pytest.approx(eager, abs=0.5)
    assert working_bytes(FLUX.kinds, token_bytes=one, compiled=True) == pytest.approx(21.1 * one)


def test_the_first_blocks_are_recomputed_and_all_double_ones_come_first() -> None:
    kinds = shaped(double_blocks=2, single_blocks=2).kinds
    sizes = [kept_bytes(kinds, recomputed=number, token_bytes=10, compiled=True) for number in range(5)]
    assert [more - less for more, less in pairwise(sizes)] == [191, 191, 171, 171]


def test_adapters_cost_little_beside_their_frozen_base() -> None:
    assert need(LORA, recomputed=0).of("weights") / GB == pytest.approx(23.8, abs=0.01)
    assert states(LORA) < 25.5
    assert states(replace(LORA, frozen_bytes=0.5625)) < 8.5


def test_prodigy_keeps_20_bytes_of_a_parameter_on_each_gpu_and_copies_a_share_of_them() -> None:
    many = LORA.parameters.trained
    work = replace(LORA, ranks=8, optimizer=OptimizerName.PRODIGY)
    assert need(work, recomputed=0).of("optimizer") == 20 * many
    assert host_bytes(work) == 20 * many // 8


def test_weights_of_bfloat16_without_masters_take_8_bytes_of_a_parameter_with_gradients_and_moments() -> None:
    work = replace(FULL, stage=0, ranks=1, optimizer=OptimizerName.ADAMW_BF16)
    memory = need(work, recomputed=0)
    assert sum(memory.of(name) for name in ("weights", "gradients", "optimizer")) == 8 * FULL.parameters.trained
    assert memory.of("update") == adamw_bf16.PIECE * adamw_bf16.TEMPORARY_BYTES
    by_name = {one.name: one.arithmetic for one in memory.components}
    assert by_name["optimizer"] == "4 bytes of AdamWBF16 moments x 11.9 B"
    assert host_bytes(work) == 12 * FULL.parameters.trained  # checkpoints hold float32
    adapted = replace(LORA, optimizer=OptimizerName.ADAMW_BF16)  # adapters are float32
    assert need(adapted, recomputed=0).of("optimizer") == 8 * LORA.parameters.trained


def test_a_schedule_free_average_is_made_for_a_checkpoint_and_saved_with_it() -> None:
    many = LORA.parameters.trained
    work = replace(LORA, ranks=4, optimizer=OptimizerName.ADAMW_SCHEDULE_FREE)
    assert need(work, recomputed=0).of("optimizer") == 12 * many
    assert need(work, recomputed=0).of("saving") == 4 * many // 4
    assert host_bytes(work) == 16 * many // 4


def test_states_in_the_nodes_memory_leave_the_gpu() -> None:
    work = replace(FULL, ranks=8, offload=True)
    assert need(work, recomputed=57).of("optimizer") == 0
    copied = 17.85  # what checkpoints are written from
    assert host_bytes(work) / GB == pytest.approx(17.85 + 5.95 + copied, abs=0.01)
    assert host_bytes(replace(work, offload=False)) / GB == pytest.approx(copied, abs=0.01)


def test_a_moving_average_is_spread_like_the_master_weights() -> None:
    work = replace(FULL, ranks=32, ema=EmaDevice.GPU)
    assert need(work, recomputed=0).of("EMA") / GB == pytest.approx(1.5, abs=0.02)
    assert need(replace(work, ema=EmaDevice.CPU), recomputed=0).of("EMA") == 0
    average = need(work, recomputed=0).of("EMA")
    assert host_bytes(replace(work, ema=EmaDevice.CPU)) == pytest.approx(host_bytes(work) + 2 * average, abs=1)
    assert host_bytes(work) == pytest.approx(host_bytes(replace(work, ema=None)) + average, abs=1)  # in the copy, too


def test_moments_of_8_bits_are_float32_while_a_checkpoint_is_copied() -> None:
    small = replace(FULL, ranks=8, optimizer=OptimizerName.ADAMW_8BIT)
    assert need(small, recomputed=0).of("saving") / GB == pytest.approx(11.9, abs=0.01)
    adapted = replace(LORA, ranks=8, optimizer=OptimizerName.ADAMW_8BIT)  # each rank copies its part, of what all have
    assert need(adapted, recomputed=0).of("saving") == LORA.parameters.trained
    assert need(replace(small, optimizer=OptimizerName.ADAMW), recomputed=0).of("saving") == 0


def test_what_is_encoded_while_training_takes_the_vae_and_no_more_pictures_than_a_batch_has() -> None:
    work = replace(FULL, ranks=32, samples=8, encoded=4)
    assert need(work, recomputed=0).of("encoder") / GB == pytest.approx(0.17 + 4 * 1.34, abs=0.01)
    assert need(replace(work, samples=1), recomputed=0).of("encoder") / GB == pytest.approx(0.17 + 1.34, abs=0.01)
    assert need(replace(work, encoded=0), recomputed=0).of("encoder") == 0


def test_a_bucket_that_holds_parts_of_several_ranks_is_copied_before_it_is_sent() -> None:
    """As DeepSpeed's allreduce_bucket flattens the slices: of one rank there is one slice, which needs no copy."""
    for stage, overlap, buckets in ((1, True, 3), (1, False, 2), (2, False, 3), (3, True, 2), (0, True, 0)):
        many = need(replace(FULL, ranks=32, stage=stage, overlap=overlap), recomputed=0).of("buckets")
        assert many == buckets * 2 * FULL.bucket_elements
    assert need(FULL, recomputed=0).of("buckets") == 2 * 2 * FULL.bucket_elements


def test_every_component_says_its_arithmetic() -> None:
    by_name = {one.name: one.arithmetic for one in need(replace(FULL, ranks=32), recomputed=57).components}
    assert by_name["optimizer"] == "12 bytes of master weight and AdamW moments x 11.9 B / 32 GPUs"
    assert by_name["gradients"] == "2 bytes x 11.9 B / 32 GPUs"


WORKS = st.builds(
    lambda **fields: replace(FULL, **fields),
    stage=st.integers(0, 3),
    ranks=st.integers(2, 512),
    samples=st.integers(1, 32),
    accumulation=st.integers(1, 8),
    overlap=st.booleans(),
    offload=st.booleans(),
    compiled=st.booleans(),
    optimizer=st.sampled_from(OptimizerName),
    encoded=st.integers(0, 8),
    ema=st.sampled_from([None, *EmaDevice]),
)


@given(work=WORKS, more=st.integers(1, 512), recomputed=st.integers(0, 57))
def test_more_ranks_never_need_more_memory(work: Workload, more: int, recomputed: int) -> None:
    wider = replace(work, ranks=work.ranks + more)
    assert need(wider, recomputed=recomputed).total <= need(work, recomputed=recomputed).total


@given(work=WORKS, recomputed=st.integers(0, 56))
def test_more_recomputed_blocks_never_need_more_memory(work: Workload, recomputed: int) -> None:
    assert need(work, recomputed=recomputed + 1).total <= need(work, recomputed=recomputed).total


@given(work=WORKS, field=st.sampled_from(["samples", "image_tokens", "text_tokens"]))
def test_more_of_the_pictures_always_needs_more_memory(work: Workload, field: str) -> None:
    grown: dict[str, Any] = {field: getattr(work, field) + 1}
    assert need(replace(work, **grown), recomputed=57).total > need(work, recomputed=57).total
