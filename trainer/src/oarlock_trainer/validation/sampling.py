"""From noise to latents: the denoising loop, over the module that is being trained.

It computes what diffusers' pipeline of the family does with the same weights, noise, prompts and scheduler: in float32 to
the last digits, in bfloat16 as far as its rounding goes (here latents stay float32 between the steps, and the noise level is
rounded as in training). No text encoder, no copy of the weights, no global random numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from oarlock_trainer.models.classes import imported
from oarlock_trainer.models.family import SCHEDULER
from oarlock_trainer.models.folder import loading

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from torch import Tensor, nn

    from oarlock_trainer.models.family import Family, Grid
    from oarlock_trainer.models.family_code import FamilyCode


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A prompt's sequence (1, T, t) and pooled vector (1, p), in the type that the model computes in."""

    sequence: Tensor
    pooled: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Guidance:
    """`told`: the value that the model is told, None where the model has none. `scale` 1 = one pass for each step.

    Above, the direction is made of two passes, as the family makes it (models/guidance.py).
    """

    told: float | None
    scale: float
    negative: Text


def read_scheduler(model: Path, family: Family) -> Any:
    """The scheduler that comes with a model. Raises ConfigurationError where there is none."""
    kind = imported(family.scheduler)
    with loading(model / SCHEDULER):
        return kind.from_config(kind.load_config(model / SCHEDULER, local_files_only=True))


def draw_noise(seed: int, grid: Grid, *, channels: int, width: int, height: int, frames: int = 1) -> Tensor:
    """(1, C, h, w) float32 for a picture of this size in pixels; of a video C is channels x its latent frames.

    It is what diffusers draws for a generator of the CPU with this seed.
    """
    source = torch.Generator().manual_seed(seed)
    channels *= grid.latent_frames(frames)
    return torch.randn((1, channels, height // grid.pixels, width // grid.pixels), generator=source)


@torch.no_grad()
def denoise(
    model: nn.Module,
    noise: Tensor,
    text: Text,
    *,
    reference: Tensor | None = None,
    family: Family,
    code: FamilyCode,
    guidance: Guidance,
    scheduler: Any,
    steps: int,
    go_on: Callable[[], None],
) -> Tensor:
    """Latents (1, C, h, w) float32, from noise of this shape. `go_on` is called before each step, and may raise to stop.

    `reference` (1, R, h', w') is given to the model in each step, in both passes where there are two.
    """
    latents = noise.float()
    # Of a video the tokens of one frame: where there are videos, all are drawn at the same levels.
    code.set_noise_levels(scheduler, steps, noise.shape[-1] * noise.shape[-2] // family.grid.patch**2)
    given = {} if reference is None else {"reference": reference}
    told = None if guidance.told is None else torch.full((1,), guidance.told, device=noise.device)

    def direction(text: Text, latents: Tensor, sigma: Tensor) -> Tensor:
        sigmas = sigma.to(noise.device)[None]
        return code.velocity(
            model, latents, sigmas, text=text.sequence, pooled=text.pooled, text_mask=None, guidance=told, **given
        ).float()

    for timestep in scheduler.timesteps:
        go_on()
        predicted = direction(text, latents, timestep / 1000)
        if guidance.scale != 1.0:
            negative = direction(guidance.negative, latents, timestep / 1000)
            predicted = code.guide(predicted, negative, guidance.scale)
        latents = scheduler.step(predicted, timestep, latents, return_dict=False)[0]
    return latents
