"""What Wan's forward pass alone promises, beside test_forward_pass.py: its positions, and what diffusers' class refuses."""

from __future__ import annotations

import pytest

from oarlock_trainer.ranks import preload

preload.settle_environment()
import torch  # noqa: E402 - reads the environment that was just settled
from wan_pair import CHANNELS, PAIR, batch, pair  # noqa: E402

from oarlock_trainer.models.wan.positions import Positions  # noqa: E402


def test_the_bare_class_refuses_a_mask_of_ours() -> None:
    theirs, _ = pair()
    given = batch(size=2)
    text = given["encoder_hidden_states"]
    seen = torch.tensor([[9], [4]]) > torch.arange(text.shape[1])
    with pytest.raises((TypeError, AttributeError)):
        theirs(**given | {"encoder_hidden_states": (text, seen[:, None, None, :])})


@pytest.mark.parametrize(("frames", "rows", "columns"), [(1, 4, 6), (5, 3, 20), (3, 1, 30)])
def test_positions_are_diffusers_own(frames: int, rows: int, columns: int) -> None:
    theirs, _ = pair()
    latents = torch.zeros(1, CHANNELS, frames, 2 * rows, 2 * columns)
    cos, sin = theirs.rope(latents)
    wanted = torch.stack([cos[0, :, 0, 0::2], sin[0, :, 0, 1::2]], dim=-1)
    assert torch.equal(Positions(theirs.rope)(latents), wanted)


def test_a_model_that_was_rounded_to_bfloat16_has_positions_in_float32() -> None:
    mine = PAIR.ours(torch.nn.Module.to(pair()[1], torch.bfloat16))
    found = mine.rope(torch.zeros(1, CHANNELS, 2, 8, 12, dtype=torch.bfloat16))
    assert found.dtype == torch.float32
