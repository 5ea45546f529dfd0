"""Which pictures a validation makes, from the job and its library of prompts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from oarlock_api.contract.job_file import JobFile
from oarlock_api.training import Training
from oarlock_trainer.runtime.errors import ConfigurationError
from oarlock_trainer.runtime.job import Job, RankInfo
from oarlock_trainer.storage.locations import Locations
from oarlock_trainer.validation.image_requests import ImageRequest, read_image_requests

if TYPE_CHECKING:
    from pathlib import Path


def job(
    tmp_path: Path, flavor: str | None = None, task: str = "Train", family: str = "Flux1", **validation: Any
) -> Job:
    scheduler = tmp_path / "flux/scheduler/scheduler_config.json"
    scheduler.parent.mkdir(parents=True, exist_ok=True)
    scheduler.write_text("{}")
    body = {
        "model": {"family": family, "flavor": flavor, "path": str(tmp_path / "flux")},
        "task": task,
        "steps": 10,
        "seed": 5,
        "data": {"datasets": [{"name": "photos", "source": {"path": "/data"}}]},
        "validation": {"everySteps": 2, **validation},
    }
    file = JobFile(
        job="flux", namespace="default", job_uid="uid", attempt=1, nodes=1, gpus_per_node=0,
        output_directory=str(tmp_path), training=body,
    )  # fmt: skip
    rank_info = RankInfo(rank=0, local_rank=0, world_size=1, local_world_size=1)
    return Job(file=file, training=Training.model_validate(body), rank_info=rank_info, simulate_gpus=False)


def requests_of(given: Job) -> list[ImageRequest]:
    return read_image_requests(given, Locations())


BOAT = [{"name": "boat", "prompt": "a boat"}]


def library(tmp_path: Path, content: Any) -> dict[str, str]:
    path = tmp_path / "library.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return {"path": str(path)}


def test_every_prompt_is_wanted_at_every_size_and_the_largest_come_first(tmp_path: Path) -> None:
    prompts = [*BOAT, {"name": "cat", "prompt": "a cat"}]
    found = requests_of(job(tmp_path, prompts=prompts, resolutions=["64x64", "128x96"]))
    assert [one.file for one in found] == [
        "boat-128x96.png", "cat-128x96.png", "boat-64x64.png", "cat-64x64.png",
    ]  # fmt: skip
    assert {one.seed for one in found} == {5}


@pytest.mark.parametrize(("flavor", "steps", "guidance"), [("Dev", 28, 3.5), ("Krea", 28, 4.5), ("Schnell", 4, 1.0)])
def test_what_the_job_leaves_open_is_what_the_models_own_page_advises(
    tmp_path: Path, flavor: str, steps: int, guidance: float
) -> None:
    (found,) = requests_of(job(tmp_path, flavor, prompts=BOAT))
    assert (found.steps, found.guidance, found.scale) == (steps, guidance, 1.0)


def test_preprocessing_wants_no_pictures(tmp_path: Path) -> None:
    assert requests_of(job(tmp_path, task="Preprocess", prompts=BOAT)) == []


def test_with_a_negative_prompt_the_guidance_is_that_of_two_passes(tmp_path: Path) -> None:
    (found,) = requests_of(job(tmp_path, prompts=BOAT, negativePrompt="", guidance=4.0, seed=9, inferenceSteps=3))
    assert (found.guidance, found.scale, found.seed, found.steps) == (1.0, 4.0, 9, 3)


@pytest.mark.parametrize(("fields", "guidance"), [({}, 4.0), ({"guidance": 3.0}, 3.0)])
def test_one_variant_of_a_family_may_be_told_its_guidance_where_others_take_two_passes(
    tmp_path: Path, fields: dict[str, Any], guidance: float
) -> None:
    (found,) = requests_of(job(tmp_path, "Dev", family="Flux2", prompts=BOAT, **fields))
    assert (found.steps, found.guidance, found.scale) == (50, guidance, 1.0)


@pytest.mark.parametrize(
    ("family", "flavor", "fields", "steps", "scale"),
    [
        ("Flux2", "KleinBase9B", {}, 50, 4.0),
        ("Flux2", "Klein4B", {}, 4, 1.0),
        ("ZImage", None, {}, 50, 5.0),
        ("ZImage", "Base", {"guidance": 3.0}, 50, 4.0),
        ("ZImage", "Turbo", {}, 9, 1.0),
        ("ZImage", "Turbo", {"guidance": 2.0}, 9, 3.0),
        ("StableDiffusion3", None, {}, 28, 3.5),
        ("StableDiffusion3", "Medium", {}, 40, 4.5),
        ("StableDiffusion3", "Medium", {"guidance": 7.0, "negativePrompt": "ugly"}, 40, 7.0),
        ("StableDiffusion3", "Medium", {"guidance": 1.0}, 40, 1.0),
        ("StableDiffusion3", "Medium", {"guidance": 0.0}, 40, 1.0),
        ("QwenImage", None, {}, 50, 4.0),
        ("QwenImage", "V2512", {"guidance": 1.0}, 50, 1.0),
        ("Wan", None, {}, 50, 5.0),
        ("Wan", "T2V-14B", {"guidance": 1.0}, 50, 1.0),
    ],
)
def test_guidance_of_a_family_that_is_not_told_it_is_two_passes_as_its_pipeline_counts_them(
    tmp_path: Path, family: str, flavor: str | None, fields: dict[str, Any], *, steps: int, scale: float
) -> None:
    """Without a negative prompt, too. Z-Image's pipeline makes one pass at 0, others at 1 and below."""
    (found,) = requests_of(job(tmp_path, flavor, family=family, prompts=BOAT, **fields))
    negative = fields.get("negativePrompt", "")
    assert (found.steps, found.guidance, found.scale, found.negative) == (steps, 1.0, scale, negative)


