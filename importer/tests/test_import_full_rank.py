"""Full-rank training on four nodes with R2, a table and webhooks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from oarlock_api.group import Group

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from conftest import Imported

NO_NUMBERS = {
    "training.attention",  # which kernel computes the same
    "training.data.text_embeds_mode",  # when captions are encoded
    "training.engine.overlap_communication",
    "training.task",
}
"""Fields of the training that may be left to Oarlock's default, since they change no number."""


@pytest.fixture
def job(
    imported: Callable[..., Imported],
    full_rank: dict[str, Any],
    accelerate: dict[str, Any],
    r2: list[dict[str, Any]],
    hooks: list[dict[str, Any]],
) -> Imported:
    return imported(full_rank, *r2, accelerate=accelerate, webhooks=hooks)


def left_to_defaults(group: Group, above: str) -> Iterator[str]:
    for name in type(group).model_fields:
        value = getattr(group, name)
        path = f"{above}.{name}"
        if isinstance(value, Group) and name in group.model_fields_set:
            yield from left_to_defaults(value, path)
        elif isinstance(value, tuple):
            for entry in value:
                if isinstance(entry, Group):
                    yield from left_to_defaults(entry, path)
        elif name not in group.model_fields_set and value not in (None, {}):
            yield path


def test_nothing_that_changes_the_numbers_is_left_to_a_default_of_oarlock(job: Imported) -> None:
    assert job.job.spec.training
    assert set(left_to_defaults(job.job.spec.training, "training")) <= NO_NUMBERS | {
        "training.data.tuning",
        "training.data.datasets.size.minimum",
    }


def test_nothing_is_refused_and_every_option_has_one_entry(job: Imported, full_rank: dict[str, Any]) -> None:
    assert job.refused == {}
    said = [entry.key for entry in job.report.entries if entry.source == "config.json"]
    assert sorted(said) == sorted(set(said))
    assert {key.lstrip("-") for key in full_rank} <= set(said)


def test_machines_and_processes_become_nodes_and_gpus(job: Imported) -> None:
    assert (job.spec["nodes"], job.spec["gpusPerNode"]) == (4, 8)
    assert job.spec["pod"] == {"ports": {"rendezvous": 8080}}
    assert job.spec["training"]["compile"] == {"mode": "MaxAutotune", "dynamic": False, "fullGraph": False}


def test_deepspeed_decides_as_it_does_in_simpletuner(job: Imported) -> None:
    training = job.spec["training"]
    assert training["engine"] == {"strategy": "DeepSpeed", "zeroStage": 1, "offloadOptimizer": "None"}
    assert training["gradientAccumulation"] == 2
    assert training["gradientClipping"] == {"method": "Norm", "max": 0.01}
    assert training["optimizer"] == {
        "name": "AdamW",
        "learningRate": 1e-5,
        "betas": [0.9, 0.999],
        "weightDecay": 0.01,
        "weightDecayOn": "All",
        "schedule": {"name": "Constant", "warmupSteps": 100},
        "options": {"eps": 1e-8},
    }
    assert "lr_scheduler" in job.ignored
    assert "optimizer" in job.ignored
    assert "logarithm" in job.differing["lr_warmup_steps"]


def test_defaults_of_simpletuner_are_written_out(job: Imported) -> None:
    training = job.spec["training"]
    assert training["objective"] == {
        "timestepShift": 3,
        "autoShift": False,
        "timesteps": "Sigmoid",
        "sigmoidScale": 1,
        "minNoise": 0,
        "maxNoise": 1,
        "weighting": "None",
        "guidance": {"mode": "Constant", "value": 1},
        "loss": "MSE",
        "captionDropout": 0.1,
        "attentionMask": False,
    }
    assert training["checkpoint"] == {"intervalSteps": 250, "keep": 5, "resume": "Auto"}
    assert training["data"]["compression"] == "Gzip"


