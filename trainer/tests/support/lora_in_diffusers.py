"""What diffusers' own pipeline predicts with the adapters of a folder, beside what our model predicts with them.

    python lora_in_diffusers.py MODEL ADAPTERS RANK [DEVICE]

Both answer the same inputs. Writes JSON: how far they are apart, how far theirs is from the base model's answer, and, as a
share of what the adapters change, how far the base model with ComfyUI's sums in its weights is from ours, in float32. A
process of its own, because the pipeline has to be imported before anything of ours.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from diffusers import FluxPipeline
from safetensors.torch import load_file

from oarlock_api.weights import Lora
from oarlock_trainer.models import transformer
from oarlock_trainer.models.adapters import lora
from oarlock_trainer.models.flux.family import FLUX1
from oarlock_trainer.models.flux.velocity import velocity
from oarlock_trainer.models.objective.loss import MicroBatch, predict


def batch_for(model: Any, kind: torch.dtype, device: torch.device) -> MicroBatch:
    """Two samples, the same for every type and device but for rounding."""
    source = torch.Generator().manual_seed(0)
    config = model.config
    channels = config.in_channels // 4
    return MicroBatch(
        latents=torch.randn(2, channels, 8, 8, generator=source),
        noise=torch.randn(2, channels, 8, 8, generator=source),
        text=torch.randn(2, 6, config.joint_attention_dim, generator=source).to(torch.bfloat16).to(kind),
        pooled=torch.randn(2, config.pooled_projection_dim, generator=source).to(torch.bfloat16).to(kind),
        sigmas=torch.tensor([0.2, 0.7]),
        guidance=torch.ones(2),
        text_mask=None,
    ).to(device)


def predicted(model: Any, kind: torch.dtype, device: torch.device) -> torch.Tensor:
    """On the CPU."""
    has_guidance = bool(model.config.guidance_embeds)
    return predict(model, batch_for(model, kind, device), velocity=velocity, has_guidance=has_guidance).cpu()


def merge_as_comfyui(model: Any, adapters: Path) -> None:
    """Add to each layer's weight what ComfyUI adds at strength 1: load_lora of comfy/lora.py, and calculate_weight of
    comfy/weight_adapter/lora.py (commit 0323d87). No metadata is read; an alpha is `.alpha`, else the scale is 1."""
    content = load_file(adapters / lora.FILE)
    for name, layer in model.named_modules():
        if hasattr(layer, "get_delta_weight"):
            up, down, alpha = (
                content.pop(f"transformer.{name}.{key}", None) for key in ("lora_B.weight", "lora_A.weight", "alpha")
            )
            scale = alpha.item() / down.shape[0] if alpha is not None else 1.0
            weight = layer.base_layer.weight
            weight += scale * torch.mm(up.to(weight), down.to(weight))
    assert not content, f"for no layer of the model: {list(content)[:3]}"


@torch.no_grad()
def ours(model: Path, adapters: Path, rank: int, device: torch.device) -> tuple[torch.Tensor, float]:
    """Our prediction in bfloat16, and how far ComfyUI's is from ours in float32, as a share of what the adapters change."""
    found: Any = transformer.load(model, device=device)
    settings = Lora(rank=rank)
    lora.add_adapters(found, settings, FLUX1.presets, seed=0)
    lora.load(found, settings, adapters)
    found = found.to(device).eval()
    mine = predicted(found, torch.bfloat16, device)
    torch.nn.Module.to(found, torch.float32)
    exact = predicted(found, torch.float32, device)
    with lora.without_adapters(found):
        base = predicted(found, torch.float32, device)
        merge_as_comfyui(found, adapters)
        merged = predicted(found, torch.float32, device)
    return mine, float((merged - exact).norm() / (exact - base).norm())


@torch.no_grad()
def main(model: Path, adapters: Path, rank: int, device: torch.device) -> dict[str, float]:
    """One model on the device at a time."""
    mine, comfyui = ours(model, adapters, rank, device)
    pipeline = FluxPipeline.from_pretrained(model, dtype=torch.bfloat16)
    pipeline.transformer.to(device)
    base = predicted(pipeline.transformer, torch.bfloat16, device)
    pipeline.load_lora_weights(adapters)
    theirs = predicted(pipeline.transformer, torch.bfloat16, device)
    apart = {name: float((theirs - other).abs().max()) for name, other in (("apart", mine), ("moved", base))}
    return apart | {"comfyui": comfyui}


if __name__ == "__main__":
    place = torch.device(sys.argv[4] if len(sys.argv) > 4 else "cpu")
    sys.stdout.write(json.dumps(main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), place)))
