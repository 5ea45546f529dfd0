"""Plans of jobs with videos: tokens, latents and buckets of all their frames."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from videos import write_video

from oarlock_api.training import Training
from oarlock_trainer.data.buckets import Size
from oarlock_trainer.data.pair_sizes import image_tokens
from oarlock_trainer.models.families import family_of
from oarlock_trainer.plan import embeds
from oarlock_trainer.plan.encoding import vae_bytes
from oarlock_trainer.plan.memory import need
from oarlock_trainer.plan.work import work_of

if TYPE_CHECKING:
    from pathlib import Path


def job(**clips: Any) -> Training:
    return Training.model_validate(
        {
            "model": {"family": "Wan", "path": "/m"}, "steps": 1, "resolution": 512,
            "data": {"datasets": [
                {"name": "clips", "source": {"path": "/a"}, "video": {}} | clips,
                {"name": "photos", "source": {"path": "/b"}},
            ]},
        }
    )  # fmt: skip


def test_a_video_has_the_tokens_of_all_frames_of_its_latents() -> None:
    training = job()
    clips, photos = training.data.datasets
    assert image_tokens(clips, Size(832, 480, 81), training.model) == 21 * 1560 == 32760
    assert image_tokens(photos, Size(832, 480), training.model) == 1560


def test_without_buckets_the_longest_video_counts() -> None:
    training = job(video={"frames": 33})
    shape = family_of(training.model).published
    assert work_of(training, shape, ranks=1, ranks_per_node=1).image_tokens == 9 * 32 * 32


def test_latents_of_videos_are_counted_by_their_frames() -> None:
    family = family_of(job().model)
    stored = [(Size(832, 480, 81), 10), (Size(832, 480), 10)]
    latents, _ = embeds.total(stored, 0, family.encoded, family.grid)
    assert latents == 10 * (21 + 1) * 16 * 60 * 104 * 2


def encoder_bytes(training: Training, **largest: int) -> int:
    family = family_of(training.model)
    work = work_of(training, family.published, ranks=1, ranks_per_node=1, **largest)
    return need(work, recomputed=0).of("encoder")


@pytest.mark.parametrize(
    ("videos", "photos", "resolution", "taken"),
    [
        ("Cache", "Cache", 1024, None),
        ("OnTheFly", "Cache", 1024, {"pictures": 1, "pixels": 512 * 512, "frames": 81}),
        ("Cache", "OnDemand", 1024, {"pictures": 4, "pixels": 1024 * 1024}),
        ("OnTheFly", "OnDemand", 1024, {"pictures": 4, "pixels": 1024 * 1024}),
        ("OnTheFly", "OnDemand", 128, {"pictures": 1, "pixels": 512 * 512, "frames": 81}),
    ],
)
def test_what_takes_the_vae_most_while_training_counts(
    videos: str, photos: str, resolution: int, taken: dict[str, int] | None
) -> None:
    """A video alone, or the pictures beside it, several at a time and of their own resolution."""
    manifest = job(imageEmbeds={"mode": videos}).to_manifest() | {"batchSize": 8}
    manifest["data"]["datasets"][1] |= {
        "imageEmbeds": {"mode": photos},
        "resolution": resolution,
        "resolutionType": "Pixel",
    }
    training = Training.model_validate(manifest)
    wanted = vae_bytes(family_of(training.model).vae, **taken) if taken else 0
    assert encoder_bytes(training) == wanted


def test_a_video_counts_as_one_where_a_picture_has_more_tokens() -> None:
    training = job(imageEmbeds={"mode": "OnTheFly"}, video={"frames": 33})
    wanted = vae_bytes(family_of(training.model).vae, pictures=1, pixels=512 * 512, frames=33)
    assert encoder_bytes(training, image_tokens=1024, frames=1) == wanted


def test_a_plan_names_buckets_with_their_frames(tmp_path: Path) -> None:
    from oarlock_trainer.commands import plan_dry_run  # noqa: PLC0415 - torch, for those alone that need it
    from oarlock_trainer.commands.local_manifest import read_manifest  # noqa: PLC0415
    from oarlock_trainer.plan.words import describe  # noqa: PLC0415

    for number in range(4):
        write_video(tmp_path / "clips" / f"{number}.webm", frames=17 if number % 2 else 40)
    path = tmp_path / "job.yaml"
    path.write_text(
        """
        apiVersion: oarlock.dev/v1alpha1
        kind: TrainingJob
        metadata: {name: wan}
        spec:
          nodes: 1
          gpusPerNode: 2
          output: {persistentVolumeClaim: {claimName: out}}
          training:
            model: {family: Wan, path: /models/wan}
            steps: 10
            resolution: 64
            data: {datasets: [{name: clips, source: {path: /output/clips}, video: {}}]}
        """
    )
    here = {"/output": str(tmp_path), "/models/wan": str(tmp_path / "wan")}
    said = describe(plan_dry_run.dry_run(*read_manifest(path), here))
    assert "80x48x17" in said
    assert "80x48x33" in said
    assert "latents 53.8 kB" in said, "2 x 16 channels x (5 + 9) frames x 6 x 10 x 2 bytes"


def test_the_vae_is_counted_by_the_pixels_of_a_frame_and_not_of_all() -> None:
    training = job(imageEmbeds={"mode": "OnTheFly"}, video={"frames": 33})
    work = work_of(training, family_of(training.model).published, ranks=1, ranks_per_node=1)
    assert work.frames == 33
    (encoder,) = (one for one in need(work, recomputed=0).components if one.name == "encoder")
    assert encoder.bytes == vae_bytes(work.family.vae, pictures=1, pixels=512 * 512, frames=33)
    assert "1 x 33 frames of 0.26 megapixels" in encoder.arithmetic
