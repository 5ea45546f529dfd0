"""What a plan takes for granted of Wan's VAE at work on videos; of pictures and of all else: test_counted.py."""

from __future__ import annotations

import pytest

from oarlock_trainer.plan.encoding import vae_bytes
from oarlock_trainer.ranks import preload

preload.settle_environment()
import torch  # noqa: E402 - reads the environment that was just settled
from alive import Alive  # noqa: E402
from diffusers import AutoencoderKLWan  # noqa: E402

from oarlock_trainer.models.wan.family import WAN  # noqa: E402

_BFLOAT16 = torch.bfloat16


@pytest.mark.parametrize("frames", [5, 17, 81])
def test_of_a_video_the_vae_has_no_more_alive_than_is_planned_for_and_little_less(frames: int) -> None:
    """It takes four frames at a time, and keeps what the next ones need: of five frames there are no such."""
    with torch.device("meta"):
        vae = AutoencoderKLWan().to(_BFLOAT16)
        video = torch.empty(1, 3, frames, 256, 256, dtype=_BFLOAT16)
    with torch.no_grad(), Alive() as alive:
        vae.encode(video)
    planned = vae_bytes(WAN.vae, pictures=1, pixels=256 * 256, frames=frames)
    found = sum(weight.nbytes for weight in vae.parameters()) + alive.most
    assert (0.85 if frames == 5 else 0.95) * planned < found <= planned
