"""Optimizer, schedule, clipping, length and objective without DeepSpeed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from oarlock_api.engine import ActivationCheckpointing
from oarlock_api.optimization import OptimizerName
from oarlock_import.optimizer import ALGORITHMS
from oarlock_trainer.plan.recomputation import allowed

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Imported


@pytest.fixture
def training(
    imported: Callable[..., Imported], simple: dict[str, Any], folder: dict[str, Any]
) -> Callable[..., dict[str, Any]]:
    def call(**changed: Any) -> dict[str, Any]:
        found: dict[str, Any] = imported(simple | changed, folder).spec["training"]
        return found

    return call


@pytest.fixture
def refused(
    imported: Callable[..., Imported], simple: dict[str, Any], folder: dict[str, Any]
) -> Callable[..., dict[str, str]]:
    def call(**changed: Any) -> dict[str, str]:
        return imported(simple | changed, folder).refused

    return call


@pytest.mark.parametrize("name", ALGORITHMS)
def test_each_optimizer_brings_its_own_defaults(name: str, training: Callable[..., dict[str, Any]]) -> None:
    algorithm = ALGORITHMS[name]
    wanted: dict[str, Any] = {"learning_rate": 1.0} if algorithm.name == "Prodigy" else {}
    if algorithm.name in ("Prodigy", "AdamWScheduleFree"):
        wanted["model_type"] = "lora"
    optimizer = training(optimizer=name, **wanted)["optimizer"]
    assert OptimizerName(optimizer["name"])
    assert optimizer["betas"] == list(algorithm.betas)
    assert optimizer["weightDecay"] == algorithm.weight_decay
    assert optimizer["weightDecayOn"] == "Matrices"
    assert optimizer.get("options", {}) == ({} if algorithm.eps is None else {"eps": algorithm.eps})


@pytest.mark.parametrize(
    ("name", "words"), [("adamw_bf16", "bfloat16"), ("torch-adamw", "embeddings"), ("optimi-lion", None)]
)
def test_how_an_optimizer_differs_is_told(
    name: str, words: str | None, imported: Callable[..., Imported], simple: dict[str, Any], folder: dict[str, Any]
) -> None:
    differs = imported(simple | {"optimizer": name}, folder).differing.get("optimizer")
    assert (differs is None) if words is None else (words in str(differs))


def test_the_learning_rate_of_simpletuner_is_the_default(training: Callable[..., dict[str, Any]]) -> None:
    assert training()["optimizer"]["learningRate"] == 4e-7


def test_options_of_the_optimizer_change_its_defaults(training: Callable[..., dict[str, Any]]) -> None:
    optimizer = training(optimizer="optimi-adamw", optimizer_config="weight_decay=0.1,eps=1e-7,kahan_sum=true")[
        "optimizer"
    ]
    assert optimizer["weightDecay"] == 0.1
    assert optimizer["options"] == {"eps": 1e-7}
    assert training(optimizer_beta1=0.8, optimizer_beta2=0.95)["optimizer"]["betas"] == [0.8, 0.95]


def test_options_of_prodigy_are_taken_with_prodigy(training: Callable[..., dict[str, Any]]) -> None:
    found = training(
        model_type="lora",
        optimizer="prodigy",
        learning_rate=1.0,
        optimizer_config="d_coef=0.8,d0=1e-5,weight_decay=0.1",
    )["optimizer"]
    assert found["options"] == {"eps": 1e-8, "dCoef": 0.8, "d0": 1e-5}
    assert found["weightDecay"] == 0.1


def test_one_beta_alone_counts_as_little_as_in_simpletuner(training: Callable[..., dict[str, Any]]) -> None:
    assert training(optimizer_beta1=0.8)["optimizer"]["betas"] == [0.9, 0.999]


def test_adam_options_count_only_with_deepspeed(training: Callable[..., dict[str, Any]]) -> None:
    assert training(adam_weight_decay=0.5)["optimizer"]["weightDecay"] == 0.01


@pytest.mark.parametrize(
    ("changed", "schedule"),
    [
        ({}, {"name": "Constant", "warmupSteps": 0}),
        ({"lr_warmup_steps": 50}, {"name": "Constant", "warmupSteps": 50}),
        ({"lr_scheduler": "constant", "lr_warmup_steps": 50}, {"name": "Constant", "warmupSteps": 50}),
        ({"lr_scheduler": "constant", "lr_warmup_steps": 0}, {"name": "Constant", "warmupSteps": 0}),
        ({"lr_scheduler": "constant"}, {"name": "Constant", "warmupSteps": 0}),
        ({"lr_scheduler": "linear", "lr_end": 1e-7}, {"name": "Linear", "warmupSteps": 0, "endLearningRate": 0}),
        (
            {"lr_scheduler": "polynomial"},
            {"name": "Polynomial", "warmupSteps": 0, "power": 0.8, "endLearningRate": 4e-7},
        ),
    ],
)
def test_schedules_are_those_that_simpletuner_runs(
    changed: dict[str, Any], schedule: dict[str, Any], training: Callable[..., dict[str, Any]]
) -> None:
    assert training(**changed)["optimizer"]["schedule"] == schedule


@pytest.mark.parametrize("name", ["cosine", "cosine_with_warmup", "cosine_with_restarts", "sine"])
def test_waves_are_refused_since_they_are_no_decay(name: str, refused: Callable[..., dict[str, str]]) -> None:
    assert "wave" in refused(lr_scheduler=name)["lr_scheduler"]


@pytest.mark.parametrize(
    ("changed", "clipping"),
    [
        ({}, {"method": "Value", "max": 2}),
        ({"grad_clip_method": "norm", "max_grad_norm": 1.0}, {"method": "Norm", "max": 1}),
        ({"max_grad_norm": 0}, {"method": "None"}),
        ({"max_grad_norm": -1}, {"method": "None"}),
    ],
)
def test_clipping_has_the_default_of_simpletuner(
    changed: dict[str, Any], clipping: dict[str, Any], training: Callable[..., dict[str, Any]]
) -> None:
    assert training(**changed)["gradientClipping"] == clipping


@pytest.mark.parametrize(
    "changed",
    [
        {"optimizer": "soap"},
        {"prodigy_steps": 100},
        {"optimizer_config": "d_coef=2"},
        {"optimizer_config": "eps=tiny"},
        {"lr_scheduler": "zigzag"},
        {"grad_clip_method": "both"},
        {"learning_rate": "fast"},
        {"learning_rate": float("nan")},
        {"train_batch_size": 1.5},
        {"flow_schedule_auto_shift": "perhaps"},
        {"mixed_precision": "fp16"},
        {"num_train_epochs": 3},
        {"max_train_steps": "${STEPS}"},
        {"resume_from_checkpoint": "checkpoint-500"},
        {"attention_mechanism": "sageattention"},
        {"report_to": "comet_ml"},
        {"validation_prompt": "a boat", "validation_resolution": "0.5"},
        {"output_dir": "{env:OUTPUT}"},
    ],
)
def test_what_cannot_be_read_or_done_is_refused_by_name(
    changed: dict[str, Any], refused: Callable[..., dict[str, str]]
) -> None:
    assert next(iter(refused(**changed))) in changed


def test_values_that_the_api_does_not_take_are_refused_in_its_words(refused: Callable[..., dict[str, str]]) -> None:
    found = refused(learning_rate=5.0)
    assert "less than or equal to 1" in found["learning_rate"]


def test_prodigy_with_a_rate_of_its_own_kind_alone_is_taken_and_told_apart(
    imported: Callable[..., Imported], simple: dict[str, Any], folder: dict[str, Any]
) -> None:
    adapters = simple | {"model_type": "lora", "optimizer": "prodigy"}
    assert "Prodigy Plus" in str(imported(adapters | {"learning_rate": 1.0}, folder).differing["optimizer"])
    refused = imported(adapters | {"learning_rate": 1e-4}, folder).refused
    assert any("set optimizer.learningRate to 1.0" in words for words in refused.values())


def test_schedule_free_has_a_warm_up_whatever_the_schedule_that_simpletuner_passes_over(
    training: Callable[..., dict[str, Any]],
) -> None:
    found = training(
        model_type="lora", optimizer="adamw_schedulefree", lr_scheduler="cosine", lr_warmup_steps=50, lr_end=1e-6
    )
    assert found["optimizer"]["schedule"] == {"name": "Constant", "warmupSteps": 50}


def test_epochs_count_where_there_are_no_steps(training: Callable[..., dict[str, Any]]) -> None:
    found = training(max_train_steps=0, num_train_epochs=3)
    assert (found.get("steps"), found["epochs"]) == (None, 3)
    found = training(max_train_steps=None, num_train_epochs=None)
    assert (found.get("steps"), found["epochs"]) == (None, 1)


def test_a_seed_is_written_where_simpletuner_draws_one(training: Callable[..., dict[str, Any]]) -> None:
    assert training()["seed"] == 42


def test_the_average_is_written_with_its_defaults(training: Callable[..., dict[str, Any]]) -> None:
    assert "ema" not in training()
    assert training(use_ema=True)["ema"] == {"decay": 0.995, "device": "CPU", "everySteps": 1}


@pytest.mark.parametrize(
    ("changed", "mode"),
    [
        ({}, {"mode": "Full"}),
        ({"gradient_checkpointing": False}, {"mode": "None"}),
        ({"gradient_checkpointing_interval": 2}, {"mode": "Full"}),
        ({"gradient_checkpointing_interval": 40, "gradient_checkpointing_segment_stride": 50}, {"mode": "Full"}),
    ],
)
def test_activation_checkpointing_is_said(
    changed: dict[str, Any], mode: dict[str, Any], training: Callable[..., dict[str, Any]]
) -> None:
    assert training(**changed)["activationCheckpointing"] == mode


@pytest.mark.parametrize(
    ("interval", "stride", "blocks"),
    [(2, 4, 10 + 20), (1, 3, 7 + 13), (None, 2, 10 + 19), (19, 20, 19 + 37)],
)
def test_as_many_blocks_are_recomputed_as_simpletuner_does_between_its_strides(
    interval: int | None, stride: int, blocks: int, training: Callable[..., dict[str, Any]]
) -> None:
    found = training(gradient_checkpointing_interval=interval, gradient_checkpointing_segment_stride=stride)
    asked = ActivationCheckpointing.model_validate(found["activationCheckpointing"])
    assert allowed(asked, blocks=57) == range(blocks, blocks + 1)


def test_segments_that_overlap_are_refused(refused: Callable[..., dict[str, str]]) -> None:
    found = refused(gradient_checkpointing_interval=4, gradient_checkpointing_segment_stride=2)
    assert "gradient_checkpointing_segment_stride" in found


def test_random_guidance_has_bounds(training: Callable[..., dict[str, Any]]) -> None:
    found = training(flux_guidance_mode="random-range", flux_guidance_max=5)["objective"]["guidance"]
    assert found == {"mode": "Random", "min": 0, "max": 5}


def test_a_shift_of_0_is_no_shift(training: Callable[..., dict[str, Any]]) -> None:
    assert training(flow_schedule_shift=0)["objective"]["timestepShift"] == 1


def test_huber_is_taken_only_with_the_threshold_that_is_here(
    training: Callable[..., dict[str, Any]], refused: Callable[..., dict[str, str]]
) -> None:
    assert list(refused(loss_type="huber")) == ["huber_schedule"]
    assert list(refused(loss_type="huber", huber_schedule="constant", huber_c=0.2)) == ["huber_c"]
    assert training(loss_type="smooth_l1", huber_schedule="constant")["objective"]["loss"] == "SmoothL1"


def test_no_limit_of_checkpoints_is_the_most_that_a_job_keeps(training: Callable[..., dict[str, Any]]) -> None:
    assert training(checkpoints_total_limit=0)["checkpoint"]["keep"] == 1000