def test_data_sets_read_their_bucket_through_one_connection(job: Imported) -> None:
    training = job.spec["training"]
    assert training["s3Connections"] == [
        {
            "name": "default",
            "endpoint": "https://account.r2.cloudflarestorage.com",
            "region": "auto",
            "credentialsSecretRef": {"name": "boats-s3"},
        }
    ]
    data = training["data"]
    assert data["textEmbeds"] == {"s3": {"connection": "default", "bucket": "text", "prefix": "t5"}}
    assert data["smallBuckets"] == "Repeat"
    assert data["datasets"] == [
        {
            "name": "boats-2024",
            "role": "Train",
            "source": {"s3": {"connection": "default", "bucket": "boats", "prefix": "train/"}},
            "metadata": {
                "parquet": {
                    "location": {"s3": {"connection": "default", "bucket": "boats", "prefix": "boats.parquet"}},
                    "filenameColumn": "file",
                    "widthColumn": "w",
                    "heightColumn": "h",
                    "captionColumns": ["long", "short"],
                    "fallbackCaptionColumn": "tags",
                    "filenameHasExtension": True,
                }
            },
            "captions": {"strategy": "Parquet", "filters": ["^an image of "]},
            "imageEmbeds": {
                "mode": "Cache",
                "location": {"s3": {"connection": "default", "bucket": "latents", "prefix": "vae/boats"}},
            },
            "resolution": 1024,
            "resolutionType": "PixelArea",
            "crop": {"aspect": "Square", "style": "Center"},
            "size": {"minimum": 512},
            "repeats": 2,
            "preserveScan": True,
            "randomFlip": False,
        }
    ]


def test_webhooks_go_by_secrets(job: Imported) -> None:
    name = "boats-webhooks"
    assert job.spec["webhooks"] == [
        {
            "name": "webhook-1",
            "type": "Raw",
            "urlSecretRef": {"name": name, "key": "webhook-1-url"},
            "authSecretRef": {"name": name, "key": "webhook-1-auth"},
            "minLevel": "Warning",
        },
        {
            "name": "webhook-2",
            "type": "Discord",
            "urlSecretRef": {"name": name, "key": "webhook-2-url"},
            "minLevel": "Info",
        },
    ]


def test_no_secret_is_in_the_manifest_or_in_the_report(job: Imported, secrets: tuple[str, ...]) -> None:
    everything = job.text + job.report.text()
    assert [secret for secret in secrets if secret in everything] == []


def test_the_commands_that_make_the_secrets_are_told_without_values(job: Imported) -> None:
    tasks = "\n".join(job.report.tasks)
    assert "kubectl create secret generic boats-s3 --from-literal=AWS_ACCESS_KEY_ID=... " in tasks
    assert "kubectl create secret generic boats-wandb --from-literal=WANDB_API_KEY=..." in tasks
    assert (
        "kubectl create secret generic boats-webhooks --from-literal=webhook-1-url=... "
        "--from-literal=webhook-1-auth=... --from-literal=webhook-2-url=..." in tasks
    )


def test_the_order_of_the_options_does_not_show(
    imported: Callable[..., Imported], full_rank: dict[str, Any], accelerate: dict[str, Any], r2: list[dict[str, Any]]
) -> None:
    first = imported(full_rank, *r2, accelerate=accelerate)
    again = imported(dict(reversed(full_rank.items())), *r2, accelerate=dict(reversed(accelerate.items())))
    assert again.text == first.text


def test_sections_stand_in_the_order_of_the_api(job: Imported) -> None:
    assert job.job.spec.training
    order = [field.alias for field in type(job.job.spec.training).model_fields.values()]
    assert list(job.spec["training"]) == [name for name in order if name in job.spec["training"]]


@pytest.mark.parametrize(
    ("output", "is_told"), [("output/models", True), ("output/models/", True), ("output/boats", False)]
)
def test_a_folder_that_models_and_other_imported_jobs_share_is_told(
    output: str,
    is_told: bool,  # noqa: FBT001
    imported: Callable[..., Imported],
    simple: dict[str, Any],
    folder: dict[str, Any],
) -> None:
    told = imported(simple | {"output_dir": output}, folder).differing
    assert ("name another in output.directory" in told.get("output_dir", "")) is is_told