@pytest.mark.parametrize(("frames", "wanted"), [(81, 81), (1, None)])
def test_a_family_of_videos_draws_as_many_frames_as_the_job_says_and_a_picture_of_one(
    tmp_path: Path, frames: int, wanted: int | None
) -> None:
    (found,) = requests_of(job(tmp_path, family="Wan", prompts=BOAT, frames=frames))
    assert (found.frames, found.file) == (wanted, "boat-1024x1024.png")


def test_sizes_that_are_no_multiple_of_16_are_rounded_down_and_files_say_what_was_asked_for(tmp_path: Path) -> None:
    (found,) = requests_of(job(tmp_path, prompts=BOAT, resolutions=["100x15"]))
    assert (found.width, found.height, found.file) == (96, 16, "boat-100x15.png")


def test_a_library_gives_prompts_by_their_names_also_in_simpletuners_longer_form(tmp_path: Path) -> None:
    told = library(tmp_path, {"old/boat 1": "a boat", "cat": {"prompt": "a cat", "adapter_strength": 1.0}})
    found = requests_of(job(tmp_path, promptsFrom=told, resolutions=["64x64"]))
    assert [(one.name, one.prompt) for one in found] == [("old-boat-1", "a boat"), ("cat", "a cat")]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        pytest.param("{", "no JSON", id="broken"),
        pytest.param([1], "no JSON object", id="list"),
        pytest.param({"a": 1}, '"a" in library.json has no text', id="number"),
        pytest.param({"..": "a"}, "has none of a-z, A-Z and 0-9", id="no name"),
        pytest.param({"a b": "a", "a-b": "b"}, '"a-b" and "a b" in library.json would both', id="same file"),
        pytest.param({"Boat": "a", "boat": "b"}, "files called boat", id="same file where case counts for nothing"),
        pytest.param({"boat": "another"}, 'the prompt "boat" would get the same file', id="same as in the job"),
        pytest.param({f"p{number}": "a" for number in range(256)}, "257 prompts", id="too many"),
    ],
)
def test_a_library_that_is_none_is_refused_with_what_is_wrong(tmp_path: Path, content: Any, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        requests_of(job(tmp_path, prompts=BOAT, promptsFrom=library(tmp_path, content)))


def test_a_library_that_is_not_there_is_refused_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"promptsFrom: .* has no nothing\.json"):
        requests_of(job(tmp_path, promptsFrom={"path": str(tmp_path / "nothing.json")}))


def test_a_model_without_a_scheduler_is_refused_before_anything_is_encoded(tmp_path: Path) -> None:
    found = job(tmp_path, prompts=BOAT)
    (tmp_path / "flux/scheduler/scheduler_config.json").rename(tmp_path / "elsewhere.json")
    with pytest.raises(ConfigurationError, match=r"training\.model\.path: .*scheduler has no scheduler_config\.json"):
        requests_of(found)
