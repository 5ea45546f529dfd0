"""FLUX.1 with a reference in channels beside the noise: prediction and gradients are diffusers' own."""

from __future__ import annotations

import pytest

from oarlock_trainer.ranks import preload

preload.settle_environment()
import torch  # noqa: E402 - reads the environment that was just settled
from diffusers import FluxControlPipeline, FluxFillPipeline, FluxTransformer2DModel  # noqa: E402 - before anything of ours
from flux_pair import distance, worst  # noqa: E402

from oarlock_api.engine import Attention  # noqa: E402
from oarlock_trainer.models.compute.attention import attend_with  # noqa: E402
from oarlock_trainer.models.family import Reference  # noqa: E402
from oarlock_trainer.models.flux import forward  # noqa: E402
from oarlock_trainer.models.flux.family import FLUX1  # noqa: E402
from oarlock_trainer.models.flux.velocity import pack, unpack, velocity_beside  # noqa: E402

FLOAT32 = 1e-5
"""Relative distance in float32: of the prediction, and of each parameter's gradient."""
CHANNELS = 4
PIPELINES = {Reference.HOLES: FluxFillPipeline, Reference.BESIDE: FluxControlPipeline}


@pytest.mark.parametrize("recomputed", [0, 4])
@pytest.mark.parametrize("beside", PIPELINES)
def test_prediction_and_gradients_are_those_of_diffusers(beside: Reference, recomputed: int) -> None:
    extra = beside.channels(CHANNELS, FLUX1.grid)
    torch.manual_seed(0)
    theirs, mine = (
        FluxTransformer2DModel(
            in_channels=4 * (CHANNELS + extra), out_channels=4 * CHANNELS, num_layers=2, num_single_layers=2,
            attention_head_dim=16, num_attention_heads=4, joint_attention_dim=24, pooled_projection_dim=8,
            guidance_embeds=True, axes_dims_rope=(4, 4, 8),
        )
        for _ in range(2)
    )  # fmt: skip
    mine.load_state_dict(theirs.state_dict())
    forward.install(mine, attend=attend_with(Attention.SDPA), recomputed=recomputed)
    noisy, target = torch.randn(2, CHANNELS, 8, 12), torch.randn(2, CHANNELS, 8, 12)
    reference, text, pooled = torch.randn(2, extra, 8, 12), torch.randn(2, 9, 24), torch.randn(2, 8)
    sigmas, guidance = torch.tensor([0.25, 0.5]), torch.tensor([10.0, 30.0])
    ids = PIPELINES[beside]._prepare_latent_image_ids(1, 4, 6, torch.device("cpu"), torch.float32)
    # Latents of the reference, and behind them the holes, if it has such: each is packed by itself.
    parts = [pack(noisy), pack(reference[:, :CHANNELS]), *([pack(reference[:, CHANNELS:])] if extra > CHANNELS else [])]
    wanted = unpack(
        theirs(
            hidden_states=torch.cat(parts, dim=2), encoder_hidden_states=text, pooled_projections=pooled,
            timestep=sigmas, guidance=guidance, img_ids=ids, txt_ids=torch.zeros(9, 3), return_dict=False,
        )[0], channels=CHANNELS, height=8, width=12,
    )  # fmt: skip
    found = velocity_beside(
        mine, noisy, sigmas, text=text, pooled=pooled, text_mask=None, guidance=guidance, reference=reference
    )
    assert distance(found, wanted) < FLOAT32
    gradients = []
    for network, prediction in ((mine, found), (theirs, wanted)):
        (prediction - target).square().mean().backward()
        gradients.append({name: one.grad for name, one in network.named_parameters() if one.grad is not None})
    assert worst(*gradients) < FLOAT32
