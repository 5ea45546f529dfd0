"""What only a machine with GPUs can show, on all that it has: the fork, contexts, stages, masks, other numbers of ranks.

Marked gpu, and skipped where there is none. What needs FLUX.1's own weights is skipped unless OARLOCK_FLUX names their
folder.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from oarlock_trainer.ranks import preload

if TYPE_CHECKING:
    from gang import Gang, Run

preload.settle_environment()
import torch  # noqa: E402 - reads the environment that was just settled

from oarlock_api.engine import Attention, Compile  # noqa: E402
from oarlock_trainer.models import transformer  # noqa: E402
from oarlock_trainer.models.compute import attention  # noqa: E402
from oarlock_trainer.models.compute.compiled import compile_blocks  # noqa: E402
from oarlock_trainer.models.flux import forward  # noqa: E402
from oarlock_trainer.models.flux.family import FLUX1  # noqa: E402
from oarlock_trainer.models.flux.velocity import velocity  # noqa: E402
from oarlock_trainer.models.objective.loss import MicroBatch, predict  # noqa: E402

COUNT = torch.cuda.device_count() if torch.cuda.is_available() else 0
FLUX = os.environ.get("OARLOCK_FLUX", "")
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not COUNT, reason="needs a CUDA GPU")]
several = pytest.mark.skipif(COUNT < 2, reason="needs two GPUs")
weights = pytest.mark.skipif(not FLUX, reason="OARLOCK_FLUX names no folder with FLUX.1's weights")
_LORA_IN_DIFFUSERS = Path(__file__).parents[1] / "support" / "lora_in_diffusers.py"


def run(gang: Gang, output: Path, *, ranks: int = COUNT, on_event: Any = lambda _event: None, **fields: Any) -> Run:
    """A job on this many GPUs, to its end."""
    attempt = fields.pop("attempt", 1)
    facts = {"ranks": ranks, "gpus_per_node": ranks, "attempt": attempt, "on_event": on_event}
    found = gang.run(output, gang.training(**fields), **facts)
    assert set(found.codes.values()) == {0}, gang.log()
    return found


@several
def test_after_two_saves_each_gpu_has_one_process(gpu_gang: Gang, tmp_path: Path) -> None:
    import pynvml  # noqa: PLC0415

    pynvml.nvmlInit()
    contexts: list[list[int]] = []

    def count(event: dict[str, Any]) -> None:
        if event["event"] == "checkpoint":
            handles = map(pynvml.nvmlDeviceGetHandleByIndex, range(COUNT))
            contexts.append([len(pynvml.nvmlDeviceGetComputeRunningProcesses(handle)) for handle in handles])

    run(gpu_gang, tmp_path, on_event=count, checkpoint={"intervalSteps": 3}, steps=8)
    pynvml.nvmlShutdown()
    assert len(contexts) >= 2
    # This very process may have a context on the first GPU by now.
    assert all(set(counts[1:]) == {1} and counts[0] <= 2 for counts in contexts)


@several
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("engine", [{"zeroStage": 2}, {"zeroStage": 3}, {"overlapCommunication": False}], ids=str)
def test_stages_and_overlap_have_the_losses_of_stage_1_over_200_steps(
    gpu_gang: Gang, tmp_path: Path, engine: dict[str, Any]
) -> None:
    fields: dict[str, Any] = {"steps": 200, "checkpoint": {}}
    plain = run(gpu_gang, tmp_path / "plain", engine={"strategy": "DeepSpeed"}, **fields)
    other = run(gpu_gang, tmp_path / "other", engine={"strategy": "DeepSpeed", **engine}, **fields)
    assert list(other.losses.values()) == pytest.approx(list(plain.losses.values()), rel=1e-2)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("masked", [False, True])
def test_a_thousand_steps_with_the_vae_beside_them_skip_no_update(
    gpu_gang: Gang, tmp_path: Path, *, masked: bool
) -> None:
    photos = {"name": "photos", "source": {"path": str(gpu_gang.pictures)}, "imageEmbeds": {"mode": "OnTheFly"}}
    data = gpu_gang.data(datasets=[photos])
    found = run(gpu_gang, tmp_path, steps=1000, checkpoint={}, data=data, objective={"attentionMask": masked})
    assert len(found.losses) == 1000
    assert max(event.get("skippedUpdates") or 0 for event in found.of("step")) == 0


@several
def test_a_run_goes_on_with_half_the_gpus_and_with_all_again(gpu_gang: Gang, tmp_path: Path) -> None:
    half = COUNT // 2
    for attempt, ranks, steps, turns in ((1, 2 * half, 8, 1), (2, half, 16, 2), (3, 2 * half, 24, 1)):
        found = run(gpu_gang, tmp_path, ranks=ranks, attempt=attempt, steps=steps, gradientAccumulation=turns)
        assert (min(found.losses), max(found.losses)) == (steps - 7, steps)
        assert all(torch.isfinite(torch.tensor(loss)) for loss in found.losses.values())


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("own", [False, pytest.param(True, marks=weights)], ids=["tiny", "FLUX.1"])
def test_adapters_trained_on_gpus_are_as_strong_in_diffusers_and_by_comfyuis_sums(
    gpu_gang: Gang, tmp_path: Path, *, own: bool
) -> None:
    model = FLUX if own else str(gpu_gang.model)
    fields: dict[str, Any] = {"resolution": 512, "batchSize": 1} if own else {}
    fields |= {"model": {"family": "Flux1", "path": model}, "method": "LoRA", "lora": {"rank": 4, "alpha": 8}}
    store = {name: {"path": str(tmp_path / name)} for name in ("textEmbeds", "imageEmbeds")}
    run(gpu_gang, tmp_path / "job", data=gpu_gang.data(**store), checkpoint={}, **fields)
    command = [sys.executable, str(_LORA_IN_DIFFUSERS), model, str(tmp_path / "job" / "model"), "4", "cuda"]
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    found = json.loads(said.splitlines()[-1])
    assert found["moved"] > 0.0
    assert found["apart"] <= 0.1 * found["moved"]
    assert found["comfyui"] < 0.01


def batch(model: Any, *, height: int, width: int) -> MicroBatch:
    """A sample of one size, in latents of 16 channels."""
    source = torch.Generator("cuda").manual_seed(0)
    channels = model.config.in_channels // 4

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=source, device="cuda")

    return MicroBatch(
        latents=draw(1, channels, height, width),
        noise=draw(1, channels, height, width),
        text=draw(1, 512, model.config.joint_attention_dim).bfloat16(),
        pooled=draw(1, model.config.pooled_projection_dim).bfloat16(),
        sigmas=torch.tensor([0.6], device="cuda"),
        guidance=torch.ones(1, device="cuda"),
        text_mask=None,
    )


@weights
@pytest.mark.parametrize(("height", "width"), [(128, 128), (160, 96), (96, 160)], ids=["square", "upright", "wide"])
@pytest.mark.parametrize("compiled", [False, True])
def test_flux_predicts_what_diffusers_own_blocks_predict(
    tmp_path: Path, *, height: int, width: int, compiled: bool
) -> None:
    # No torch.no_grad: compiled code runs where gradients may be wanted.
    model = transformer.load(Path(FLUX)).cuda().eval().requires_grad_(requires_grad=False)
    given = batch(model, height=height, width=width)
    theirs = predict(model, given, velocity=velocity, has_guidance=True).float()
    kernel = attention.choose(Attention.AUTO, device=torch.device("cuda"), masked=False)
    forward.install(model, attend=attention.attend_with(kernel), recomputed=0)
    if compiled:
        settings = Compile.model_validate({"mode": "Default"})
        compile_blocks(FLUX1.blocks_of(model), settings, device=torch.device("cuda"), scratch=tmp_path)
    ours = predict(model, given, velocity=velocity, has_guidance=True).float()
    assert float((ours - theirs).norm() / theirs.norm()) < 0.02
