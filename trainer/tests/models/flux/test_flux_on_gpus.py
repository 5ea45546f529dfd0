"""Pictures and gradients of our forward pass beside diffusers', on a GPU: of a tiny model, and of FLUX.1's own weights.

FLUX.1's are taken from the folder that OARLOCK_FLUX names. Upright and wide, eager and compiled.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from oarlock_api.engine import Attention, Compile
from oarlock_api.objective import Loss
from oarlock_trainer.ranks import preload

preload.settle_environment()
import torch  # noqa: E402 - reads the environment that was just settled

from oarlock_trainer.models import transformer  # noqa: E402
from oarlock_trainer.models.compute import attention  # noqa: E402
from oarlock_trainer.models.compute.compiled import compile_blocks  # noqa: E402
from oarlock_trainer.models.flux import forward  # noqa: E402
from oarlock_trainer.models.flux.family import FLUX1  # noqa: E402
from oarlock_trainer.models.flux.velocity import velocity  # noqa: E402
from oarlock_trainer.models.objective.loss import MicroBatch, flow_matching_loss  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
    pytest.mark.timeout(1800),
]
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
FLUX = os.environ.get("OARLOCK_FLUX", "")
weights = pytest.mark.skipif(not FLUX, reason="OARLOCK_FLUX names no folder with FLUX.1's weights")
models = pytest.mark.parametrize("own", [False, pytest.param(True, marks=weights)], ids=["tiny", "FLUX.1"])
modes = pytest.mark.parametrize("mode", ["None", "Default"], ids=["eager", "compiled"])
_IN_DIFFUSERS = Path(__file__).parents[2] / "support" / "pictures_in_diffusers.py"


@models
@modes
def test_a_validations_picture_is_that_of_diffusers_pipeline(
    tiny_flux: Path, record_property: Callable[[str, object], None], *, own: bool, mode: str
) -> None:
    model, sizes = (FLUX, ("512x768", "768x512")) if own else (str(tiny_flux), ("64x96", "96x64"))
    command = [sys.executable, str(_IN_DIFFUSERS), model, "--device", DEVICE, "--kinds", "bfloat16", "--trained", mode]
    said = subprocess.run([*command, "--sizes", *sizes], check=True, stdout=subprocess.PIPE, text=True).stdout
    found = json.loads(said.splitlines()[-1])
    assert len(found) == 4
    for name, apart in found.items():
        record_property(name, f"mean {apart['mean']:.2f}, most {apart['most']:.0f} of 255")
    # Bounds that were chosen, for bfloat16 in both: another picture, or another place in it, is tens of steps away.
    assert max(apart["mean"] for apart in found.values()) < 4.0
    assert min(apart["spread"] for apart in found.values()) > 10.0


def some_of(model: Any) -> dict[str, torch.Tensor]:
    """The only weights that are trained here: of first, middle and last blocks, of each kind of layer."""
    double, single = len(model.transformer_blocks) - 1, len(model.single_transformer_blocks) - 1
    names = {
        "x_embedder.weight", "context_embedder.weight", "proj_out.weight",
        "transformer_blocks.0.attn.to_q.weight", "transformer_blocks.0.attn.norm_k.weight",
        f"transformer_blocks.{double // 2}.ff.net.2.weight", f"transformer_blocks.{double}.norm1.linear.weight",
        "single_transformer_blocks.0.proj_mlp.weight", f"single_transformer_blocks.{single // 2}.attn.to_v.weight",
        f"single_transformer_blocks.{single}.proj_out.weight",
    }  # fmt: skip
    model.requires_grad_(requires_grad=False)
    found = {name: value for name, value in model.named_parameters() if name in names}
    assert found.keys() == names
    for value in found.values():
        value.requires_grad_(requires_grad=True)
    return found


def batch(model: Any, *, height: int, width: int, text: int) -> MicroBatch:
    """A sample of one size, in latents."""
    source = torch.Generator().manual_seed(0)
    channels = model.config.in_channels // 4

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=source)

    return MicroBatch(
        latents=draw(1, channels, height, width),
        noise=draw(1, channels, height, width),
        text=draw(1, text, model.config.joint_attention_dim).bfloat16(),
        pooled=draw(1, model.config.pooled_projection_dim).bfloat16(),
        sigmas=torch.tensor([0.6]),
        guidance=torch.ones(1),
        text_mask=None,
    ).to(torch.device(DEVICE))


def gradients(model: Any, given: MicroBatch) -> dict[str, torch.Tensor]:
    """Of the training loss, by name, in float32 on the CPU."""
    model.zero_grad(set_to_none=True)
    has_guidance = bool(model.config.guidance_embeds)
    flow_matching_loss(model, given, velocity=velocity, has_guidance=has_guidance, measure=Loss.MSE).backward()
    return {name: value.grad.float().cpu() for name, value in model.named_parameters() if value.grad is not None}


def exact(model: Any, given: MicroBatch) -> dict[str, torch.Tensor]:
    """diffusers' gradients in float32, from the same weights and inputs. The model is as before afterwards."""
    rounded = {name: getattr(given, name).float() for name in ("text", "pooled")}
    torch.nn.Module.to(model, torch.float32)
    model.enable_gradient_checkpointing()
    facts = {name: getattr(given, name) for name in ("latents", "noise", "sigmas", "guidance", "text_mask")}
    found = gradients(model, MicroBatch(**facts, **rounded))
    model.disable_gradient_checkpointing()
    torch.nn.Module.to(model, torch.bfloat16)
    return found


def distances(found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> dict[str, float]:
    assert found.keys() == wanted.keys()
    return {name: float((found[name] - wanted[name]).norm() / wanted[name].norm()) for name in wanted}


@models
@modes
def test_gradients_are_as_near_to_float32_as_those_of_diffusers_upright_and_wide(
    tiny_flux: Path, tmp_path: Path, record_property: Callable[[str, object], None], *, own: bool, mode: str
) -> None:
    model: Any = transformer.load(Path(FLUX) if own else tiny_flux, device=DEVICE)
    trained = some_of(model)
    sides = (96, 64) if own else (12, 8)
    sizes = {"upright": sides, "wide": sides[::-1]}
    given = {
        name: batch(model, height=height, width=width, text=512 if own else 32)
        for name, (height, width) in sizes.items()
    }
    wanted = {name: exact(model, one) for name, one in given.items()}
    theirs = {name: distances(gradients(model, one), wanted[name]) for name, one in given.items()}
    kernel = attention.choose(Attention.AUTO, device=torch.device(DEVICE), masked=False)
    forward.install(model, attend=attention.attend_with(kernel), recomputed=0)
    settings = Compile.model_validate({"mode": mode})
    compile_blocks(FLUX1.blocks_of(model), settings, device=torch.device(DEVICE), scratch=tmp_path)
    for name, one in given.items():
        ours = distances(gradients(model, one), wanted[name])
        assert ours.keys() == trained.keys()
        record_property(name, f"ours {max(ours.values()):.4f}, diffusers' {max(theirs[name].values()):.4f}")
        assert max(ours.values()) < 1.2 * max(theirs[name].values())
        assert all(ours[weight] < 1.5 * theirs[name][weight] for weight in ours), (ours, theirs[name])
