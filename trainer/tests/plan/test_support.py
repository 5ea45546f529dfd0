"""Nothing that the API offers is ignored in silence."""

from __future__ import annotations

from typing import Any

import pytest

from oarlock_api.training import Training
from oarlock_trainer.plan.support import refuse_unsupported
from oarlock_trainer.runtime.errors import ConfigurationError

PRODIGY = {"name": "Prodigy", "learningRate": 1.0}
FUSED = {"name": "Lion", "options": {"fused": True}}


def training(**fields: Any) -> Training:
    body: dict[str, Any] = {
        "model": {"family": "Flux1", "path": "/models/flux"},
        "steps": 10,
        "data": {"datasets": [{"name": "photos", "source": {"path": "/data"}}]},
    }
    return Training.model_validate(body | fields)


def test_the_plain_job_is_accepted() -> None:
    refuse_unsupported(training())


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"optimizer": {"options": {"fused": True}}}, "training.optimizer.options.fused .AdamW has no"),
        ({"optimizer": {"name": "Lion", "options": {"eps": 1e-6}}}, "training.optimizer.options.eps .Lion has no"),
        ({"optimizer": {"options": {"eps": "small"}}}, "training.optimizer.options.eps: small"),
        ({"optimizer": {"options": {"dCoef": 2}}}, "training.optimizer.options.dCoef .AdamW has no"),
        ({"method": "LoRA", "optimizer": {"name": "AdamWScheduleFree", "betas": [0.0, 0.9]}}, "betas: 0.0, 0.9 with"),
        ({"method": "LoRA", "optimizer": PRODIGY | {"options": {"d0": 0}}}, "options.d0: 0 .a number between"),
        ({"method": "LoRA", "optimizer": PRODIGY | {"options": {"biasCorrection": 1}}}, "biasCorrection: 1 .true or"),
        ({"engine": {"offloadOptimizer": "CPU"}, "optimizer": {"name": "AdamW8Bit"}}, "CPU with optimizer.name: AdamW8Bit"),
        ({"optimizer": {"name": "Lion", "options": {"fused": 1}}}, "options.fused: 1 .true or false"),
        ({"engine": {"offloadOptimizer": "CPU"}, "optimizer": FUSED}, "options.fused: true .*not with offloadOptimizer"),
        ({"engine": {"strategy": "DDP"}, "optimizer": FUSED}, "options.fused: true .*not with .*DDP"),
        ({"method": "LoRA", "optimizer": FUSED}, "options.fused: true .*not with .*LoRA"),
    ],
)  # fmt: skip
def test_a_setting_that_cannot_be_honoured_is_refused_by_its_name(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigurationError, match=named):
        refuse_unsupported(training(**fields))


@pytest.mark.parametrize(
    "fields",
    [
        {"optimizer": {"name": "Lion"}},
        {"method": "LoRA", "optimizer": PRODIGY | {"options": {"d0": 1e-5, "dCoef": 2, "safeguardWarmup": True}}},
        {"optimizer": {"name": "AdamW8Bit", "options": {"eps": 1e-6}}},
        {"gradientClipping": {"method": "Value"}},
        {"engine": {"offloadOptimizer": "CPU"}},
        {"engine": {"offloadOptimizer": "CPU"}, "optimizer": {"name": "Lion"}},
        {"optimizer": FUSED},
        {"compile": {"mode": "Default"}},
        {"precision": "FP8"},
        {"attention": "CuDNN"},
        {"activationCheckpointing": {"mode": "Partial", "percent": 40}},
    ],
)
def test_what_can_be_done_is_accepted(fields: dict[str, Any]) -> None:
    refuse_unsupported(training(**fields))


def test_all_refused_settings_are_named_at_once() -> None:
    eight_bits = {"name": "AdamW8Bit", "options": {"fused": True}}
    with pytest.raises(ConfigurationError, match=r"fused .AdamW8Bit has no.*offloadOptimizer"):
        refuse_unsupported(training(optimizer=eight_bits, engine={"offloadOptimizer": "CPU"}))
