"""FLUX.1's tokens, and what its encoders do on a device, beside what test_captions.py and test_pictures.py promise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from oarlock_api.weights import ModelFlavor
from oarlock_trainer.ranks import preload

if TYPE_CHECKING:
    from pathlib import Path

preload.settle_environment()
import torch  # noqa: E402 - reads the environment that was just settled
from diffusers import FluxPipeline  # noqa: E402 - before ours: a rank imports less of diffusers

from oarlock_trainer.models.encoders import PictureEncoder, normalized  # noqa: E402
from oarlock_trainer.models.flux.captions import CaptionEncoder  # noqa: E402
from oarlock_trainer.models.flux.code import CODE  # noqa: E402
from oarlock_trainer.models.flux.family import FLUX1  # noqa: E402
from oarlock_trainer.models.flux.velocity import image_ids, pack  # noqa: E402

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def pipeline(tiny_flux: Path) -> Any:
    return FluxPipeline.from_pretrained(tiny_flux, dtype=torch.float32)


def test_packing_and_image_ids_are_those_of_the_pipeline(pipeline: Any) -> None:
    latents = torch.randn(2, 4, 6, 10)
    assert torch.equal(pack(latents), pipeline._pack_latents(latents, 2, 4, 6, 10))
    expected = pipeline._prepare_latent_image_ids(2, 3, 5, CPU, torch.float32)
    assert torch.equal(image_ids(6, 10, CPU), expected)


def test_streamed_weights_leave_training_the_memory_that_the_allocator_keeps(
    tiny_flux: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from accelerate.utils import modeling  # noqa: PLC0415 - its import takes seconds

    streamed, cleared = CaptionEncoder(tiny_flux, ModelFlavor.DEV, CPU, streamed=True), []
    monkeypatch.setattr(modeling, "clear_device_cache", lambda: cleared.append(True))
    streamed.encode(["a cat"])
    assert not cleared


def test_bfloat16_moves_a_pixel_by_a_quarter_of_a_grey_level_at_most(tiny_flux: Path) -> None:
    """What the VAE is given on a GPU, in all 256 levels; rounded twice, it was off by half a level."""
    levels = np.arange(256, dtype=np.uint8)
    exact = torch.from_numpy(levels).double() / 127.5 - 1.0
    given = normalized(torch.from_numpy(levels), torch.bfloat16)
    assert float((given.double() - exact).abs().max()) * 127.5 <= 0.25
    encoder, seen = PictureEncoder(tiny_flux, FLUX1, CPU, code=CODE), list[Any]()
    encoder._dtype = torch.bfloat16
    encoder._vae.to(torch.bfloat16).encoder.register_forward_pre_hook(lambda _module, inputs: seen.append(inputs[0]))
    encoder.encode(np.repeat(levels, 3).reshape(1, 16, 16, 3), [0])
    assert torch.equal(seen[0][0, 0].flatten(), given)
