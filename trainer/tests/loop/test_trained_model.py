"""What accelerate is told of ZeRO is what runs; steps are planned and warmed up for the longest text that they may have."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from oarlock_api.training import Training
from oarlock_trainer.loop.trained_model import tell_accelerate, text_tokens
from oarlock_trainer.models.flux.family import FLUX1
from oarlock_trainer.plan.planner import plan_for

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, {"ACCELERATE_DEEPSPEED_ZERO_STAGE": "1"}),
        ({"engine": {"strategy": "DeepSpeed", "zeroStage": 3}}, {"ACCELERATE_DEEPSPEED_ZERO_STAGE": "3"}),
        ({"method": "LoRA"}, {}),
    ],
)
def test_accelerates_variable_has_the_stage_of_the_plan(fields: dict[str, Any], said: dict[str, str]) -> None:
    data = {"datasets": [{"name": "photos", "source": {"path": "/data"}}]}
    body = {"model": {"family": "Flux1", "path": "/m"}, "steps": 1, "data": data} | fields
    plan = plan_for(
        Training.model_validate(body), FLUX1.published, world_size=8, local_world_size=8, gpu_memory_bytes=None
    )
    environment: dict[str, str] = {}
    tell_accelerate(plan, environment)
    assert environment == said


def test_a_stage_that_the_planner_chose_is_told() -> None:
    data = {"datasets": [{"name": "photos", "source": {"path": "/data"}}]}
    body = {"model": {"family": "Flux1", "path": "/m"}, "steps": 1, "data": data, "gradientAccumulation": 4}
    plan = plan_for(
        Training.model_validate(body | {"batchSize": 2, "compile": {"mode": "Default"}}),
        FLUX1.published,
        world_size=32,
        local_world_size=8,
        gpu_memory_bytes=85_520_809_984,
        gpu_name="NVIDIA H100 80GB HBM3",
    )
    environment: dict[str, str] = {}
    tell_accelerate(plan, environment)
    assert environment == {"ACCELERATE_DEEPSPEED_ZERO_STAGE": str(plan.status()["zeroStage"])}


class Cached:
    """Embeddings of which the empty caption's has one token without padding."""

    def __init__(self, tokens: int) -> None:
        self._tokens = tokens

    def read(self, _number: int) -> tuple[None, tuple[int, int, int]]:
        return None, (self._tokens, 4096, 768)


@pytest.mark.parametrize(
    ("flavor", "masked", "texts", "wanted"),
    [
        ("Dev", False, Cached(512), 512),
        ("Dev", True, Cached(1), 512),
        ("Dev", False, None, 512),
        ("Schnell", True, Cached(1), 256),
        ("Schnell", False, None, 256),
    ],
)
def test_a_step_is_planned_for_the_longest_text_that_it_may_have(
    tmp_path: Path, *, flavor: str, masked: bool, texts: Cached | None, wanted: int
) -> None:
    data = {"datasets": [{"name": "photos", "source": {"path": "/data"}}]}
    model = {"family": "Flux1", "flavor": flavor, "path": str(tmp_path)}
    (tmp_path / "tokenizer_2").mkdir()
    (tmp_path / "tokenizer_2/tokenizer_config.json").write_text(json.dumps({"model_max_length": 512}))
    training = Training.model_validate(
        {"model": model, "steps": 1, "data": data, "objective": {"attentionMask": masked}}
    )
    setup: Any = SimpleNamespace(
        job=SimpleNamespace(training=training), prepared=SimpleNamespace(texts=texts, empty_text=0)
    )
    assert text_tokens(setup) == wanted
