"""What a transformer that diffusers loaded predicts, beside what ours predicts with the same export: of any family.

Both answer the same inputs. The family's pipeline has to be imported before this.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch

from oarlock_api.engine import Attention
from oarlock_api.weights import Lora, ModelFamily
from oarlock_trainer.models import transformer
from oarlock_trainer.models.adapters import lora
from oarlock_trainer.models.compute.attention import attend_with
from oarlock_trainer.models.families import FAMILIES
from oarlock_trainer.models.family_codes import CODES
from oarlock_trainer.models.objective.loss import MicroBatch, predict

if TYPE_CHECKING:
    from pathlib import Path


@torch.no_grad()
def predicted(model: Any, key: ModelFamily) -> torch.Tensor:
    """Of two samples, always the same, in bfloat16, by our forward pass in a copy of the model.

    Without that pass, what was loaded as jobs load it need not be whole: positions may be missing.
    """
    copied = copy.deepcopy(model).eval()
    for name, parameter in copied.named_parameters():
        if "lora_" not in name:  # diffusers keeps parts of some models in float32
            parameter.data = parameter.data.to(torch.bfloat16)
    CODES[key].install(copied, attend=attend_with(Attention.SDPA), recomputed=0)
    return of_two_samples(copied, key, torch.bfloat16)


@torch.no_grad()
def of_two_samples(model: Any, key: ModelFamily, dtype: torch.dtype) -> torch.Tensor:
    """What a model with the family's forward pass predicts of two samples, always the same, in this type."""
    source = torch.Generator().manual_seed(0)
    shape = FAMILIES[key].architecture(model.config)

    def random(*size: int) -> torch.Tensor:
        return torch.randn(2, *size, generator=source)

    batch = MicroBatch(
        latents=random(shape.latent_channels, 8, 8), noise=random(shape.latent_channels, 8, 8),
        text=random(6, shape.text_width).to(dtype), pooled=random(shape.pooled_width).to(dtype),
        sigmas=torch.tensor([0.2, 0.7]), guidance=torch.ones(2), text_mask=None,
    )  # fmt: skip
    return predict(model, batch, velocity=CODES[key].velocity, has_guidance=shape.has_guidance)


def ours(key: ModelFamily, folder: Path, adapters: Path | None = None, *, rank: int = 0) -> torch.Tensor:
    """Our prediction with the weights of a folder, and with adapters of LoRA."""
    found: Any = transformer.load(folder)
    if adapters:
        lora.add_adapters(found, Lora(rank=rank), FAMILIES[key].presets, seed=0)
        lora.load(found, Lora(rank=rank), adapters)
    return predicted(found, key)
