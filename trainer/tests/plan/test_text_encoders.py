"""What captions cost by the model: the encoders' published sizes, and where they have room."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from oarlock_api.data import TextEmbedsMode
from oarlock_api.training import Training
from oarlock_trainer.models.flux.family import FLUX1
from oarlock_trainer.plan import text_encoders
from oarlock_trainer.plan.memory import host_bytes, need
from oarlock_trainer.plan.planner import Plan, plan_for
from oarlock_trainer.plan.text_encoders import Home, costs
from oarlock_trainer.plan.work import Workload, text_homes
from oarlock_trainer.ranks import preload

H100, T5_BYTES = 85_500_000_000, 2 * 4_762_310_656


def planned(mode: str, *, memory: int = H100, **fields: Any) -> Plan:
    body = {
        "model": {"family": "Flux1", "path": "/models/flux"}, "steps": 100, "batchSize": 2,
        "data": {"textEmbedsMode": mode, "datasets": [{"name": "photos", "source": {"path": "/data"}}]},
    } | fields  # fmt: skip
    return plan_for(
        Training.model_validate(body), FLUX1.published, world_size=32, local_world_size=8, gpu_memory_bytes=memory,
        gpu_name="NVIDIA H100 80GB HBM3",
    )  # fmt: skip


def test_the_sizes_are_those_of_the_encoders_themselves() -> None:
    preload.settle_environment()
    import torch  # noqa: PLC0415 - reads the environment that was just settled
    from torch.utils.flop_counter import FlopCounterMode  # noqa: PLC0415
    from transformers import CLIPTextConfig, CLIPTextModel, T5Config, T5EncoderModel  # noqa: PLC0415

    def count(model: torch.nn.Module) -> int:
        return sum(weight.numel() for weight in model.parameters())

    xxl = T5Config(
        d_model=4096, d_kv=64, d_ff=10240, num_layers=24, num_heads=64, feed_forward_proj="gated-gelu", vocab_size=32128
    )
    large = CLIPTextConfig(hidden_size=768, intermediate_size=3072, num_hidden_layers=12, num_attention_heads=12)
    with torch.device("meta"):
        t5, clip = T5EncoderModel(xxl), CLIPTextModel(large)
        with FlopCounterMode(display=False) as counted, torch.no_grad():
            t5(torch.zeros(1, 512, dtype=torch.long))
    assert 2 * count(t5) == T5_BYTES
    work = text_encoders.gpu_bytes(FLUX1.texts, Home.GPU, captions=0, tokens=512)
    assert work == 2 * (count(t5) + count(clip))
    assert text_encoders.flops(FLUX1.texts, 512) == pytest.approx(counted.get_total_flops(), rel=0.01)


def test_cached_captions_take_nothing_of_a_gpu_while_training() -> None:
    plan = planned("Cache")
    assert plan.work.text_home is Home.NONE
    assert plan.memory.of("captions") == 0


def test_encoders_that_have_room_stay_on_the_gpu_and_cost_a_few_percent_of_a_step() -> None:
    lora = {"method": "LoRA", "lora": {"rank": 16}, "batchSize": 1}
    cached, live = planned("Cache", **lora), planned("OnTheFly", **lora)
    assert live.work.text_home is Home.GPU
    assert live.memory.of("captions") >= T5_BYTES
    assert cached.speed
    assert live.speed
    assert 1.0 < live.speed.seconds / cached.speed.seconds < 1.1


def test_encoders_without_room_stay_in_the_nodes_memory_and_the_job_still_fits() -> None:
    lora = {"method": "LoRA", "lora": {"rank": 16}, "batchSize": 1}
    whole = planned("OnTheFly", **lora)
    small = planned("OnTheFly", memory=38_000_000_000, **lora)
    assert small.work.text_home is Home.HOST
    assert small.memory.of("captions") < 2_000_000_000
    assert host_bytes(small.work) - host_bytes(whole.work) == T5_BYTES


def test_every_rank_counts_what_it_encodes_at_once_and_no_more_than_its_samples() -> None:
    work = planned("OnTheFly").work
    one, four, many = (need(replace(work, samples=samples), recomputed=0).of("captions") for samples in (1, 4, 16))
    assert one < four == many


def test_a_job_that_caches_has_one_home_and_one_that_does_not_has_two() -> None:
    def homes(work: Workload) -> list[Home]:
        return [one.text_home for one in text_homes(work)]

    assert homes(planned("Cache").work) == [Home.NONE]
    assert homes(replace(planned("OnTheFly").work, text_home=Home.GPU)) == [Home.GPU, Home.HOST]


def test_caching_costs_bytes_and_work_once_and_encoding_now_costs_work_each_time() -> None:
    ways = costs(FLUX1.texts, distinct=10_000_000, drawn=12_800_000, encoded=FLUX1.encoded)
    cached, live = ways[TextEmbedsMode.CACHE], ways[TextEmbedsMode.ON_THE_FLY]
    assert cached.stored == pytest.approx(42e12, rel=0.01)
    assert live.stored == 0
    assert live.flops / cached.flops == pytest.approx(1.28)
    assert cached.flops == pytest.approx(48.4e18, rel=0.01)
