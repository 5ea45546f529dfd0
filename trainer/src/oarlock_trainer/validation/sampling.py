"""From noise to latents: the denoising loop of FLUX.1, over the module that is being trained.

It computes what diffusers' FluxPipeline does with the same weights, noise, prompts and scheduler: in float32 to the last
digits, in bfloat16 as far as its rounding goes (here latents stay float32 between the steps, and the noise level is
rounded as in training). No text encoder, no copy of the weights, no global random numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from oarlock_trainer.models.classes import scheduler_class
from oarlock_trainer.models.folder import loading
from oarlock_trainer.models.objective.loss import image_ids, pack, text_ids
from oarlock_trainer.validation.image_requests import SCHEDULER

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from torch import Tensor, nn


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A prompt's T5 sequence (1, T, d) and CLIP vector (1, p), in the type that the model computes in."""

    sequence: Tensor
    pooled: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Guidance:
    """`told`: the value for the guidance embedding, None where the model has none. `scale` 1 = one pass for each step.

    Above, the direction is negative + scale x (prompt - negative), of two passes: classifier-free guidance itself.
    """

    told: float | None
    scale: float
    negative: Text


def read_scheduler(model: Path) -> Any:
    """The scheduler that comes with a model. Raises ConfigurationError where there is none."""
    kind = scheduler_class()
    with loading(model / SCHEDULER):
        return kind.from_config(kind.load_config(model / SCHEDULER, local_files_only=True))


def draw_noise(seed: int, *, channels: int, width: int, height: int) -> Tensor:
    """(1, channels, height / 8, width / 8) float32: what diffusers draws for a generator of the CPU with this seed."""
    source = torch.Generator().manual_seed(seed)
    return torch.randn((1, channels, height // 8, width // 8), generator=source)


@torch.no_grad()
def denoise(
    model: nn.Module,
    noise: Tensor,
    text: Text,
    *,
    guidance: Guidance,
    scheduler: Any,
    steps: int,
    go_on: Callable[[], None],
) -> Tensor:
    """Latents (1, C, h, w) float32, from noise of this shape. `go_on` is called before each step, and may raise to stop."""
    *_, channels, height, width = noise.shape
    tokens = pack(noise).float()
    _set_noise_levels(scheduler, steps, image_tokens=tokens.shape[1])
    ids = image_ids(height, width, noise.device)
    told = None if guidance.told is None else torch.full((1,), guidance.told, device=noise.device)

    def direction(text: Text, tokens: Tensor, sigma: Tensor) -> Tensor:
        kind = text.sequence.dtype
        predicted: Tensor = model(
            hidden_states=tokens.to(kind),
            encoder_hidden_states=text.sequence,
            pooled_projections=text.pooled,
            timestep=sigma.to(noise.device, kind)[None],
            guidance=None if told is None else told.to(kind),
            img_ids=ids,
            txt_ids=text_ids(text.sequence.shape[1], noise.device),
            return_dict=False,
        )[0]
        return predicted.float()

    for timestep in scheduler.timesteps:
        go_on()
        predicted = direction(text, tokens, timestep / 1000)
        if guidance.scale != 1.0:
            negative = direction(guidance.negative, tokens, timestep / 1000)
            predicted = negative + guidance.scale * (predicted - negative)
        tokens = scheduler.step(predicted, timestep, tokens, return_dict=False)[0]
    return unpack(tokens, channels=channels, height=height, width=width)


def unpack(tokens: Tensor, *, channels: int, height: int, width: int) -> Tensor:
    """(B, h/2 x w/2, 4 C) -> (B, C, h, w): the inverse of loss.pack."""
    patches = tokens.reshape(len(tokens), height // 2, width // 2, channels, 2, 2)
    return patches.permute(0, 3, 1, 4, 2, 5).reshape(len(tokens), channels, height, width)


def _set_noise_levels(scheduler: Any, steps: int, *, image_tokens: int) -> None:
    """Give the scheduler its noise levels, as FluxPipeline does: larger pictures stay noisy for longer."""
    found = scheduler.config
    few, many = found.get("base_image_seq_len", 256), found.get("max_image_seq_len", 4096)
    low, high = found.get("base_shift", 0.5), found.get("max_shift", 1.15)
    shift = low + (high - low) * (image_tokens - few) / (many - few)
    if found.get("use_flow_sigmas"):
        scheduler.set_timesteps(steps, mu=shift)
    else:
        scheduler.set_timesteps(sigmas=np.linspace(1.0, 1 / steps, steps), mu=shift)
    scheduler.set_begin_index(0)
