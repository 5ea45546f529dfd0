"""Traffic and time of a step as a model: the published bounds of fabrics, and the step times that are aimed at."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oarlock_api.engine import Attention
from oarlock_api.weights import Lora
from oarlock_trainer.models.flux.family import FLUX1
from oarlock_trainer.plan.communication import NVLINK, Interconnect, assumed_fabric, fabric, gather_bytes, traffic
from oarlock_trainer.plan.gpus import gpu, gpu_of_device, larger, usable_bytes
from oarlock_trainer.plan.parameters import adapters, whole
from oarlock_trainer.plan.speed import expect
from oarlock_trainer.plan.work import Workload
from oarlock_trainer.runtime.errors import ConfigurationError

FLUX = FLUX1.published
FULL = Workload(family=FLUX1, shape=FLUX, parameters=whole(FLUX), ranks=32, ranks_per_node=8, samples=8, compiled=True)
H100 = gpu("H100")
RAILS = fabric("8x400G", gpu=H100)
CUDNN: dict[str, Any] = {"attention": Attention.CUDNN}


@pytest.mark.parametrize(
    ("name", "reduce", "gather", "both"),
    [
        (NVLINK, 0.11, 0.05, 0.16),
        ("8x400G", 0.12, 0.06, 0.19),
        ("8x200G", 0.25, 0.12, 0.37),
        ("1x400G", 1.0, 0.5, 1.5),
        ("1x200G", 2.1, 1.05, 3.1),
        ("1x100G", 4.2, 2.1, 6.3),
        ("1x25G", 16.5, 8.2, 24.7),
    ],
)
def test_seconds_of_a_stage_1_exchange_follow_the_table(name: str, reduce: float, gather: float, both: float) -> None:
    bandwidth = fabric(name, gpu=H100).bandwidth
    moved = traffic(FULL)
    assert moved.reduced / bandwidth == pytest.approx(reduce, rel=0.045)
    assert moved.gathered / bandwidth == pytest.approx(gather, rel=0.08)
    assert moved.total / bandwidth == pytest.approx(both, rel=0.03)


def test_stage_2_exchanges_after_every_micro_batch_and_stage_1_once() -> None:
    four = replace(FULL, accumulation=4)
    assert traffic(four) == traffic(FULL)
    assert traffic(replace(four, stage=2)).exchanges == 4
    assert traffic(replace(FULL, stage=2)).total == traffic(FULL).total


def test_stage_3_moves_weights_twice_and_gradients_once_a_micro_batch() -> None:
    weights = 2.0 * FULL.parameters.trained
    assert traffic(replace(FULL, stage=3)).total == pytest.approx(3 * gather_bytes(weights, ranks=32))


def test_adapters_alone_are_exchanged_where_they_alone_are_trained() -> None:
    lora = replace(FULL, parameters=adapters(FLUX, Lora(rank=16), FLUX1.presets), adapters=True, stage=0)
    assert traffic(lora).total < 0.02 * traffic(FULL).total


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_a_rank_alone_exchanges_nothing(stage: int) -> None:
    assert traffic(replace(FULL, ranks=1, stage=stage)).total == 0


@pytest.mark.parametrize(
    ("fields", "recomputed", "seconds", "utilization"),
    [
        ({"compiled": False, "attention": Attention.FLASH2}, 57, 6.0, 0.30),
        (CUDNN, 57, 4.6, 0.39),
        (CUDNN, 43, 4.3, 0.42),
        (CUDNN | {"samples": 2, "accumulation": 4, "stage": 2}, 0, 3.5, 0.52),
        (CUDNN | {"samples": 2, "accumulation": 4, "stage": 2, "fp8": True}, 0, 2.8, 0.65),
        (CUDNN | {"samples": 4, "image_tokens": 1024}, 0, 0.60, 0.43),
        (CUDNN | {"samples": 1, "image_tokens": 1024}, 0, 1 / 3.6, 0.23),
    ],
)
def test_step_times_that_are_aimed_at_come_out_of_the_model(
    fields: dict[str, Any], recomputed: int, seconds: float, utilization: float
) -> None:
    found = expect(replace(FULL, **fields), recomputed=recomputed, gpu=H100, fabric=RAILS)
    assert found.seconds == pytest.approx(seconds, rel=0.04)
    assert found.utilization(found.seconds) == pytest.approx(utilization, abs=0.025)


def test_what_lean_blocks_compute_once_more_costs_time_and_less_than_recomputing_them() -> None:
    def seconds(recomputed: int, **fields: Any) -> float:
        return expect(replace(FULL, **fields), recomputed=recomputed, gpu=H100, fabric=RAILS).seconds

    assert seconds(0) < seconds(0, lean=True) < seconds(57)


def test_attention_is_timed_as_the_kernel_that_auto_takes() -> None:
    times = {
        one: expect(replace(FULL, attention=one), recomputed=0, gpu=H100, fabric=RAILS).seconds for one in Attention
    }
    assert times[Attention.AUTO] == times[Attention.FLASH2] > times[Attention.CUDNN]


def test_no_step_is_told_that_no_hardware_could_do() -> None:
    found = expect(replace(FULL, fp8=False), recomputed=0, gpu=H100, fabric=RAILS)
    assert 0 < found.utilization(found.slow_seconds) < found.utilization(found.seconds) < 620 / 989


@pytest.mark.parametrize("name", ["A100-40GB", "A100-80GB", "H100", "H200", "B200"])
def test_every_known_gpu_has_a_speed(name: str) -> None:
    kind = gpu(name)
    found = expect(FULL, recomputed=0, gpu=kind, fabric=fabric(NVLINK, gpu=kind))
    assert 0.2 < found.utilization(found.seconds) < 620 / 989


def test_one_network_card_is_the_whole_step() -> None:
    slow = expect(FULL, recomputed=57, gpu=H100, fabric=fabric("1x25G", gpu=H100))
    assert slow.exposed > 2 * slow.compute


def test_without_overlap_the_whole_exchange_is_waited_for() -> None:
    waiting = expect(replace(FULL, overlap=False), recomputed=57, gpu=H100, fabric=RAILS)
    assert waiting.exposed == pytest.approx(traffic(FULL).total / RAILS.bandwidth)


WORKS = st.builds(
    lambda **fields: replace(FULL, **fields),
    stage=st.integers(0, 3),
    samples=st.integers(1, 16),
    accumulation=st.integers(1, 8),
    overlap=st.booleans(),
    compiled=st.booleans(),
)


@given(work=WORKS, bandwidth=st.floats(1e8, 1e12), recomputed=st.integers(0, 56))
def test_more_recomputed_blocks_never_take_less_time(work: Workload, bandwidth: float, recomputed: int) -> None:
    def seconds(blocks: int) -> float:
        return expect(work, recomputed=blocks, gpu=H100, fabric=Interconnect(name="any", bandwidth=bandwidth)).seconds

    assert seconds(recomputed + 1) >= seconds(recomputed) * (1 - 1e-9)


def test_a_node_alone_has_nvlink_and_several_have_a_card_for_each_gpu() -> None:
    assert assumed_fabric(nodes=1, gpus_per_node=8, gpu=H100).name == NVLINK
    assert assumed_fabric(nodes=4, gpus_per_node=4, gpu=H100) == Interconnect(name="4x400G", bandwidth=0.9 * 200e9)


@pytest.mark.parametrize("name", ["", "400G", "0x400G", "8x", "Ethernet"])
def test_what_is_no_fabric_is_told_what_one_is(name: str) -> None:
    with pytest.raises(ConfigurationError, match="8x400G"):
        fabric(name, gpu=H100)


def test_gpus_are_known_by_name_and_by_what_their_driver_says() -> None:
    assert gpu_of_device("NVIDIA H100 80GB HBM3") == H100
    assert gpu_of_device("NVIDIA A100-SXM4-40GB") == gpu("A100-40GB")
    assert gpu_of_device("Matrox Mystique") is None
    assert [one.name for one in larger(H100.memory)] == ["H200", "B200"]
    with pytest.raises(ConfigurationError, match="A100-40GB, A100-80GB, H100, H200, B200"):
        gpu("H1000")


@pytest.mark.parametrize(("shown", "usable"), [(85.5, 77.0), (150.75, 135.7), (42.5, 38.2)])
def test_some_of_the_memory_that_a_driver_shows_is_left_alone(shown: float, usable: float) -> None:
    assert usable_bytes(int(shown * 1e9)) / 1e9 == pytest.approx(usable, abs=0.1)
