"""Real runs of the families beside FLUX.1, which all other files train: two processes, killed and resumed, then one alone."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import torch
from diffusers import (  # before ours: a rank imports less of diffusers
    Flux2KleinPipeline,
    QwenImagePipeline,
    StableDiffusion3Pipeline,
    WanPipeline,
    ZImagePipeline,
)
from exports_in_diffusers import ours, predicted
from tiny_models import made_tiny

from oarlock_api.weights import ModelFamily
from oarlock_trainer.checkpoint.format import valid_checkpoints
from oarlock_trainer.data.buckets import Size
from oarlock_trainer.data.video_files import VideoHeader, opened
from oarlock_trainer.models.families import FAMILIES

if TYPE_CHECKING:
    from pathlib import Path

    from gang import Gang, Run

PIPELINES = {
    ModelFamily.FLUX2: Flux2KleinPipeline,
    ModelFamily.Z_IMAGE: ZImagePipeline,
    ModelFamily.STABLE_DIFFUSION_3: StableDiffusion3Pipeline,
    ModelFamily.QWEN_IMAGE: QwenImagePipeline,
    ModelFamily.WAN: WanPipeline,
}
pytestmark = pytest.mark.deep
STEPS, RANK, FRAMES = 4, 4, 5
TOLERANCE = 1e-5
"""Relative: the sum of a step's gradients comes in another order."""
ROUNDING = 1e-3
"""Relative, of weights in shares, in bfloat16."""


@dataclass(frozen=True)
class Trained:
    """A family's tiny model, its job and what came of it undisturbed."""

    family: ModelFamily
    model: Path
    job: dict[str, Any]
    output: Path
    run: Run


@pytest.fixture(scope="module", params=[one for one in ModelFamily if one is not ModelFamily.FLUX1], ids=str)
def undisturbed(request: pytest.FixtureRequest, gang: Gang, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """Some captions are left out; at the end there are pictures or videos, of two passes for each step."""
    home, model = tmp_path_factory.mktemp(request.param), made_tiny(FAMILIES[request.param].slug)
    caches = {name: {"path": str(home / name)} for name in ("textEmbeds", "imageEmbeds")}
    pictures = {
        "everySteps": STEPS, "prompts": [{"name": "boat", "prompt": "a boat"}], "resolutions": ["64x48"],
        "inferenceSteps": 2, "negativePrompt": "rain", "guidance": 3.0,
        "frames": FRAMES if FAMILIES[request.param].is_video else 1,
    }  # fmt: skip
    job = gang.training(
        model={"family": request.param, "path": str(model)}, steps=STEPS, batchSize=2, effectiveBatch=4,
        checkpoint={"intervalSteps": 2}, objective={"captionDropout": 0.2}, data=gang.data(**caches), validation=pictures,
    )  # fmt: skip
    return Trained(request.param, model, job, home / "output", gang.run(home / "output", job))


def test_it_trains_draws_pictures_and_exports_what_diffusers_loads(undisturbed: Trained, gang: Gang) -> None:
    """Buffers that are saved with the weights, too."""
    assert undisturbed.run.codes == {0: 0, 1: 0}, gang.log()
    assert list(undisturbed.run.losses) == list(range(1, STEPS + 1))
    assert (undisturbed.output / f"validation/step-{STEPS}/boat-64x48.png").is_file()
    family, export = undisturbed.family, undisturbed.output / "model"
    pipeline = PIPELINES[family].from_pretrained(export, dtype=torch.bfloat16)
    theirs = predicted(pipeline.transformer, family)
    assert torch.equal(theirs, ours(family, export))
    assert not torch.equal(theirs, ours(family, undisturbed.model))
    given: dict[str, Any] = {"prompt": "a boat", "height": 64, "width": 48, "num_inference_steps": 2}
    if FAMILIES[family].is_video:
        with (
            (undisturbed.output / f"validation/step-{STEPS}/boat-64x48.webm").open("rb") as file,
            opened(file) as video,
        ):
            assert video.header == VideoHeader(Size(64, 48), FRAMES, FAMILIES[family].fps)
            assert [frame.shape for frame in video.sample(range(FRAMES))] == [(48, 64, 3)] * FRAMES
        (pictures,) = pipeline(**given, num_frames=FRAMES, output_type="pil").frames
        assert len(pictures) == FRAMES
    else:
        pictures = pipeline(**given).images
    assert pictures[0].size == (48, 64)


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


def test_one_rank_goes_on_where_two_were(undisturbed: Trained, gang: Gang, tmp_path: Path) -> None:
    shutil.copytree(undisturbed.output, tmp_path, dirs_exist_ok=True)
    shutil.rmtree(tmp_path / f"checkpoints/step-{STEPS}-a1")
    (tmp_path / ".oarlock/finished").unlink()
    alone = gang.run(tmp_path, undisturbed.job, ranks=1, attempt=2)
    assert alone.codes == {0: 0}, gang.log()
    wanted = {step: loss for step, loss in undisturbed.run.losses.items() if step > 2}
    assert alone.losses == pytest.approx(wanted, rel=TOLERANCE)


def test_weights_in_shares_give_the_same_losses(undisturbed: Trained, gang: Gang, tmp_path: Path) -> None:
    """Also of parameters that are no layer's, such as tokens that pad."""
    fields = {"engine": {"strategy": "DeepSpeed", "zeroStage": 3}, "validation": None, "checkpoint": {}, "steps": 2}
    run = gang.run(tmp_path, undisturbed.job | fields)
    assert run.codes == {0: 0, 1: 0}, gang.log()
    assert run.losses[1] == pytest.approx(undisturbed.run.losses[1], rel=ROUNDING)


def test_adapters_of_a_quantized_model_with_masks_are_exported_and_loaded_by_the_pipeline(
    undisturbed: Trained, gang: Gang, tmp_path: Path
) -> None:
    """All blocks are recomputed, and the shift of noise levels is the family's."""
    fields = {
        "method": "LoRA", "lora": {"rank": RANK, "quantizeBase": "Int8"}, "activationCheckpointing": {"mode": "Full"},
        "objective": {"attentionMask": True, "autoShift": True}, "steps": 2, "validation": None, "checkpoint": {},
    }  # fmt: skip
    run = gang.run(tmp_path, undisturbed.job | fields)
    assert run.codes == {0: 0, 1: 0}, gang.log()
    assert [path.name for path in (tmp_path / "model").iterdir()] == ["pytorch_lora_weights.safetensors"]
    family = undisturbed.family
    pipeline = PIPELINES[family].from_pretrained(undisturbed.model, dtype=torch.bfloat16)
    pipeline.load_lora_weights(tmp_path / "model")
    theirs = predicted(pipeline.transformer, family)
    assert torch.equal(theirs, ours(family, undisturbed.model, tmp_path / "model", rank=RANK))
    assert not torch.equal(theirs, ours(family, undisturbed.model))
