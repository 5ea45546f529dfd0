"""Options that ask for nothing here, or for nothing that changes a number; and what SimpleTuner rewrites by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Imported

LORA = {"model_type": "lora"}
INT8 = LORA | {"base_model_precision": "int8-quanto"}
REPOSITORY = "Wan-AI/Wan2.1-T2V-1.3B-Diffusers"
WAN = {
    "model_family": "wan",
    "model_flavour": None,
    "pretrained_model_name_or_path": REPOSITORY,
}
KEYS_OF_THE_WEB = {"__active_tab__": "model", "__disabled_fields__": ["seed"], "ez_model_type": "lora"}
PICTURES = {"validation_prompt": "a boat"}


@pytest.mark.parametrize(
    "given",
    [
        {"use_dora": True},
        INT8 | {"use_dora": True},
        {"base_model_default_dtype": "fp32"},
        {"gradient_precision": "fp32"},
        {"enable_xformers_memory_efficient_attention": True},
        {"lora_init_type": "gaussian", "peft_lora_mode": "singlora", "lora_format": "comfyui"},
        KEYS_OF_THE_WEB,
        {"strict_epoch_limit": True, "xm_enabled": False, "scheduled_sampling_max_step_offset": 0},
        {"sdnq_use_hadamard": True, "sdnq_group_size": -1},
        {"ema_warmup_steps": 1000},
        {"pretrained_vae_model_name_or_path": "/output/models/FLUX.1-dev"},
        {"pretrained_vae_model_name_or_path": "madebyollin/sdxl-vae-fp16-fix"},
        WAN | {"pretrained_t5_model_name_or_path": "wan-ai/wan2.1-t2v-1.3b-diffusers"},
        WAN | {"pretrained_model_name_or_path": None, "pretrained_t5_model_name_or_path": REPOSITORY},
        PICTURES | {"validation_guidance": 1.0, "validation_guidance_skip_layers": [7, 8, 9]},
        PICTURES | {"validation_disable": True, "num_validation_images": 2, "validation_guidance_real": 4.0},
        {"model_flavour": "schnell", "pretrained_model_name_or_path": None} | LORA | {"assistant_lora_strength": 0},
    ],
)  # fmt: skip
def test_what_asks_for_nothing_is_ignored(
    given: dict[str, Any], imported: Callable[..., Imported], simple: dict[str, Any], folder: dict[str, Any]
) -> None:
    job = imported(simple | given, folder)
    assert job.refused == {}


@pytest.mark.parametrize(
    ("given", "refused"),
    [
        (LORA | {"use_dora": True}, "use_dora"),
        (INT8 | {"base_model_default_dtype": "fp32"}, "base_model_default_dtype"),
        (LORA | {"lora_format": "comfyui"}, "lora_format"),
        ({"use_ema": True, "ema_warmup_steps": 10}, "ema_warmup_steps"),
        ({"pretrained_vae_model_name_or_path": "owner/vae"}, "pretrained_vae_model_name_or_path"),
        (LORA | {"peft_lora_target_modules": "gone.json"}, "peft_lora_target_modules"),
        (LORA | {"peft_lora_target_modules": [1]}, "peft_lora_target_modules"),
        (PICTURES | {"validation_guidance_skip_layers": [7]}, "validation_guidance_skip_layers"),
        ({"output_dir": "<YOUR OUTPUT DIR>"}, "output_dir"),
        ({"hub_model_id": "<you>/boats", "push_to_hub": True}, "hub_model_id"),
    ],
)
def test_what_asks_for_something_is_refused_by_its_own_name_alone(
    given: dict[str, Any],
    refused: str,
    imported: Callable[..., Imported],
    simple: dict[str, Any],
    folder: dict[str, Any],
) -> None:
    assert list(imported(simple | given, folder).refused) == [refused]


@pytest.mark.parametrize("key", ["ramtorch", "enable_group_offload", "gradient_checkpointing_offload_attention"])
def test_what_saves_memory_alone_is_taken_and_told(
    key: str, imported: Callable[..., Imported], simple: dict[str, Any], folder: dict[str, Any]
) -> None:
    job = imported(simple | {key: True}, folder)
    assert job.refused == {}
    assert "stay on the GPUs" in job.differing[key]
    assert imported(simple | {key: False}, folder).ignored[key] == "nothing is moved off the GPUs"


def test_sequences_that_simpletuner_splits_are_whole_here(
    imported: Callable[..., Imported], simple: dict[str, Any], folder: dict[str, Any]
) -> None:
    job = imported(simple | {"context_parallel_size": 2, "musubi_blocks_to_swap": 4}, folder)
    assert "2 times as many samples" in job.differing["context_parallel_size"]
    assert "stay on the GPUs" in job.differing["musubi_blocks_to_swap"]
    assert "context_parallel_size" in imported(simple | {"context_parallel_size": 1}, folder).ignored


@pytest.mark.parametrize(
    ("written", "attention"),
    [("native", "SDPA"), ("xformers", "SDPA"), ("cudnn", "CuDNN"), ("flash-attn-hub", "Flash2"),
     ("flash-attn-3-hub", "Flash3")],
)  # fmt: skip
def test_attention_has_the_names_of_4_8(
    written: str, attention: str, imported: Callable[..., Imported], simple: dict[str, Any], folder: dict[str, Any]
) -> None:
    assert imported(simple | {"attention_mechanism": written}, folder).spec["training"]["attention"] == attention


@pytest.mark.parametrize("given", [["to_q", "to_k"], '["to_q", "to_k"]', "layers.json"])
def test_layers_may_be_named_one_by_one(
    given: Any, imported: Callable[..., Imported], simple: dict[str, Any], folder: dict[str, Any]
) -> None:
    options = simple | LORA | {"peft_lora_target_modules": given, "flux_lora_target": "odd"}
    job = imported(options, folder, files={"layers.json": '["to_q", "to_k"]'})
    assert job.spec["training"]["lora"]["targets"] == ["to_q", "to_k"]


@pytest.mark.parametrize("seed", [0, -1])
def test_a_seed_that_simpletuner_draws_is_the_jobs_own(
    seed: int, imported: Callable[..., Imported], simple: dict[str, Any], folder: dict[str, Any]
) -> None:
    job = imported(simple | {"seed": seed}, folder)
    assert job.spec["training"]["seed"] == 42
    (said,) = [entry.words for entry in job.report.entries if entry.key == "seed"]
    assert said == f"{seed} -> training.seed: 42; SimpleTuner draws one for each run"


def test_0_is_no_limit_where_it_is_none_in_simpletuner(
    imported: Callable[..., Imported], simple: dict[str, Any], folder: dict[str, Any]
) -> None:
    none = {"max_num_samples": 0, "minimum_aspect_ratio": 0, "maximum_aspect_ratio": 0.0, "end_step": 0}
    job = imported(simple | {"checkpoints_total_limit": -1, "flow_schedule_shift": -1}, folder | none)
    training = job.spec["training"]
    assert none.keys() <= job.ignored.keys()
    assert "size" not in training["data"]["datasets"][0]
    assert (training["checkpoint"]["keep"], training["objective"]["timestepShift"]) == (1000, 1)
    assert (
        "how many steps apart" in imported(simple | {"checkpointing_steps": 0}, folder).refused["checkpointing_steps"]
    )


def test_an_average_that_is_kept_on_the_cpu_alone_is_there(
    imported: Callable[..., Imported], simple: dict[str, Any], folder: dict[str, Any]
) -> None:
    average = {"use_ema": True, "ema_device": "accelerator"}
    assert imported(simple | average, folder).spec["training"]["ema"]["device"] == "GPU"
    assert imported(simple | average | {"ema_cpu_only": True}, folder).spec["training"]["ema"]["device"] == "CPU"


@pytest.mark.parametrize("steps", [0, -1])
def test_pictures_without_an_interval_are_drawn_at_the_end(
    steps: int, imported: Callable[..., Imported], simple: dict[str, Any], folder: dict[str, Any]
) -> None:
    job = imported(simple | PICTURES | {"validation_steps": steps}, folder)
    assert job.spec["training"]["validation"]["everySteps"] == 1_000_000_000


@pytest.mark.parametrize(
    ("written", "sizes"), [("1", ["1024x1024"]), ("1.0", ["1024x1024"]), ("2", ["2000x2000"]), ("512", ["512x512"])]
)
def test_a_small_size_of_pictures_is_in_megapixels(
    written: str, sizes: list[str], imported: Callable[..., Imported], simple: dict[str, Any], folder: dict[str, Any]
) -> None:
    job = imported(simple | PICTURES | {"validation_resolution": written}, folder)
    assert job.spec["training"]["validation"]["resolutions"] == sizes


def test_an_instance_prompt_may_be_a_list_of_one(
    imported: Callable[..., Imported], simple: dict[str, Any], folder: dict[str, Any]
) -> None:
    fixed = folder | {"caption_strategy": "instanceprompt"}
    job = imported(simple, fixed | {"instance_prompt": ["a boat"]})
    assert job.spec["training"]["data"]["datasets"][0]["captions"]["text"] == "a boat"
    two = imported(simple, fixed | {"instance_prompt": ["a boat", "a ship"]})
    assert "SimpleTuner draws one each time" in two.refused["instance_prompt"]
    assert imported(simple, folder | {"instance_prompt": ["a boat", "a ship"]}).refused == {}


def test_dashes_of_file_names_are_told(
    imported: Callable[..., Imported], simple: dict[str, Any], folder: dict[str, Any]
) -> None:
    assert "a dash" in imported(simple, folder | {"caption_strategy": "filename"}).differing["caption_strategy"]
    assert "caption_strategy" not in imported(simple, folder).differing


@pytest.mark.parametrize(
    ("options", "dataset", "source", "key"),
    [
        ({"learning_rate": -1}, {}, "config.json", "learning_rate"),
        ({"train_batch_size": 0}, {}, "config.json", "train_batch_size"),
        ({"seed": -7}, {}, "config.json", "seed"),
        ({}, {"repeats": -3}, "multidatabackend.json[boats]", "repeats"),
    ],
)
def test_what_the_api_refuses_is_refused_by_the_option_that_it_comes_from(
    options: dict[str, Any],
    dataset: dict[str, Any],
    source: str,
    key: str,
    *,
    imported: Callable[..., Imported],
    simple: dict[str, Any],
    folder: dict[str, Any],
) -> None:
    job = imported(simple | options, folder | dataset)
    assert [(entry.source, entry.key) for entry in job.report.entries if entry.fate == "refused"] == [(source, key)]


@pytest.mark.parametrize(
    ("written", "path", "task"),
    [("~/pics", "/home/me/pics", "mount /home/me/pics"), ("C:\\pics\\a", "/output/pics/a", "a path of Windows")],
)
def test_a_path_of_another_kind_is_told_as_what_it_is(
    written: str,
    path: str,
    task: str,
    *,
    imported: Callable[..., Imported],
    simple: dict[str, Any],
    folder: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    job = imported(simple, folder | {"instance_data_dir": written})
    assert job.spec["training"]["data"]["datasets"][0]["source"] == {"path": path}
    assert any(task in line for line in job.report.tasks)
