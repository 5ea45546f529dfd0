"""Real runs on videos and pictures together: two processes, killed and resumed, latents cached or made while training."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tiny_models import made_tiny
from videos import write_video

from oarlock_trainer.checkpoint.format import valid_checkpoints

if TYPE_CHECKING:
    from pathlib import Path

    from gang import Gang, Run

pytestmark = pytest.mark.deep

STEPS = 6
VIDEO = {"frames": 9, "minFrames": 5, "frameInterval": 4}
ROUNDING = 1e-3
"""Relative: sums of gradients come in another order, and weights are rounded to bfloat16 in each step."""


@dataclass(frozen=True)
class Trained:
    """A job and what came of it undisturbed."""

    job: dict[str, Any]
    output: Path
    run: Run


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight videos of two lengths, in which a bright square moves; one that is too short, and one that is none."""
    folder = tmp_path_factory.mktemp("clips")
    for number in range(8):
        frames = 12 if number % 2 else 6
        drawn = np.full((frames, 48, 64, 3), 20 * number, np.uint8)
        for place in range(frames):
            drawn[place, 10:26, 3 * place : 3 * place + 16] = 230
        write_video(
            folder / f"{number}.{'mp4' if number < 4 else 'webm'}", drawn=drawn, text=f"a square moves, {number}"
        )
    write_video(folder / "short.webm", frames=3)
    (folder / "torn.mp4").write_bytes(b"no video")
    return folder


def job(gang: Gang, home: Path, clips: Path, model: Path, **dataset: Any) -> dict[str, Any]:
    sets = [
        {"name": "clips", "source": {"path": str(clips)}, "video": VIDEO, "randomFlip": True} | dataset,
        {"name": "photos", "source": {"path": str(gang.pictures)}},
    ]
    caches = {name: {"path": str(home / name)} for name in ("textEmbeds", "imageEmbeds")}
    return gang.training(
        model={"family": "Wan", "path": str(model)}, steps=STEPS, batchSize=1, effectiveBatch=4,
        checkpoint={"intervalSteps": 2}, objective={"captionDropout": 0.2}, data=gang.data(**caches, datasets=sets),
    )  # fmt: skip


@pytest.fixture(scope="module")
def undisturbed(gang: Gang, clips: Path, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    home = tmp_path_factory.mktemp("videos")
    training = job(gang, home, clips, made_tiny("wan"))
    return Trained(training, home / "output", gang.run(home / "output", training))


def test_a_job_learns_from_videos_and_pictures_and_tells_their_buckets(undisturbed: Trained, gang: Gang) -> None:
    assert undisturbed.run.codes == {0: 0, 1: 0}, gang.log()
    assert list(undisturbed.run.losses) == list(range(1, STEPS + 1))
    clips, photos = json.loads((undisturbed.output / "reports/buckets.json").read_text())["datasets"]
    assert [(one["width"], one["height"], one["frames"], one["pictures"]) for one in clips["buckets"]] == [
        (80, 48, 5, 4), (80, 48, 9, 4),
    ]  # fmt: skip
    assert (clips["leftOut"], clips["quarantined"]) == ({"video.minFrames": 1}, {"unreadable": 1})
    assert {one["frames"] for one in photos["buckets"]} == {1}


def test_killed_the_next_attempt_repeats_the_undisturbed_losses_exactly(
    undisturbed: Trained, gang: Gang, tmp_path: Path
) -> None:
    def kill(event: dict[str, Any]) -> None:
        if event["event"] == "checkpoint" and (event["rank"], event["step"]) == (1, 2):
            gang.kill(1)

    crashed = gang.run(tmp_path, undisturbed.job, on_event=kill)
    assert crashed.codes[1] == -9
    newest = valid_checkpoints(tmp_path)[0].step
    resumed = gang.run(tmp_path, undisturbed.job, attempt=2)
    assert resumed.codes == {0: 0, 1: 0}, gang.log()
    assert resumed.losses == {step: loss for step, loss in undisturbed.run.losses.items() if step > newest}


@pytest.mark.parametrize("mode", ["OnTheFly", "OnDemand"])
def test_latents_that_are_made_while_training_are_those_that_are_cached(
    undisturbed: Trained, gang: Gang, clips: Path, tmp_path: Path, mode: str
) -> None:
    """A video is encoded by itself, so nothing rounds differently beside others."""
    model = undisturbed.job["model"]["path"]
    training = job(gang, tmp_path, clips, model, imageEmbeds={"mode": mode})
    run = gang.run(tmp_path / "output", training)
    assert run.codes == {0: 0, 1: 0}, gang.log()
    assert run.losses == undisturbed.run.losses


def test_one_rank_learns_what_two_do(undisturbed: Trained, gang: Gang, tmp_path: Path) -> None:
    alone = gang.run(tmp_path, undisturbed.job, ranks=1)
    assert alone.codes == {0: 0}, gang.log()
    assert alone.losses == pytest.approx(undisturbed.run.losses, rel=ROUNDING)
