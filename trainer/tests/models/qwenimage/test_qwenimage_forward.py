"""What Qwen-Image's forward pass alone promises, beside test_forward_pass.py: its positions, and what it refuses."""

from __future__ import annotations

import pytest

from oarlock_trainer.ranks import preload

preload.settle_environment()
import torch  # noqa: E402 - reads the environment that was just settled
from qwenimage_pair import PAIR, batch, pair  # noqa: E402

from oarlock_trainer.models.qwenimage.positions import Positions  # noqa: E402


def test_the_bare_class_refuses_a_mask_of_ours() -> None:
    theirs, _ = pair()
    given = batch(lengths=(9, 4)) | {"encoder_hidden_states_mask": None}
    with pytest.raises(ValueError, match="attention_mask"):
        theirs(**given, attention_kwargs={"attention_mask": torch.ones(2, 1, 1, 33, dtype=torch.bool)})


@pytest.mark.parametrize(("rows", "columns", "text"), [(4, 6, 9), (5, 3, 20), (1, 64, 1)])
def test_positions_are_diffusers_own_as_real_numbers(rows: int, columns: int, text: int) -> None:
    theirs, _ = pair()
    embedding = theirs.pos_embed
    shapes = [[(1, rows, columns)]] * 2
    image, words = embedding(shapes, device=torch.device("cpu"), max_txt_seq_len=text)
    found = Positions(embedding.axes_dim, embedding.theta)(shapes, torch.device("cpu"), text)
    assert torch.equal(found, torch.view_as_real(torch.cat([words, image])))


@pytest.mark.parametrize(
    "shapes", [[[]], [[(2, 4, 6)]], [[(1, 4, 6), (2, 4, 6)]]], ids=["none", "a video", "one behind"]
)
def test_what_this_forward_pass_does_not_know_is_refused(shapes: list[list[tuple[int, int, int]]]) -> None:
    mine = PAIR.ours(pair()[1])
    with pytest.raises(ValueError, match="img_shapes"):
        mine(**batch() | {"img_shapes": shapes})
