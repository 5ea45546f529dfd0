"""Every key of every table, one at a time: each one that is given ends in exactly one entry, in the list of its row."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from oarlock_import.adapters import REFUSED
from oarlock_import.importing import OPTIONS
from oarlock_import.rows import Fate, Kind, Row, table
from oarlock_import.tables.dataset import DATASET, EMBEDS, PARQUET, WEBHOOK
from oarlock_import.tables.launch import ACCELERATE, DEEPSPEED, DYNAMO
from oarlock_import.tables.model import OF_PARTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from conftest import Imported

BY_KIND = {Kind.WHOLE: 2, Kind.NUMBER: 0.5, Kind.SWITCH: True, Kind.TEXT: "words", Kind.ANY: "anything"}
OF_ITS_OWN = {
    "aws_endpoint_url": "https://s3.example.com",
    "accelerate_config": "accelerate.yaml",
    "accelerate_extra_args": "--mixed_precision bf16",
    "attention_mechanism": "diffusers",
    "base_model_precision": "no_change",
    "caption_strategy": "textfile",
    "caption_filter_list": ["boat"],
    "crop_aspect": "square",
    "crop_aspect_buckets": [1.0],
    "crop_style": "center",
    "data_backend_config": "multidatabackend.json",
    "data_backend_sampling": "uniform",
    "dataset_type": "image",
    "deepspeed_config": {"zero_stage": 1},
    "distributed_type": "MULTI_GPU",
    "dynamo_backend": "inductor",
    "dynamo_config": {"dynamo_backend": "NO"},
    "dynamo_mode": "default",
    "grad_clip_method": "norm",
    "gradient_accumulation_steps": 2,
    "gradient_clipping": 1.0,
    "log_level": "error",
    "lr_scheduler": "linear",
    "max_upscale_threshold": 0.25,
    "main_process_port": 8080,
    "maximum_image_size": 2048,
    "metadata_backend": "discovery",
    "minimum_image_size": 512,
    "mixed_precision": "bf16",
    "model_family": "flux",
    "model_flavour": "dev",
    "optimizer": "torch-adamw",
    "optimizer.params.betas": [0.9, 0.99],
    "optimizer.params.eps": 1e-8,
    "optimizer.params.lr": 1e-4,
    "optimizer.params.weight_decay": 0.1,
    "optimizer.type": "AdamW",
    "optimizer_config": "eps=1e-7",
    "parquet": {"path": "t.parquet", "width_column": "w", "height_column": "h"},
    "report_to": "tensorboard",
    "resolution": 768,
    "resolution_type": "pixel",
    "resume_from_checkpoint": "latest",
    "scheduler.params.warmup_num_steps": 10,
    "scheduler.params.warmup_type": "linear",
    "scheduler.type": "WarmupLR",
    "target_downsample_size": 1024,
    "type": "local",
    "validation_resolution": "512",
    "webhook_config": {"webhook_type": "raw", "callback_url": "https://h.example.com"},
    "webhook_type": "raw",
    "zero_optimization.reduce_bucket_size": 50_000_000,
    "zero_optimization.stage": 1,
    **dict.fromkeys(OF_PARTS, "/output/models/FLUX.1-dev"),
}
"""Values for keys that do not take any of their kind."""
WITH: dict[str, dict[str, Any]] = {
    "num_train_epochs": {"max_train_steps": 0},
    "num_machines": {"num_processes": 8},
    "revision": {"pretrained_model_name_or_path": "owner/model"},
    "maximum_image_size": {"target_downsample_size": 1024},
    "target_downsample_size": {"maximum_image_size": 2048},
    **{key: {"model_type": "lora"} for key in REFUSED},
    "model_card_private": {"hub_model_id": "owner/model"},
    "push_to_hub": {"hub_model_id": "owner/model"},
    "dynamo_mode": {"dynamo_backend": "inductor"},
    "flow_beta_schedule_alpha": {"flow_use_beta_schedule": True},
    "flow_beta_schedule_beta": {"flow_use_beta_schedule": True},
}
"""What a key needs beside itself."""


def distinct(rows: Iterable[Row]) -> list[Row]:
    return list({row.key: row for row in rows}.values())


def value(row: Row) -> Any:
    if row.key in OF_ITS_OWN:
        return OF_ITS_OWN[row.key]
    return next(iter(row.words)) if row.words else BY_KIND[row.kind]


def fate_of(job: Imported, key: str, source: str = "config.json") -> Fate:
    """The fate of a key, which has exactly one."""
    found = [entry for entry in job.report.entries if (entry.key, entry.source) == (key, source)]
    assert len(found) == 1, found
    assert "nothing here makes use" not in found[0].words
    return found[0].fate


@pytest.mark.parametrize("row", distinct(OPTIONS.values()), ids=lambda row: row.key)
def test_each_option_has_its_fate(
    row: Row, imported: Callable[..., Imported], simple: dict[str, Any], folder: dict[str, Any]
) -> None:
    hook = OF_ITS_OWN["webhook_config"] if row.key == "webhook_config" else None
    own = {"num_processes": 2} if row.key == "accelerate_config" else None
    options = simple | WITH.get(row.key, {}) | {row.key: value(row)}
    job = imported(options, folder, accelerate=own, webhooks=hook)
    # An option that is mapped has no effect, and is told so, where another one keeps it from having any.
    assert fate_of(job, row.key) in {row.fate, Fate.IGNORED}
    assert (row.fate is Fate.REFUSED) == (row.key in job.refused)


@pytest.mark.parametrize(
    "row", [r for r in distinct(OPTIONS.values()) if r.fate is Fate.REFUSED], ids=lambda row: row.key
)
def test_an_option_that_is_refused_may_ask_for_nothing(
    row: Row, imported: Callable[..., Imported], simple: dict[str, Any], folder: dict[str, Any]
) -> None:
    for harmless in row.unless:
        job = imported(simple | {row.key: harmless}, folder)
        assert row.key in job.ignored
        assert job.spec


@pytest.mark.parametrize(
    "row", [r for r in distinct(OPTIONS.values()) if r.fate is Fate.MAPPED and not r.judged], ids=lambda row: row.key
)
def test_an_option_with_one_field_sets_that_field(
    row: Row, imported: Callable[..., Imported], simple: dict[str, Any], folder: dict[str, Any]
) -> None:
    guidance = {"flux_guidance_mode": "constant"}
    at: Any = imported(guidance | simple | {row.key: value(row)}, folder).spec
    for name in row.to.split("."):
        at = at[name]
    assert at == (row.words[str(value(row)).lower()] if row.words else value(row))


@pytest.mark.parametrize(("alias", "row"), [(name, r) for name, r in OPTIONS.items() if name != r.key])
def test_an_option_may_have_its_older_name(
    alias: str, row: Row, imported: Callable[..., Imported], simple: dict[str, Any], folder: dict[str, Any]
) -> None:
    simple.pop(row.key, None)
    job = imported(simple | {alias: value(row)}, folder)
    assert fate_of(job, alias) in {row.fate, Fate.IGNORED}
    contradicting = imported(simple | {alias: value(row), row.key: 77}, folder)
    assert "remove one" in contradicting.refused[row.key]


@pytest.mark.parametrize("row", distinct(ACCELERATE), ids=lambda row: row.key)
def test_each_key_of_accelerate_has_its_fate(
    row: Row, imported: Callable[..., Imported], simple: dict[str, Any], folder: dict[str, Any]
) -> None:
    given = {"num_machines": 1, "num_processes": 8} | {row.key: {"tp": 2} if row.unless == (False, {}) else value(row)}
    if row.key == "main_process_port":
        given[row.key] = 8080
    job = imported(simple, folder, accelerate=given)
    assert fate_of(job, row.key, "accelerate.yaml") in {row.fate, Fate.IGNORED}
    assert (row.fate is Fate.REFUSED) == (row.key in job.refused)


@pytest.mark.parametrize("row", distinct(DYNAMO), ids=lambda row: row.key)
def test_each_key_of_dynamo_has_its_fate(
    row: Row, imported: Callable[..., Imported], simple: dict[str, Any], folder: dict[str, Any]
) -> None:
    job = imported(simple, folder, accelerate={"dynamo_config": {"dynamo_backend": "INDUCTOR", row.key: value(row)}})
    assert fate_of(job, row.key, "accelerate.yaml[dynamo_config]") is row.fate
    assert job.spec


@pytest.mark.parametrize("row", distinct(DEEPSPEED), ids=lambda row: row.key)
def test_each_key_of_deepspeed_has_its_fate(
    row: Row, imported: Callable[..., Imported], simple: dict[str, Any], folder: dict[str, Any]
) -> None:
    job = imported(simple, folder, accelerate={"deepspeed_config": {"zero_optimization.stage": 1, row.key: value(row)}})
    assert fate_of(job, row.key, "accelerate.yaml[deepspeed_config]") in {row.fate, Fate.IGNORED}
    assert (row.fate is Fate.REFUSED) == (row.key in job.refused)


@pytest.mark.parametrize("row", distinct(DATASET), ids=lambda row: row.key)
def test_each_key_of_a_data_set_has_its_fate(
    row: Row, imported: Callable[..., Imported], simple: dict[str, Any], folder: dict[str, Any]
) -> None:
    beside: dict[str, Any] = {}
    if row.key.startswith("aws_"):
        beside = {"type": "aws", "aws_bucket_name": "boats"}
    elif row.key in {"maximum_image_size", "target_downsample_size"}:
        beside = WITH[row.key]
    elif row.key in {"only_instance_prompt", "prepend_instance_prompt"}:
        beside = {"instance_prompt": "a boat"}
    store = {"id": "latents", "dataset_type": "image_embeds"}
    own = "latents" if row.key == "image_embeds" else value(row)
    masks = {"id": own, "dataset_type": "conditioning", "conditioning_type": "mask", "instance_data_dir": "/masks"}
    others = [store, masks] if row.key == "conditioning_data" else [store]
    job = imported(simple, folder | beside | {row.key: own}, *others)
    if row.key == "disabled":
        assert job.ignored["boats"] == "disabled"
    elif row.key == "text_embeds":
        assert "one place" in job.refused["text_embeds"]
    else:
        name = own if row.key == "id" else "boats"
        assert fate_of(job, row.key, f"multidatabackend.json[{name}]") in {row.fate, Fate.IGNORED}
        assert (row.fate is Fate.REFUSED) == (row.key in job.refused)


@pytest.mark.parametrize("row", distinct(PARQUET), ids=lambda row: row.key)
def test_each_key_of_a_table_has_its_fate(
    row: Row, imported: Callable[..., Imported], simple: dict[str, Any], folder: dict[str, Any]
) -> None:
    block = OF_ITS_OWN["parquet"] | {row.key: value(row)}
    job = imported(simple, folder | {"metadata_backend": "parquet", "parquet": block})
    assert fate_of(job, row.key, "multidatabackend.json[boats][parquet]") is row.fate


@pytest.mark.parametrize("row", distinct(EMBEDS), ids=lambda row: row.key)
def test_each_key_of_text_embeddings_has_its_fate(
    row: Row, imported: Callable[..., Imported], simple: dict[str, Any], folder: dict[str, Any]
) -> None:
    beside = {"type": "aws", "aws_bucket_name": "boats"} if row.key.startswith("aws_") else {}
    embeds = {"id": "text", "dataset_type": "text_embeds"} | beside
    if row.key not in {"disabled", "dataset_type", "type"}:
        embeds[row.key] = value(row)
    job = imported(simple, folder, embeds)
    if row.key in embeds:
        assert fate_of(job, row.key, f"multidatabackend.json[{embeds['id']}]") in {row.fate, Fate.IGNORED}
    assert job.refused == {}


@pytest.mark.parametrize("row", distinct(WEBHOOK), ids=lambda row: row.key)
def test_each_key_of_a_webhook_has_its_fate(
    row: Row, imported: Callable[..., Imported], simple: dict[str, Any], folder: dict[str, Any]
) -> None:
    hook = {"webhook_type": "raw", "callback_url": "https://h.example.com", row.key: value(row)}
    if row.key == "webhook_url":
        del hook["callback_url"]
    job = imported(simple, folder, webhooks=hook)
    assert fate_of(job, row.key, "webhooks.json[1]") is row.fate


def test_no_key_stands_in_two_tables_of_one_file() -> None:
    with pytest.raises(ValueError, match="two rows for seed"):
        table(OPTIONS["seed"], OPTIONS["seed"])
    assert Counter(row.key for row in distinct(OPTIONS.values())).most_common(1)[0][1] == 1


@pytest.mark.parametrize("where", ["config.json", "accelerate.yaml", "dataset", "parquet", "webhook", "deepspeed"])
def test_a_key_that_is_not_known_is_refused_by_name_and_without_its_value(
    where: str, imported: Callable[..., Imported], simple: dict[str, Any], folder: dict[str, Any]
) -> None:
    odd = {"lerning_rate": "hunter2"}
    accelerate = {"deepspeed_config": {"zero_stage": 1} | (odd if where == "deepspeed" else {})}
    block = {"metadata_backend": "parquet", "parquet": OF_ITS_OWN["parquet"] | (odd if where == "parquet" else {})}
    hook = {"webhook_type": "raw", "callback_url": "https://h.example.com"} | (odd if where == "webhook" else {})
    job = imported(
        simple | (odd if where == "config.json" else {}),
        folder | block | (odd if where == "dataset" else {}),
        accelerate=accelerate | (odd if where == "accelerate.yaml" else {}),
        webhooks=hook,
    )
    assert list(job.refused) == ["lerning_rate"]
    assert job.text == ""
    assert "hunter2" not in job.report.text()
