"""Blocks are found in the model, and those that are alike are told from those that are not."""

from __future__ import annotations

import pytest

from oarlock_trainer.ranks import preload

from .tiny import FLUX1, SD_3, Z_IMAGE, Model

preload.settle_environment()
import torch  # noqa: E402 - reads the environment that was just settled

from oarlock_trainer.plan.counting.calls import make  # noqa: E402
from oarlock_trainer.plan.counting.kinds import lists_of  # noqa: E402


@pytest.mark.parametrize(
    ("model", "numbers", "left"),
    [
        (FLUX1.with_more(5), {"transformer_blocks": 7, "single_transformer_blocks": 2}, [2, 2]),
        (SD_3, {"transformer_blocks.0": 2, "transformer_blocks.2": 2, "transformer_blocks.4": 1}, [5]),
        (SD_3.with_more(6), {"transformer_blocks.0": 2, "transformer_blocks.2": 8, "transformer_blocks.10": 1}, [5]),
        (Z_IMAGE, {"noise_refiner": 1, "context_refiner": 1, "layers": 2}, [1, 1, 2]),
    ],
)
def test_kinds_are_numbered_by_list_and_two_of_each_are_left(
    model: Model, numbers: dict[str, int], left: list[int]
) -> None:
    made = make(model.load(), model.config)
    assert {kind.name: kind.number for kind in made.kinds} == numbers
    assert [len(blocks) for _, blocks in lists_of(made.model)] == left
    with torch.device("meta"):
        whole = sum(one.numel() for one in model.load()(**model.config).parameters())
    assert made.parameters == whole
    assert 0 < sum(kind.number * kind.parameters for kind in made.kinds) < whole
